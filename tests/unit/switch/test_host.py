"""Facts about a host as iproute2 6.1, the kernel and FRR 8.4.4 show them (recorded on Debian 12, kernel 6.1)."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address
from pathlib import Path

import pytest

from tests.judged import assert_recorded
from xenoovs.datapath.fact import Fact, Unknown
from xenoovs.datapath.host import (
    Bgp,
    CpuCounter,
    OffloadHistory,
)
from xenoovs.datapath.tc import TcFilter, parse_tc_json
from xenoovs.errors import ParseError, SwitchUnreachable
from xenoovs.switch.certificates import read_certificate_files
from xenoovs.switch.devices import (
    device_pci,
    parse_addresses,
    parse_cpu_hits,
    parse_entered,
    parse_ethtool,
    parse_feature,
    parse_ingress,
    parse_links,
    parse_macs,
    parse_mode,
    parse_neighbours,
    parse_parameter,
    parse_subfunctions,
    parse_sysctls,
    read_kernel,
    read_port_packets,
)
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.ovsdb import read_database
from xenoovs.switch.tape import Answer, passing_through
from xenoovs.switch.tc import count_rules
from xenoovs.switch.vip_routes import FrrUnavailable, VipRoutes, VipRoutesUnusable, read_bgp, read_bgp_routes
from xenoovs.switch.vlog import ModuleLevel, offload_modules, parse_levels
from xenoovs.switch.vswitchd import (
    find_process,
    judge_offload,
    parse_flow_limit,
    parse_history,
    parse_learned,
    parse_offload_show,
    parse_version,
    telling_statistics,
)

LINKS = """\
[{"ifindex":1,"ifname":"lo","flags":["LOOPBACK","UP","LOWER_UP"],"mtu":65536,"qdisc":"noqueue",
"operstate":"UNKNOWN","linkmode":"DEFAULT","group":"default","txqlen":1000,"link_type":"loopback",
"address":"00:00:00:00:00:00","broadcast":"00:00:00:00:00:00","promiscuity":0,"min_mtu":0,"max_mtu":0},
{"ifindex":2,"ifname":"p0","flags":["BROADCAST","MULTICAST","UP","LOWER_UP"],"mtu":1500,"qdisc":"fq_codel",
"master":"ovs-system","operstate":"UNKNOWN","linkmode":"DEFAULT","group":"default","txqlen":1000,
"link_type":"ether","address":"2a:cd:7a:e9:1c:a2","broadcast":"ff:ff:ff:ff:ff:ff","promiscuity":1,
"min_mtu":68,"max_mtu":65535,"linkinfo":{"info_slave_kind":"openvswitch"},"phys_switch_id":"65737769746368"},
{"ifindex":4,"ifname":"eth0","flags":["BROADCAST","MULTICAST"],"mtu":1400,"qdisc":"pfifo_fast",
"operstate":"DOWN","link_type":"ether","address":"02:fc:00:00:00:01","broadcast":"ff:ff:ff:ff:ff:ff",
"parentbus":"virtio","parentdev":"virtio2"}]"""
QDISCS = """\
[{"kind":"noqueue","handle":"0:","dev":"lo","root":true,"refcnt":2,"options":{}},
{"kind":"fq_codel","handle":"0:","dev":"p0","root":true,"refcnt":2,"options":{"limit":10240,"ecn":true}},
{"kind":"ingress","handle":"ffff:","dev":"p0","parent":"ffff:fff1","options":{}},
{"kind":"clsact","handle":"ffff:","dev":"ovsbr1","parent":"ffff:fff1","options":{}}]"""
NEIGHBOURS = """\
[{"dst":"192.0.2.1","dev":"eth0","lladdr":"02:FC:00:00:00:05","state":["STALE"]},
{"dst":"fd00::1","dev":"eth0","state":["FAILED"]},
{"dst":"192.0.2.9","dev":"eth0","lladdr":"02:fc:00:00:00:09","state":["FAILED"]}]"""
LOOPBACK = """\
[{"ifindex":1,"ifname":"lo","flags":["LOOPBACK","UP","LOWER_UP"],"mtu":65536,"addr_info":[{"family":"inet",
"local":"10.3.10.45","prefixlen":32,"scope":"global","label":"lo"},{"family":"inet6","local":"::1",
"prefixlen":128}]}]"""

# What every link has.
INCOMPLETE = tuple(
    LINKS.replace(missing, "")
    for missing in ('"ifname":"p0",', '"mtu":1500,', '"flags":["BROADCAST","MULTICAST","UP","LOWER_UP"],')
)
PCI = "0000:03:00.0"
MODE = '{"dev":{"pci/0000:03:00.0":{"mode":"switchdev","inline-mode":"none","encap-mode":"basic"}}}'
STEERING = (
    '{"param":{"pci/0000:03:00.0":[{"name":"flow_steering_mode","type":"driver-specific",'
    '"values":[{"cmode":"runtime","value":"smfs"}]}]}}'
)
NO_VALUE = '{"param":{"pci/0000:03:00.0":[{"name":"flow_steering_mode","type":"driver-specific","values":[]}]}}'

PORTS = (
    '{"port":{"pci/0000:03:00.0/262143":{"type":"eth","netdev":"p0","flavour":"physical","port":0,"splittable":false},'
    '"pci/0000:03:00.0/229408":{"type":"eth","netdev":"en3f0pf0sf0","flavour":"pcisf","controller":0,"pfnum":0,"sfnum":0,'
    '"splittable":false,"function":{"hw_addr":"02:e0:a9:05:72:9a","state":"active","opstate":"attached"}},'
    '"pci/0000:03:00.0/196608":{"type":"eth","netdev":"pf0hpf","flavour":"pcipf","controller":1,"pfnum":0,'
    '"external":true,"splittable":false,"function":{"hw_addr":"a0:88:c2:f2:30:3c"}}}}'
)
"""Ports of a BlueField: an uplink, a scalable function, the host."""

TEXT = """Features for p0:
rx-checksumming: off [fixed]
tx-checksumming: off
\ttx-checksum-ipv4: off [fixed]
generic-segmentation-offload: off [requested on]
l2-fwd-offload: off [fixed]
{}
esp-hw-offload: off [fixed]
"""

ALIVE = "b91ad343cc4f394eaf4a80bd325adc34"


def _rule(handle: int, cookie: str | None) -> TcFilter:
    return TcFilter("ip", 2, 0, handle, cookie, in_hw=True, counters=None)


STALE, FOREIGN = _rule(2, "00" * 16), _rule(3, None)

# In the form that ip/ipstats.c of iproute2 6.1 prints; lo has no such statistics.
CPU_HIT = (
    '[{"ifindex":1,"ifname":"lo","group":"offload","subgroup":"cpu_hit"},{"ifindex":2,"ifname":"p0","group":"offload",'
    '"subgroup":"cpu_hit","stats64":{"rx":{"bytes":3300,"packets":33,"errors":0,"dropped":0,"over_errors":0,'
    '"multicast":0},"tx":{"bytes":0,"packets":0,"errors":0,"dropped":0,"carrier_errors":0,"collisions":0}}}]'
)
# After drivers/net/ethernet/mellanox/mlx5/core/en_stats.c of Linux 6.1: `rx_packets` is of the software's queues.
UPLINK = "NIC statistics:\n     rx_packets: 33\n     rx_bytes: 3300\n     rx_packets_phy: 1000033\n"
VETH = "NIC statistics:\n     peer_ifindex: 5\n     rx_packets: 33\n"


def test_another_device_has_the_counter_of_its_driver() -> None:
    found = read_port_packets(["lo", "no-such-device"])
    assert found.keys() == {"lo"}
    assert (found["lo"].counter, found["lo"].source) == (CpuCounter.ALL, "rx_packets of the device")
    assert read_port_packets([]) == {}


LIST = """\
                 console    syslog    file
                 -------    ------    ------
bridge             OFF        ERR       INFO
dpif_netlink       OFF        ERR       WARN    (rate limiting disabled)
netdev_offload_tc   OFF       INFO        DBG
"""


START = "2026-11-21T04:33:03.201Z|00001|vlog|INFO|opened log file /var/log/openvswitch/ovs-vswitchd.log\n"
BEGUN_3_1 = """\
2026-11-21T04:33:03.285Z|00045|netdev_offload|INFO|netdev: Flow API Enabled
2026-11-21T04:33:03.285Z|00046|tc|INFO|tc: Using policy 'skip_sw'
2026-11-21T04:33:03.285Z|00047|netdev_offload_tc|INFO|init: failed to get ifindex for p1: Operation not supported
2026-11-21T04:33:03.285Z|00048|netdev_offload|INFO|p0: Assigned flow API 'linux_tc'.
"""
BEGUN_3_7 = """\
2026-11-21T04:33:03.285Z|00045|dpif_offload|INFO|Flow HW offload is enabled
2026-11-21T04:33:03.285Z|00048|dpif_offload_tc|INFO|p0: Assigned flow API 'tc'.
"""
HANDLER = "2026-11-21T04:53:48.001Z|00001|dpif(handler2)|WARN|system@ovs-system: failed to put[create]\n"
LIMITED = "system@ovs-system:\n  flows         : (current 7) (avg 6) (max 7) (limit 10000)\n"
COUNTED = LIMITED + "  offloaded flows : 7\n  dump duration : 2ms\n"
STATISTICS = "HW Offload stats:\n     Total                 Enqueued offloads:      0\n"
REFUSED = Unknown("ovs-vswitchd: retrieving offload statistics (Invalid argument)")
NOT_SUPPORTED = Unknown("ovs-vswitchd: retrieving offload statistics (Operation not supported)")
NOTHING = Unknown("it writes no log that can be read")
WHOLE = OffloadHistory(is_complete=True)

OFFLOAD: dict[str, tuple[str, Fact[str], Fact[OffloadHistory]]] = {
    "the kernel counts": (COUNTED, NOT_SUPPORTED, NOTHING),
    "userspace counts": (LIMITED, STATISTICS, NOTHING),
    "userspace refuses": (LIMITED, REFUSED, WHOLE),
    "the log has a start": (LIMITED, NOT_SUPPORTED, OffloadHistory(has_started=True)),
    "the whole log has none": (LIMITED, NOT_SUPPORTED, WHOLE),
    "there is no log": (LIMITED, NOT_SUPPORTED, NOTHING),
    "the rest of a log has no start": (LIMITED, NOT_SUPPORTED, OffloadHistory()),
}
# Only the first datapath was asked, and the kernel's refuses always.
TELLING: dict[str, list[Fact[str]]] = {
    "bug: a datapath that counts, after one of the kernel": [NOT_SUPPORTED, STATISTICS],
    "one that refuses, after one of the kernel": [NOT_SUPPORTED, REFUSED],
    "one of the kernel": [NOT_SUPPORTED],
    "no datapath": [],
}
RULES = {
    "rules of megaflows": ([_rule(1, ALIVE)], [_rule(1, ALIVE)]),
    "stale and foreign rules": ([_rule(1, ALIVE), STALE, FOREIGN], [_rule(1, ALIVE), STALE, FOREIGN]),
    "rules that come or go during the read": ([_rule(1, ALIVE), STALE], [_rule(1, ALIVE), _rule(3, "11" * 16)]),
    "a rule of a handle that is used again": ([_rule(1, "00" * 16)], [_rule(1, "11" * 16)]),
}


MODULES = (
    "bridge dpif netdev_offload netdev_offload_tc tc tunnel dpif_netlink",
    "dpif_offload dpif_offload_tc dpif_offload_tc_netdev tc stream_tcp",
    "netdev_offload_dpdk dpif_netdev",
    "ovs_doca netdev_doca dpdk",
)


def test_what_is_concluded(*, update_golden: bool) -> None:
    found: dict[str, object] = {title: count_rules(*dumps, [ALIVE]) for title, dumps in RULES.items()}
    found |= {title: telling_statistics(answers) for title, answers in TELLING.items()}
    for names in MODULES:
        chosen = offload_modules(ModuleLevel(name, "INFO", is_rate_limited=True) for name in names.split())
        found[f"which log of {names}"] = [module.name for module in chosen]
    for title, (shown, statistics, history) in OFFLOAD.items():
        found[title] = judge_offload(upcall_show=shown, statistics=statistics, history=history)
    assert_recorded("parsed/offload.txt", {title: repr(each) for title, each in found.items()}, update=update_golden)


_ADDED = "2026-11-21T07:03:40.922Z|00042|bridge|INFO|bridge ovsbr1: added interface p0 on port 1\n"
_ENABLED = "2026-11-21T07:03:41.922Z|00045|netdev_offload|INFO|netdev: Flow API Enabled\n"

mode_of, steering_of = partial(parse_mode, pci=PCI), partial(parse_parameter, pci=PCI, name="flow_steering_mode")
hw_tc = partial(parse_feature, name="hw-tc-offload")
SHOWN_3_7 = (
    '{"enabled":true,"system@ovs-system":{"priority":["tc","dpdk"],"providers":'
    '{"tc":{"ports":{"p0":{"port_no":1,"ifindex":2},"p1":{"port_no":2,"ifindex":3}}},"dpdk":{"ports":{}}}}}'
)
SHOWN_4_0 = (
    '{"dummy@ovs-dummy":{"priority":["dummy","dummy_x"],"providers":{"dummy":{"ports":{"p0":{"port_no":1,'
    '"rx_offload_full":2,"rx_offload_miss":3,"rx_offload_partial":4,"rx_offload_pipe_abort":0}}},"dummy_x":{}}},'
    '"enabled":true}'
)
FORWARDED = """\
 port  VLAN  MAC                Age
    1     0  02:00:5e:10:00:02    3
LOCAL     0  6e:31:c9:8d:1c:41    1
"""
READ: dict[str, tuple[Callable[[str], object], str]] = {
    "links": (parse_links, LINKS),
    "a link of a PCI device": (parse_links, LINKS.replace("virtio2", "0000:03:00.1")),
    "ingress qdiscs": (parse_ingress, QDISCS),
    "no qdiscs": (parse_ingress, ""),
    "neighbours": (parse_neighbours, NEIGHBOURS),
    "no neighbours": (parse_neighbours, ""),
    "addresses": (parse_addresses, LOOPBACK),
    "no addresses": (parse_addresses, ""),
    "MACs of Ethernet devices": (parse_macs, LINKS),
    "a mode": (mode_of, MODE),
    "no mode": (mode_of, '{"dev":{"pci/0000:03:00.0":{}}}'),
    "a runtime value": (steering_of, STEERING),
    "no runtime value": (steering_of, STEERING.replace("runtime", "driverinit")),
    "no value, as of Ubuntu's kernel 5.15.0-25": (steering_of, NO_VALUE),
    "subfunctions": (parse_subfunctions, PORTS),
    **{
        f"offload {shown}": (hw_tc, TEXT.format(f"hw-tc-offload: {shown}"))
        for shown in ("on", "off", "off [fixed]", "off [requested on]")
    },
    "no such feature": (hw_tc, TEXT.format("")),
    "hits of the CPU": (parse_cpu_hits, CPU_HIT),
    "ethtool of an uplink": (parse_ethtool, UPLINK),
    "ethtool of a veth": (parse_ethtool, VETH),
    "no statistics": (parse_ethtool, "no stats available\n"),
    "packets at the wire": (parse_entered, UPLINK),
    "packets at the function": (parse_entered, "NIC statistics:\n     rx_packets: 3\n     vport_rx_packets: 44\n"),
    "packets of a veth": (parse_entered, VETH),
    "levels of the log": (parse_levels, LIST),
    "history of 3.1": (parse_history, START + BEGUN_3_1),
    "history of 3.7": (parse_history, START + BEGUN_3_7),
    "a start without offload": (parse_history, START),
    "what was before the last start": (parse_history, START + BEGUN_3_1 + START),
    "a log that was rotated away": (parse_history, BEGUN_3_7),
    # Each thread numbers its messages from 1: a handler's first message was taken for the start of the daemon.
    "a first message of a thread": (parse_history, START + BEGUN_3_7 + HANDLER),
    "a log of anything": (parse_history, "\x00|||\n|00001|\n"),
    "offload began before any port": (parse_history, START + _ENABLED + _ADDED),
    "offload began on a running daemon": (parse_history, START + _ADDED + _ENABLED),
    "offload never began": (parse_history, START + _ADDED),
    "offload began on a daemon that has restarted since": (
        parse_history,
        START + _ADDED + _ENABLED + START + _ENABLED + _ADDED,
    ),
    # Open vSwitch 2.17 to 3.6 log the number of threads if n-offload-threads is set.
    **{
        f"offload began with {threads}": (
            parse_history,
            START + _ADDED + _ENABLED.replace("Enabled", f"Enabled, using {threads}"),
        )
        for threads in ("1 thread", "4 threads")
    },
    "a flow limit": (parse_flow_limit, LIMITED),
    "the least flow limit": (parse_flow_limit, LIMITED + LIMITED.replace("10000", "500")),
    "no flow limit": (parse_flow_limit, ""),
    "offload/show of 3.7": (parse_offload_show, SHOWN_3_7),
    "offload/show of 4.0": (parse_offload_show, SHOWN_4_0),
    "offload/show while off": (parse_offload_show, '{"enabled":false}'),
    "a version": (parse_version, "ovs-vswitchd (Open vSwitch) 3.1.0\n"),
    "a version of a vendor": (parse_version, "ovs-vswitchd (Open vSwitch) 2.17.8+nvidia\nDPDK 20.11.6\n"),
    "no version": (parse_version, "hello\n"),
    "learned MACs": (partial(parse_learned, names={"1": "p0"}), FORWARDED),
    "settings, of which the larger one of all and of the device works": (parse_sysctls, "1\n0\n0\n2\n0\n0\n"),
    **{
        f"an answer of ip without counters: {text[:8]!r}": (parse_cpu_hits, text)
        for text in ("", "{", "3", "[1]", '[{"stats64":{}}]', 'Object "stats" is unknown, try "ip help".')
    },
}


def _shown(found: object) -> str:
    if isinstance(found, dict):
        return "\n".join(f"{key!r}: {value!r}" for key, value in found.items())
    return "\n".join(map(repr, sorted(found) if isinstance(found, frozenset) else [found]))


def test_what_programs_print_is_read(*, update_golden: bool) -> None:
    found = {what: _shown(read(text)) for what, (read, text) in READ.items()}
    assert_recorded("parsed/host.txt", found, update=update_golden)


NOT_READABLE: list[tuple[Callable[[str], object], tuple[str, ...]]] = [
    *(
        (read, ("[", "{}", "[1]", "qdisc ingress ffff: dev p0"))
        for read in (parse_links, parse_ingress, parse_neighbours, parse_addresses, parse_macs)
    ),
    (parse_links, INCOMPLETE),
    (parse_levels, (LIST + "odd\n",)),
    (mode_of, ("", "{", "[]", '{"dev":{}}', MODE.replace("0000:03", "0000:04"))),
    (steering_of, ("", "{", '{"param":{"pci/0000:03:00.0":{}}}')),
    (parse_subfunctions, ("", "[]", "{}", '{"port":{"pci/0000:03:00.0/1":7}}')),
    (hw_tc, ("", "Features for p0:\n", "netlink error: No such device\n")),
    (parse_sysctls, ("", "1\n0\n", "1\n0\n0\n2\n0\nx\n")),
    (parse_offload_show, ("", "[]", "{}", '{"reply":"p0","reply-format":"plain"}')),
]


@pytest.mark.parametrize(("read", "text"), [(read, text) for read, texts in NOT_READABLE for text in texts])
def test_other_text_is_refused(read: Callable[[str], object], text: str) -> None:
    with pytest.raises(ParseError):
        read(text)


RELEASE = "6.1.0-49-arm64"
NAMES = ("cls_flower", "act_mirred")

BUILTIN, DEP = f"lib/modules/{RELEASE}/modules.builtin", f"lib/modules/{RELEASE}/modules.dep"
MIRRED, IS_BUILT = "kernel/net/sched/act_mirred.ko\n", "CONFIG_NET_ACT_MIRRED=y\n# CONFIG_NET_CLS_FLOWER is not set\n"
KERNELS: dict[str, dict[str, str | bytes]] = {
    "built in and on disk": {
        "proc/modules": "openvswitch 200704 0 - Live 0x0000000000000000\n",
        BUILTIN: MIRRED,
        DEP: "kernel/net/sched/cls-flower.ko.zst: kernel/net/core/x.ko.zst\n",
    },
    "loaded, without a library": {"proc/modules": "cls_flower 61440 0 - Live 0x0\n"},
    "nowhere": {BUILTIN: MIRRED, DEP: ""},
    "in a configuration": {f"boot/config-{RELEASE}": IS_BUILT},
    "in that of the kernel": {"proc/config.gz": gzip.compress(IS_BUILT.encode())},
    "a broken configuration": {"proc/config.gz": b"\x1f\x8bnonsense"},
    "nothing to read": {},
}


def _write(path: Path, text: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)


def test_which_modules_a_kernel_has(tmp_path: Path, *, update_golden: bool) -> None:
    found = {}
    for number, (title, files) in enumerate(KERNELS.items()):
        for path, text in files.items():
            _write(tmp_path / str(number) / path, text)
        found[title] = repr(read_kernel(NAMES, root=tmp_path / str(number), release=RELEASE))
    assert_recorded("parsed/kernels.txt", found, update=update_golden)


def test_hugepages_of_all_sizes(tmp_path: Path) -> None:
    pools = tmp_path / "sys/kernel/mm/hugepages"
    _write(pools / "hugepages-2048kB/nr_hugepages", "3072\n")
    _write(pools / "hugepages-1048576kB/nr_hugepages", "2\n")
    assert read_kernel(NAMES, root=tmp_path, release=RELEASE).hugepages_bytes == (3072 << 21) + (2 << 30)


def test_pci_device_behind_a_network_device(tmp_path: Path) -> None:
    function = tmp_path / "sys/devices/pci0000:00/0000:03:00.0"
    function.mkdir(parents=True)
    (tmp_path / "sys/class/net/p0").mkdir(parents=True)
    (tmp_path / "sys/class/net/p0/device").symlink_to(function)
    assert device_pci("p0", root=tmp_path) == "0000:03:00.0"
    assert device_pci("lo", root=tmp_path) is None


_ON, _OFF = "CONFIG_NET_SCHED=y\nCONFIG_NET_TC_SKB_EXT=y\n", "# CONFIG_NET_TC_SKB_EXT is not set\n"


@pytest.mark.parametrize(
    "place", ["boot/config-6.1", "lib/modules/6.1/config", "lib/modules/6.1/build/.config", "proc/config.gz"]
)
@pytest.mark.parametrize(("text", "is_on"), [(_ON, True), (_OFF, False), ("CONFIG_NET_TC_SKB_EXT_X=y\n", False)])
def test_files_of_distributions_and_the_kernel_itself(place: str, text: str, is_on: bool, tmp_path: Path) -> None:
    _write(tmp_path / place, gzip.compress(text.encode()) if place.endswith(".gz") else text)
    assert read_kernel((), root=tmp_path, release="6.1").has_tc_chains is is_on


def test_a_host_without_a_kernel_configuration(tmp_path: Path) -> None:
    found = read_kernel((), root=tmp_path, release="6.1").has_tc_chains
    assert isinstance(found, Unknown)
    assert found.reason == "neither /boot/config-6.1 nor /proc/config.gz shows how the kernel was built"


VIP, VIP6 = ip_address("192.0.2.10"), ip_address("2001:db8::10")
ADVERTISED = '{"prefix":"192.0.2.10/32","advertisedTo":{"10.9.0.2":{"hostname":"tor"}},"paths":[{"valid":true}]}'
SUMMARY = """{"ipv4Unicast":{"peers":{"10.9.0.2":{"state":"Established"},"10.9.0.3":{"state":"Active"}}},
"ipv6Unicast":{"peers":{"10.9.0.3":{"state":"Connect"}}}}"""
CONFIG = """Current configuration:
!
router bgp 65001
 neighbor 10.9.0.2 remote-as 65000
 !
 address-family ipv4 unicast
  redistribute kernel route-map VIPS
 exit-address-family
 !
 address-family ipv6 unicast
  network 2001:db8::10/128
 exit-address-family
exit
"""


@pytest.fixture
def vtysh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program of this name, first on PATH; it prints the file `out` and runs the file `more`."""
    program = tmp_path / "vtysh"
    program.write_text(f'#!/bin/sh\ncase "$*" in *running*) cat {tmp_path}/config;; *) cat {tmp_path}/out;; esac\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (tmp_path / "config").write_text(CONFIG)
    return program


def test_each_vip_has_the_neighbors_that_it_is_advertised_to(vtysh: Path) -> None:
    (vtysh.parent / "out").write_text(f"{ADVERTISED}\n{{\n}}\n")
    assert read_bgp_routes((VIP, VIP6)) == {VIP: ("10.9.0.2",), VIP6: None}


@pytest.mark.parametrize("text", ["", "{}", "{broken", "nonsense", "[1]"])
def test_another_form_is_an_error(vtysh: Path, text: str) -> None:
    (vtysh.parent / "out").write_text(text)
    with pytest.raises(FrrUnavailable, match="another form"):
        read_bgp_routes((VIP, VIP6))


@pytest.mark.parametrize(
    ("stderr", "advice"),
    [
        ("bgpd is not running", "set `bgpd=yes`"),
        ("Exiting: failed to connect to any daemons.", "systemctl start frr"),
        ("% Can't open configuration file /etc/frr/vtysh.conf due to 'Permission denied'.", "group frrvty"),
        ("% Unknown command: show bgp", "vtysh: % Unknown command"),
    ],
)
def test_a_failure_of_vtysh_is_reported_with_its_remedy(vtysh: Path, stderr: str, advice: str) -> None:
    vtysh.write_text(f'#!/bin/sh\necho "{stderr}" >&2\nexit 1\n')
    with pytest.raises(FrrUnavailable, match=advice):
        read_bgp_routes((VIP,))
    assert isinstance(read_bgp((VIP,)), Unknown)


def test_without_frr_the_error_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FrrUnavailable, match="apt-get install frr"):
        read_bgp_routes((VIP,))


def test_doctor_reads_sessions_and_vips_that_bgpd_would_not_announce(vtysh: Path) -> None:
    (vtysh.parent / "out").write_text(SUMMARY)
    other = ip_address("2001:db8::11")
    assert read_bgp((VIP, VIP6, other)) == Bgp(("10.9.0.2",), ("10.9.0.3",), ("2001:db8::11",))


@pytest.mark.parametrize("text", ["", "x\n", "-1\n", "²", "[]", "9" * 5000, "\0"])
def test_bug_hugepages_that_are_no_number_are_unknown(tmp_path: Path, text: str) -> None:
    file = tmp_path / "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
    _write(file, text)
    assert read_kernel(NAMES, root=tmp_path, release=RELEASE).hugepages_bytes == Unknown(f"{file} has no number")


def test_bug_a_blank_line_among_modules_is_no_module(tmp_path: Path) -> None:
    _write(tmp_path / "proc/modules", "\n \nact_ct 1 0 - Live 0x0\n")
    assert read_kernel(["act_ct"], root=tmp_path, release=RELEASE).modules == {"act_ct": True}


class _Says:
    """A tape that answers questions by their first word, or by all of them."""

    is_replaying = True

    def __init__(self, **texts: str) -> None:
        self.texts = texts

    def answer(self, question: tuple[str, ...], ask: Callable[[], Answer]) -> Answer:
        return Answer(
            self.texts.get(question[-1].rpartition("/")[2].partition(".")[0], self.texts.get(question[0], ""))
        )


@pytest.mark.parametrize("pid", ["7\n", "x", "9" * 5000])
@pytest.mark.parametrize("stat", ["", "7 (ovs-vswitchd)", "7 (ovs-vswitchd) S 1 2", "7 (ovs-vswitchd)" + " x" * 30])
def test_bug_a_damaged_stat_is_of_no_process(pid: str, stat: str) -> None:
    with passing_through(_Says(read=pid, stat=stat)):
        assert find_process(Endpoint("unix:/x", Path("/x"))) is None


@pytest.mark.parametrize("now", ["", "now", "9" * 5000, "²"])
def test_bug_certificates_are_unknown_at_an_unreadable_time(now: str) -> None:
    with passing_through(_Says(date=now)):
        found = read_certificate_files({"certificate": "/a.pem"}, ()).certificates["/a.pem"]
    assert isinstance(found, Unknown)
    assert "`date +%s` is no number" in found.reason


@pytest.mark.parametrize(
    "text",
    [
        "9" * 5000,
        "[" * 100_000,
        '{"enabled": 1' + "0" * 5000 + "}",
        '{"enabled": true, "dp": {"providers": {"tc": {"ports": 1}}}}',
    ],
    ids=["a number", "a depth", "another number", "ports that are a number"],
)
def test_bug_a_number_or_a_depth_that_python_refuses_is_a_parse_error(text: str) -> None:
    with pytest.raises(ParseError):
        parse_offload_show(text)


def test_bug_a_database_of_any_depth_is_refused() -> None:
    with passing_through(_Says(**{"ovsdb-client": "[" * 100_000})), pytest.raises(SwitchUnreachable):
        read_database(Endpoint("unix:/x", Path("/x")))


@pytest.mark.parametrize("key", ["ifname", "master", "phys_switch_id", "phys_port_name"])
def test_bug_a_device_named_by_a_number_is_a_parse_error(key: str) -> None:
    with pytest.raises(ParseError):
        parse_links(json.dumps([{"ifname": "p0", "flags": [], "mtu": 1500} | {key: 1.5}]))


def test_bug_an_infinite_number_in_json_is_a_parse_error() -> None:
    with pytest.raises(ParseError):
        parse_links('[{"ifname": "p0", "flags": [], "mtu": 1e999}]')
    with pytest.raises(ParseError):
        parse_tc_json('[{"protocol": "ip", "pref": 1e999, "options": {"handle": 1}}]')
    assert parse_cpu_hits('[{"ifname": "p0", "stats64": {"rx": {"packets": 1e999}}}]') == {}


@pytest.mark.parametrize("text", ["[" * 100_000, "[1]", '{"a": 1}', '[{"dst": {}}', "nonsense"])
def test_bug_what_ip_prints_in_another_form_was_a_traceback(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ip").write_text(f"#!/bin/sh\ncat {tmp_path}/out\n")
    (tmp_path / "ip").chmod(0o755)
    (tmp_path / "out").write_text(text)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(VipRoutesUnusable, match=r"iproute2 4\.14 or newer"):
        VipRoutes("xo-ovsbr1").read()


@pytest.mark.parametrize("text", ['{"paths":[1],"advertisedTo":1}', '{"ipv4Unicast":{"peers":{"10.9.0.2":1}}}', ""])
def test_bug_what_bgpd_says_in_another_form_was_a_traceback(text: str, vtysh: Path) -> None:
    (vtysh.parent / "out").write_text(text)
    if "ipv4Unicast" not in text:
        with pytest.raises(FrrUnavailable, match="another form"):
            read_bgp_routes((VIP,))
    if "paths" not in text:
        found = read_bgp((VIP,))
        assert isinstance(found, Unknown)
        assert "another form" in found.reason
