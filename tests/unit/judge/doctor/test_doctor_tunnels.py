"""Checks of tunnels with one fault each: what the NIC needs to encapsulate, IPsec, certificates, and remotes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from ipaddress import IPv4Address
from typing import Any

import pytest

from tests.judged import assert_recorded
from tests.unit.judge.doctor.facts import changes_of
from xenoovs.compile.tunnel_ports import WantedPort
from xenoovs.datapath.certificate import Certificate, CertificateFiles, PrivateKey, parse_certificate
from xenoovs.datapath.database import BridgeState, Database, PortState
from xenoovs.datapath.fact import NOT_READ, Fact, Unknown
from xenoovs.datapath.host import Daemon, Device, HostFacts, OffloadHistory, OffloadState
from xenoovs.datapath.ike_log import IkeFailure
from xenoovs.datapath.ipsec import IpsecState, RouteTo, SecurityAssociation, parse_policies
from xenoovs.datapath.ovn import OvnUse
from xenoovs.datapath.tunnel_facts import Neighbour, TunnelEnd, TunnelFacts, tunnel_ends
from xenoovs.evidence.evidence import Evidence
from xenoovs.judge.doctor.certificates import check_certificates
from xenoovs.judge.doctor.check import DoctorCase, RemoteAnswers, RequiredKey, RequiredTunnel, Requirements
from xenoovs.judge.doctor.tunnels import (
    check_keys,
    check_probe_ports,
    check_reflectors,
    check_source_ports,
    check_tunnel_ends,
    check_tunnel_ports,
)

LOCAL, REMOTE = int(IPv4Address("192.0.2.1")), int(IPv4Address("192.0.2.12"))
GENEVE = TunnelEnd("gnv0", "geneve", "genev_sys_6081", "192.0.2.12", "192.0.2.1", 6081)
POLICY = """\
src 192.0.2.1/32 dst 192.0.2.12/32 proto udp dport 6081
\tdir out priority 366847 ptype main
\ttmpl src 0.0.0.0 dst 0.0.0.0
\t\tproto esp reqid 2 mode transport
"""
TUNNEL = PortState("gnv0", ofport=3, type="geneve", options={"remote_ip": "flow", "key": "flow"})
UPLINK = PortState("br-ul", ofport=65534, type="internal")


def _device(name: str, *, mtu: int = 1600, switch_id: str | None = "aa", ingress: Fact[bool] = True) -> Device:
    return Device(name, is_up=True, mtu=mtu, switch_id=switch_id, ingress=ingress)


DEVICES = {
    "p0": _device("p0", mtu=1500),
    "p1": _device("p1"),
    "br-ul": _device("br-ul", switch_id=None),
    "genev_sys_6081": _device("genev_sys_6081", switch_id=None),
}


def _known(mac: str | None, state: str = "STALE") -> dict[str, Neighbour]:
    return {"192.0.2.12": Neighbour("192.0.2.12", mac, state=state)}


def _tunnel(
    *ends: TunnelEnd,
    devices: Mapping[str, Device] = DEVICES,
    route: Fact[RouteTo] = RouteTo("p1", LOCAL),  # noqa: B008
    is_on: bool = True,
    datapath: str = "system",
    tagged: Collection[str] = (),
    ovn: OvnUse | None = None,
    **facts: Any,
) -> DoctorCase:
    """A tunnel that the NIC can encapsulate, but for the facts that are given."""
    usual: dict[str, Any] = {
        "routes": {"192.0.2.12": route},
        "addresses": {"lo": ("127.0.0.1",), "p1": ("192.0.2.1",)},
        "neighbours": _known("02:00:00:00:00:02"),
        "ipsec": IpsecState(),
    }
    bridges = (
        BridgeState("br-ul", (UPLINK, PortState("u0"))),
        BridgeState("ovsbr1", (TUNNEL,), datapath_type=datapath, ovn=ovn),
    )
    daemon = Daemon(OffloadState(is_on, "the log"), OffloadHistory(), 200_000)
    tunnels = TunnelFacts(ends or (GENEVE,), **usual | facts)
    host = HostFacts(is_local=True, database=Database(bridges=bridges), daemon=daemon, devices=devices, tunnels=tunnels)
    return DoctorCase(Evidence(host), Requirements("ovsbr1", ("p0",), ("gnv0",), entries=0, tagged=frozenset(tagged)))


def _by_p1(mtu: int) -> RouteTo:
    return RouteTo("p1", LOCAL, mtu=mtu)


def _userspace(route: RouteTo, **facts: Any) -> DoctorCase:
    end = TunnelEnd("gnv0", "geneve", "genev_sys", "192.0.2.12", None, 6081, is_userspace=True)
    return _tunnel(end, route=route, datapath="netdev", **facts)


BY_BRIDGE = RouteTo("br-ul")
GRE = TunnelEnd("gre0", "gre", "gre_sys", "192.0.2.12", "192.0.2.1")
NO_QDISC = {**DEVICES, "genev_sys_6081": _device("genev_sys_6081", ingress=False)}
TUNNELS: dict[str, DoctorCase] = {
    "by another bridge": _tunnel(route=RouteTo("br-ul", LOCAL)),
    "by a device of no eSwitch": _tunnel(
        route=RouteTo("eth0", LOCAL), devices={**DEVICES, "eth0": _device("eth0", switch_id=None)}
    ),
    "to an address of this host": _tunnel(route=RouteTo("lo", LOCAL, is_local=True)),
    "no route": _tunnel(route=Unknown("Network is unreachable")),
    "in userspace": _userspace(BY_BRIDGE),
    "in userspace, by a device of the kernel": _userspace(RouteTo("p1")),
    # Bug: an address on a port of the bridge was right, and nothing came back.
    "in userspace, by a port of the bridge": _userspace(RouteTo("u0")),
    "in userspace, a MAC that is known": _userspace(BY_BRIDGE, cached={"192.0.2.12": "02:00:00:00:00:02"}),
    # A backend whose MAC changed is a black hole in userspace.
    "in userspace, a MAC that changed": _userspace(BY_BRIDGE, cached={"192.0.2.12": "02:00:00:00:00:99"}),
    **{f"MTU {mtu}": _tunnel(route=_by_p1(mtu)) for mtu in (1549, 1550)},
    **{f"MTU {mtu}, GRE": _tunnel(GRE, route=_by_p1(mtu)) for mtu in (1541, 1542)},
    # A tag that frames keep in a tunnel needs room.
    **{f"MTU {mtu}, tagged": _tunnel(route=_by_p1(mtu), tagged={"gnv0"}) for mtu in (1553, 1554)},
    "MTU 1550, of OVN": _tunnel(route=_by_p1(1550), ovn=OvnUse(is_owner=True, evidence="it says so")),
    # Bug: the command of one tunnel made the MTU too low for another.
    "MTU 1500, two tunnels": _tunnel(GENEVE, GRE, devices={**DEVICES, "p1": _device("p1", mtu=1500)}),
    "local address on no device": _tunnel(replace(GENEVE, local="192.0.2.77")),
    "neighbour reachable": _tunnel(neighbours=_known("02:00:00:00:00:02", "REACHABLE")),
    "neighbour failed": _tunnel(neighbours=_known(None, "FAILED")),
    "neighbour incomplete": _tunnel(neighbours=_known(None, "INCOMPLETE")),
    "gateway without a MAC": _tunnel(route=RouteTo("p1", LOCAL, gateway="192.0.2.254")),
    "no qdisc": _tunnel(devices=NO_QDISC),
    "no qdisc before offload begins": _tunnel(devices=NO_QDISC, is_on=False),
}

NO_KEY = IkeFailure("2026-11-24T13:42:36+0000", "its pre-shared key is another one")
MONITOR = "ovs-monitor-ipsec"


def _ipsec(offload: str | None = None) -> IpsecState:
    device = None if offload is None else "p1"
    out = SecurityAssociation(LOCAL, REMOTE, False, device, "out" if device else None, offload, 7)
    back = SecurityAssociation(REMOTE, LOCAL, False, packets=7)
    return IpsecState(parse_policies(POLICY), (out, back))


def _encrypted(ipsec: IpsecState | None = None, *programs: str, is_monitored: bool = True, **facts: Any) -> DoctorCase:
    running = frozenset((MONITOR, *programs)) if is_monitored else frozenset[str]()
    end = replace(GENEVE, is_encrypted=True)
    return _tunnel(end, ipsec=_ipsec("packet") if ipsec is None else ipsec, programs=running, **facts)


WITHOUT_SA = IpsecState(parse_policies(POLICY))
IPSEC: dict[str, DoctorCase] = {
    "no IKE daemon": _encrypted(),
    "no programs": _encrypted(is_monitored=False),
    # That which Debian 13 installs by default.
    "charon-systemd": _encrypted(None, "charon-systemd"),
    "no policy": _encrypted(IpsecState(), "charon"),
    "no SA": _encrypted(WITHOUT_SA, "charon"),
    # strongSwan has policies before SAs, and logs by address; Libreswan has both together, and logs by port.
    **{
        f"no {what}, and the log names {whose}": _encrypted(state, "charon", ike_failures={whose: NO_KEY})
        for what, state in (("policy", IpsecState()), ("SA", WITHOUT_SA))
        for whose in ("192.0.2.12", "gnv0")
    },
    "not offloaded": _encrypted(_ipsec(), "charon"),
    "not offloaded, as the tunnel": _encrypted(_ipsec(), "charon", is_on=False),
    "offload of cryptography alone": _encrypted(_ipsec("crypto"), "charon"),
    **{f"MTU {mtu}": _encrypted(None, "charon", route=_by_p1(mtu)) for mtu in (1586, 1587)},
    "a tunnel without `ipsec` that a policy of another program covers": _tunnel(ipsec=_ipsec()),
}

NOW, DAY = 1_800_000_000.0, 86400.0
RSA = bytes.fromhex("300d06092a864886f70d0101010500")
OWN = Certificate("CN=dpu1,OU=Open vSwitch certifier,C=US", ("dpu1",), NOW - DAY, NOW + 400 * DAY, RSA + b"own")
AUTHORITY = Certificate("CN=CA,O=Open vSwitch", (), NOW - DAY, NOW + 400 * DAY, RSA + b"authority")
REMOTE_OWN = Certificate("CN=dpu2,O=Open vSwitch", (), NOW - DAY, NOW + 400 * DAY, RSA + b"remote")
CONFIG = {"certificate": "/k/dpu1.pem", "private_key": "/k/dpu1.key", "ca_cert": "/k/ca.pem"}
FILES = CertificateFiles(
    NOW,
    {"/k/dpu1.pem": OWN, "/k/ca.pem": AUTHORITY},
    PrivateKey(OWN.public_key),
    True,
    frozenset({AUTHORITY.public_key}),
)


def _certified(
    options: Mapping[str, str] | None = None,
    *,
    config: Mapping[str, str] = CONFIG,
    program: str = "charon",
    own: Fact[Certificate] = OWN,
    **files: Any,
) -> DoctorCase:
    """A port whose ends know each other by certificates, by default by the name of the remote."""
    known = {"remote_name": "dpu2"} if options is None else options
    port = PortState("gnv0-c000020c", ofport=3, type="geneve", options={"remote_ip": "192.0.2.12", **known})
    bridge = BridgeState("ovsbr1", (port,))
    found = replace(FILES, certificates={**FILES.certificates, "/k/dpu1.pem": own, "/k/dpu2.pem": REMOTE_OWN}, **files)
    host = HostFacts(
        is_local=True,
        database=Database(config=config, bridges=(bridge,)),
        daemon=NOT_READ,
        devices={},
        tunnels=TunnelFacts(tuple(tunnel_ends(bridge, {})), files=found, programs=frozenset((program,))),
    )
    return DoctorCase(Evidence(host))


EC: dict[str, Any] = {"own": replace(OWN, public_key=b"ec"), "private_key": PrivateKey(b"ec")}
CERTIFICATES: dict[str, DoctorCase] = {
    "a pre-shared key too": _certified({"psk": "x"}),
    "a pre-shared key without certificates": _certified({"psk": "x"}, config={}),
    "neither": _certified({}, config={}),
    "nothing in other_config": _certified(config={}),
    "no authority": _certified(config={key: CONFIG[key] for key in ("certificate", "private_key")}),
    "the name of this host": _certified({"remote_name": "dpu1"}),
    "signed by themselves": _certified(
        {"remote_cert": "/k/dpu2.pem"}, config={**CONFIG, "ca_cert": ""}, is_signed=None
    ),
    "no certificate": _certified(own=Unknown("/k/dpu1.pem does not exist")),
    "it ended": _certified(own=replace(OWN, ends=NOW - DAY)),
    "it ends soon": _certified(own=replace(OWN, ends=NOW + 3.5 * DAY)),
    "not valid yet": _certified(own=replace(OWN, begins=NOW + DAY)),
    "no name that the monitor finds": _certified(own=replace(OWN, subject="CN=dpu1")),
    "no alternative name": _certified(own=replace(OWN, names=())),
    "signed by another": _certified(is_signed=False),
    "no key": _certified(private_key=Unknown("/k/dpu1.key does not exist")),
    "another key": _certified(private_key=PrivateKey(b"other")),
    "a key that all can read": _certified(private_key=PrivateKey(OWN.public_key, is_readable_by_all=True)),
    # strongSwan gets RSA keys alone, and takes authorities from its own directory.
    "no RSA": _certified(**EC),
    "no RSA, Libreswan": _certified(**EC, program="pluto"),
    "the authority is unknown": _certified(authorities=frozenset()),
    "the authority is unknown, Libreswan": _certified(authorities=frozenset(), program="pluto"),
}


def _remotes(remotes: Fact[tuple[RemoteAnswers, ...]], *, has_source_ports: bool | None = True) -> DoctorCase:
    tunnel = RequiredTunnel("rack7", remotes, has_source_ports)
    host = HostFacts(is_local=True, database=NOT_READ, daemon=NOT_READ, devices=NOT_READ)
    return DoctorCase(Evidence(host), Requirements("ovsbr1", ("p0",), ("pf0hpf",), entries=0, tunnels=(tunnel,)))


RIGHT = RemoteAnswers("rack7/b", "", 0x20, 0x20)
REMOTES: dict[str, DoctorCase] = {
    "another TOS": _remotes((replace(RIGHT, tos=0),)),
    "the host writes the TOS too": _remotes((replace(RIGHT, returned=7),)),
    "silent": _remotes((replace(RIGHT, problem="no path answers", tos=None),)),
    "no agent": _remotes(Unknown("no agent runs")),
    "ports of the host without a bound": _remotes((RIGHT,), has_source_ports=False),
    "ports of the host cost nothing": _remotes((RIGHT,), has_source_ports=None),
}


def _probe_port(*, is_up: bool | None = None, **changes: Any) -> DoctorCase:
    """A port that probes leave by; without changes on no bridge."""
    ports = (PortState("xoar0", **{"ofport": 3, "type": "internal", **changes}),) if changes else ()
    database = Database(bridges=(BridgeState("ovsbr1", ports=ports),))
    devices = NOT_READ if is_up is None else {"xoar0": Device("xoar0", is_up=is_up, mtu=1500)}
    host = HostFacts(is_local=True, database=database, daemon=NOT_READ, devices=devices)
    tunnels = (RequiredTunnel("rack7", (), None, "xoar0"),)
    return DoctorCase(Evidence(host), Requirements("ovsbr1", ("p0",), ("pf0hpf",), 0, tunnels=tunnels))


PROBE_PORTS: dict[str, DoctorCase] = {
    "on no bridge": _probe_port(),
    "not read": _probe_port(mtu=None),
    "down": _probe_port(is_up=False, mtu=None),
    "of another type": _probe_port(type="system"),
    "without a number": _probe_port(ofport=None, error="busy"),
}


def _key(**changes: Any) -> DoctorCase:
    """A port with IPsec whose key Open vSwitch has."""
    key = RequiredKey("gnv0", **{"psk_file": "/k/rack7.psk", "has_key": True, **changes})
    host = HostFacts(is_local=True, database=NOT_READ, daemon=NOT_READ, devices=NOT_READ)
    return DoctorCase(Evidence(host), Requirements("ovsbr1", ("p0",), ("gnv0",), entries=0, keys=(key,)))


KEYS: dict[str, DoctorCase] = {
    "not there": _key(has_key=False),
    "no certificate": _key(has_key=False, psk_file=None),
    "not read": _key(has_key=Unknown("connection refused")),
    "all can read it": _key(is_readable_by_all=True),
}

SHARED, EACH = (
    WantedPort(name, "geneve", (("local_ip", "192.168.77.1"), ("remote_ip", remote), ("key", "5001")))
    for name, remote in (("tun0", "flow"), ("tun0-c0a84d0b", "192.168.77.11"))
)
WATCHED = replace(EACH, bfd=(("enable", "true"),))
UP = {"state": "up", "remote_state": "up"}


def _made(port: WantedPort, **changes: Any) -> PortState:
    """The port of Open vSwitch, with other `options`."""
    options = dict(port.options) | changes.pop("options", {})
    return PortState(port.name, **{"ofport": 5, "type": port.type, "mark": port.digest, **changes, "options": options})


def _tunnel_ports(*ports: PortState, wanted: WantedPort = EACH, elsewhere: Collection[PortState] = ()) -> DoctorCase:
    database = Database(bridges=(BridgeState("ovsbr1", ports=ports), BridgeState("br-x", ports=tuple(elsewhere))))
    host = HostFacts(is_local=True, database=database, daemon=NOT_READ, devices=NOT_READ)
    return DoctorCase(Evidence(host), Requirements("ovsbr1", ("p0",), (), 0, tunnel_ports=(wanted,)))


TUNNEL_PORTS: dict[str, DoctorCase] = {
    "missing": _tunnel_ports(),
    "missing, and answers come by a port to all remotes": _tunnel_ports(_made(SHARED)),
    "on another bridge": _tunnel_ports(elsewhere=[_made(EACH)]),
    "another remote": _tunnel_ports(_made(EACH, options={"remote_ip": "192.168.77.99"})),
    "another remote, of another program": _tunnel_ports(_made(EACH, options={"remote_ip": "10.0.0.9"}, mark=None)),
    "another type": _tunnel_ports(_made(EACH, type="vxlan")),
    # Bug: they overrule `key`, so that all packets, or all answers, had another one, and were not seen.
    **{f"{key} is for one way": _tunnel_ports(_made(EACH, options={key: "7"})) for key in ("in_key", "out_key")},
    "fields are copied": _tunnel_ports(_made(EACH, options={"tos": "inherit", "ttl": "inherit"})),
    "without a number": _tunnel_ports(_made(EACH, ofport=None, error="busy")),
    "one is left over": _tunnel_ports(_made(EACH), _made(SHARED)),
    # Bug: it takes all answers of a shared one, and was not called wrong.
    "one is left over that takes answers": _tunnel_ports(_made(EACH), _made(SHARED), wanted=SHARED),
    "one of another program": _tunnel_ports(_made(EACH), _made(SHARED, mark=None)),
    **{
        f"BFD: {title}": _tunnel_ports(_made(WATCHED, bfd={"enable": "true"}, bfd_status=status), wanted=WATCHED)
        for title, status in {
            "up": {**UP, "forwarding": "true"},
            "no session yet": {},
            "no message comes": {"state": "down"},
            "ours do not arrive": {"state": "init"},
            "switched off": {"state": "admin_down"},
            "the remote cannot forward": {**UP, "forwarding": "false", "remote_diagnostic": "Path Down"},
            # Bug: it was called up, and no client was sent there.
            "stopped by hand": {**UP, "forwarding": "false"},
        }.items()
    },
}


@pytest.mark.parametrize(
    ("name", "usual", "cases", "checks"),
    [
        ("tunnels", _tunnel(), TUNNELS, (check_tunnel_ends,)),
        ("ipsec", _encrypted(None, "charon"), IPSEC, (check_tunnel_ends,)),
        ("certificates", _certified(), CERTIFICATES, (check_certificates,)),
        ("remotes", _remotes((RIGHT,)), REMOTES, (check_reflectors, check_source_ports)),
        ("keys", _key(), KEYS, (check_keys,)),
        ("tunnel_ports", _tunnel_ports(_made(EACH)), TUNNEL_PORTS, (check_tunnel_ports,)),
        ("probe_ports", _probe_port(is_up=True, mtu=None), PROBE_PORTS, (check_probe_ports,)),
    ],
)
def test_the_rows_that_a_fault_changes(
    name: str,
    usual: DoctorCase,
    cases: Mapping[str, DoctorCase],
    checks: tuple[Callable[..., Any], ...],
    *,
    update_golden: bool,
) -> None:
    assert_recorded(f"doctor/{name}.txt", changes_of(usual, cases, checks), update=update_golden)


def test_ends_come_from_the_options_of_ports() -> None:
    options = {"remote_ip": "192.0.2.7", "psk": "(hidden)", "dst_port": "4790"}
    ports = (
        TUNNEL,
        PortState("v0", type="vxlan", options=options),
        PortState("v1", type="vxlan", options={"remote_ip": "host.example"}),
        PortState("p0"),
    )
    found = list(tunnel_ends(BridgeState("ovsbr1", ports), {"gnv0": ("192.0.2.11", "192.0.2.12")}))
    assert [(end.port, end.remote, end.device, end.dst_port, end.is_encrypted) for end in found] == [
        ("gnv0", "192.0.2.11", "genev_sys_6081", 6081, False),
        ("gnv0", "192.0.2.12", "genev_sys_6081", 6081, False),
        ("v0", "192.0.2.7", "vxlan_sys_4790", 4790, True),
    ]


def test_a_certificate_as_openssl_prints_it() -> None:
    text = """\
-----BEGIN PUBLIC KEY-----
MA0GCSqGSIb3DQEBAQUA
-----END PUBLIC KEY-----
subject=CN=dpu1,OU=Open vSwitch certifier,O=Open vSwitch,ST=CA,C=US
notBefore=Nov 24 06:04:42 2026 GMT
notAfter=Nov 21 06:04:42 2036 GMT
X509v3 Subject Alternative Name:\x20
    DNS:dpu1, DNS:dpu1.example
"""
    found = parse_certificate(text)
    assert (found.name, found.names, found.begins) == ("dpu1", ("dpu1", "dpu1.example"), 1795500282.0)
    assert found.ends - found.begins == 3650 * DAY
    assert PrivateKey(found.public_key).is_rsa
