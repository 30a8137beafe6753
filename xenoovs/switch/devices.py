"""Devices of this host by ip(8), tc(8), ethtool(8), devlink-dev(8) and sysfs: links, neighbours, the NIC's switch."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from xenoovs.datapath.fact import Fact, Unknown
from xenoovs.datapath.host import (
    BackendFacts,
    CpuCounter,
    Device,
    Eswitch,
    Feature,
    KernelFacts,
    PortPackets,
    Subfunction,
)
from xenoovs.datapath.tunnel_facts import Neighbour
from xenoovs.errors import ParseError, SwitchError
from xenoovs.regex import regex
from xenoovs.switch.netns import HERE, Netns, Row, json_of
from xenoovs.switch.process import run, try_run
from xenoovs.switch.tape import asked, kernel_release, list_files, number_of, read_file, real_path


def _rows(document: list[Row]) -> list[Row]:
    """Return the objects of a list. Some versions of tc(8) and ip(8) print empty ones for skipped entries."""
    texts = {"ifname", "dev", "master", "phys_switch_id", "phys_port_name", "kind", "dst", "local"}
    if type(document) is not list or any(type(row[key]) is not str for row in document for key in row.keys() & texts):
        raise TypeError("no list, or a name that is no text")
    return [row for row in document if row.keys()]


# Devices, qdiscs, neighbours and addresses by `ip -j` and `tc -j` (ip-link(8), tc(8), ip-neighbour(8)).


LINKS = ("ip", "-j", "-d", "link", "show")
QDISCS = ("tc", "-j", "qdisc", "show")
NEIGHBOURS = ("ip", "-j", "neigh", "show")
LOOPBACK = ("ip", "-j", "address", "show", "dev", "lo")

_PCI = regex(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


@json_of("ip -j -d link show")
def parse_links(links: list[Row]) -> dict[str, Device]:
    """Return the devices in the answer to LINKS, by name."""
    return {row["ifname"]: _link(row) for row in _rows(links)}


def _link(row: Row) -> Device:
    parent = row.get("parentdev")
    return Device(
        name=row["ifname"],
        is_up="UP" in row["flags"],
        mtu=int(row["mtu"]),
        pci=parent if isinstance(parent, str) and _PCI.fullmatch(parent) else None,
        switch_id=row.get("phys_switch_id"),
        port_name=row.get("phys_port_name"),
        master=row.get("master"),
    )


@json_of("tc -j qdisc show")
def parse_ingress(qdiscs: list[Row]) -> frozenset[str]:
    """Return the devices in the answer to QDISCS that have a qdisc for received packets, `ingress` or `clsact`."""
    return frozenset(row["dev"] for row in _rows(qdiscs) if row["kind"] in ("ingress", "clsact") and "dev" in row)


@json_of("tc -j qdisc show")
def parse_blocks(qdiscs: list[Row]) -> dict[str, str]:
    """Return device -> number of the block with its ingress filters (tc(8), "BLOCK") in the answer to QDISCS."""
    return {row["dev"]: str(row["ingress_block"]) for row in _rows(qdiscs) if "ingress_block" in row}


@json_of("ip -j neigh show")
def parse_neighbours(entries: list[Row]) -> tuple[Neighbour, ...]:
    """Return the neighbours in the answer to NEIGHBOURS with those that have failed."""
    return tuple(
        Neighbour(
            address=row["dst"],
            mac=row["lladdr"].lower() if "lladdr" in row else None,
            device=row.get("dev", ""),
            state=str(next(iter(row.get("state", ())), "NONE")),
        )
        for row in _rows(entries)
        if "dst" in row
    )


@json_of("ip -j address show")
def parse_addresses(links: list[Row]) -> tuple[str, ...]:
    """Return the addresses in the answer to LOOPBACK, without prefix lengths."""
    return tuple(info["local"] for row in _rows(links) for info in _rows(row.get("addr_info", [])))


@json_of("ip -j -d link show")
def parse_macs(links: list[Row]) -> tuple[str, ...]:
    """Return the Ethernet addresses of devices in the answer to LINKS."""
    return tuple(row["address"].lower() for row in _rows(links) if row.get("link_type") == "ether")


# The neighbour table of the kernel: which MAC answers for which address (ip-neighbour(8)).


_TIMEOUT_S = 5.0


def read_neighbours(netns: str) -> tuple[Neighbour, ...]:
    """Return the neighbours that have answered. `netns`: name, empty for that of this process. Raises SwitchError,
    ParseError."""
    inside = ["-n", netns] if netns else []
    listed = parse_neighbours(run(["ip", *inside, "-j", "neigh", "show"], timeout_s=_TIMEOUT_S).stdout)
    return tuple(neighbour for neighbour in listed if neighbour.is_valid)


# Facts of the kernel in files: huge pages, modules, and of devices what an older ip(8) does not print.


_PAGE_SIZE = regex(r"hugepages-([0-9]{1,10})kB")


def read_kernel(modules: Iterable[str], *, root: Path = Path("/"), release: str | None = None) -> KernelFacts:
    """Return the facts about the running kernel. `root`: of its files. `release`: as in uname(2)."""
    name = release if release is not None else kernel_release()
    options = _options(root, name)
    found = _modules(tuple(modules), options or {}, root=root, release=name)
    return KernelFacts(name, found, _hugepages(root), _has_tc_chains(options, name))


def read_tc_chains() -> Fact[bool]:
    """Return whether traffic control can pass the last chain to Open vSwitch, so that chains are offloaded."""
    return _has_tc_chains(_options(Path("/"), release := kernel_release()), release)


def _has_tc_chains(options: dict[str, str] | None, release: str) -> Fact[bool]:
    if options is None:
        return Unknown(f"neither /boot/config-{release} nor /proc/config.gz shows how the kernel was built")
    # It depends on NET_CLS_ACT alone, and is no module (net/sched/Kconfig).
    return options.get("CONFIG_NET_TC_SKB_EXT") == "y"


def device_pci(device: str, *, root: Path = Path("/")) -> str | None:
    parent = real_path(root / "sys/class/net" / device / "device").name
    return parent if _PCI.fullmatch(parent) else None


def _hugepages(root: Path) -> Fact[int]:
    # Documentation/admin-guide/mm/hugetlbpage.rst
    pools = root / "sys/kernel/mm/hugepages"
    sizes = list[int]()
    for found in filter(None, map(_PAGE_SIZE.fullmatch, list_files(pools, "hugepages-*"))):
        if (pages := number_of(read_file(pools / found[0] / "nr_hugepages"))) is None:
            return Unknown(f"{pools / found[0] / 'nr_hugepages'} has no number")
        sizes.append(int(found[1]) * 1024 * pages)
    return sum(sizes) if sizes else Unknown("/sys/kernel/mm/hugepages cannot be read")


def _modules(names: tuple[str, ...], options: dict[str, str], *, root: Path, release: str) -> Fact[dict[str, bool]]:
    """Return for each module whether the kernel has it, without modules for which this cannot be read."""
    loaded = read_file(root / "proc/modules")
    library = root / "lib/modules" / release
    built_in, on_disk = read_file(library / "modules.builtin"), read_file(library / "modules.dep")
    if loaded is None and built_in is None and not options:
        return Unknown("neither /proc/modules nor modules.builtin nor the kernel's configuration can be read")
    present = {line.partition(" ")[0] for line in (loaded or "").splitlines()}
    present |= {_module_name(line) for text in (built_in, on_disk) for line in (text or "").splitlines()}
    found: dict[str, bool] = {}
    for name in names:
        option = options.get(f"CONFIG_NET_{name.upper()}")
        if name in present or option == "y":
            found[name] = True
        elif (built_in is not None and on_disk is not None) or option == "n":
            found[name] = False
    return found


_MAX_BYTES = 4 << 20
"""Debian's has 0.3 MB."""


def _options(root: Path, release: str) -> dict[str, str] | None:
    """Return how the kernel was built: option -> `y`, `m` or `n`; None if no file shows it."""
    places = (f"boot/config-{release}", f"lib/modules/{release}/config", f"lib/modules/{release}/build/.config")
    texts = (read_file(root / place) for place in places)
    text = next((text for text in texts if text is not None), None)
    if text is None and (text := _running_config(root)) is None:
        return None
    unset = re.findall(r"^# (CONFIG_\w+) is not set$", text, re.MULTILINE)
    return dict.fromkeys(unset, "n") | dict(re.findall(r"^(CONFIG_\w+)=([ym])$", text, re.MULTILINE))


def _running_config(root: Path) -> str | None:
    path = root / "proc/config.gz"

    def unpack() -> str | None:
        with suppress(OSError, EOFError), gzip.open(path) as file:
            return file.read(_MAX_BYTES).decode(errors="replace")
        return None

    return asked(("zcat", str(path)), unpack)


def _module_name(line: str) -> str:
    """Return cls_flower for `kernel/net/sched/cls_flower.ko.zst: ...`. Dashes equal underscores (modprobe(8))."""
    path = line.split(":", 1)[0]
    return path.rsplit("/", 1)[-1].split(".ko", 1)[0].replace("-", "_")


# Features of a device by ethtool(8), -k.


HW_TC_OFFLOAD = "hw-tc-offload"

_FEATURE = regex(r"^\s*(?P<name>[a-z0-9_-]+): (?P<state>on|off)(?: \[(?P<note>fixed|requested on|requested off)\])?$")


def parse_feature(text: str, name: str) -> Feature | None:
    """Return one feature in the answer of `ethtool -k DEVICE`; None if that kernel does not know it. Raises ParseError
    for text that lists no features."""
    found = [match for line in text.splitlines() if (match := _FEATURE.match(line))]
    if not found:
        raise ParseError(text=text, offset=0, expected="the features of `ethtool -k`")
    row = next((match for match in found if match["name"] == name), None)
    return None if row is None else Feature(is_on=row["state"] == "on", is_fixed=row["note"] == "fixed")


# The switch of a NIC function by devlink-dev(8): its mode and the parameters that decide about offload.


PORTS = ("devlink", "-j", "port", "show")
STEERING = "flow_steering_mode"
MULTIPORT = "esw_multiport"
"""Parameters of mlx5 (kernel documentation, networking/devlink/mlx5.rst)."""


def read_eswitch(place: Netns, pci: str) -> Eswitch:
    """Read the eSwitch of a PCI device, such as `0000:03:00.0`."""
    show = ("devlink", "-j", "dev", "eswitch", "show", f"pci/{pci}")
    return Eswitch(
        pci,
        mode=place.read(show, lambda text: parse_mode(text, pci)),
        steering=_as_text(_parameter(place, pci, STEERING)),
        multiport=_as_bool(_parameter(place, pci, MULTIPORT)),
        device_id=read_file(Path("/sys/bus/pci/devices", pci, "device")),
    )


@json_of("devlink -j dev eswitch show")
def parse_mode(document: Row, pci: str) -> Fact[str]:
    """Return the mode in the answer of `devlink -j dev eswitch show pci/PCI`."""
    return document["dev"][f"pci/{pci}"].get("mode") or Unknown("devlink reports no mode")


@json_of("devlink -j dev param show")
def parse_parameter(document: Row, pci: str, name: str) -> Fact[object]:
    """Return the runtime value in `devlink -j dev param show pci/PCI name NAME`; some kernels list none."""
    parameters = (row for row in _rows(document["param"][f"pci/{pci}"]) if row["name"] == name)
    values = (value for row in parameters for value in row.get("values", ()) if value["cmode"] == "runtime")
    return next((value["value"] for value in values), Unknown(f"devlink reports no value of {name}"))


@json_of("devlink -j port show")
def parse_subfunctions(document: Row) -> dict[str, Subfunction]:
    """Return representor -> scalable function behind it, in the answer of `devlink -j port show`."""
    return {
        port["netdev"]: Subfunction(handle, str(function.get("state")), str(function.get("opstate")))
        for handle, port in document["port"].items()
        if port.get("flavour") == "pcisf" and "netdev" in port and (function := port.get("function"))
    }


def _parameter(place: Netns, pci: str, name: str) -> Fact[object]:
    show = ("devlink", "-j", "dev", "param", "show", f"pci/{pci}", "name", name)
    return place.read(show, lambda text: parse_parameter(text, pci, name))


def _as_text(value: Fact[object]) -> Fact[str]:
    return value if isinstance(value, Unknown) else str(value)


def _as_bool(value: Fact[object]) -> Fact[bool]:
    # Printed as JSON's true by newer and as text by older versions of devlink(8).
    return value if isinstance(value, Unknown) else value in (True, "true")


# What a backend says of itself, where its network namespace is on this host.


_KEYS = ("arp_ignore", "arp_announce", "rp_filter")


def read_backend(place: Netns, device: str) -> Fact[BackendFacts]:
    """Return MACs, addresses on the loopback, and the settings of `device` in the namespace `place`."""
    macs = place.read(LINKS, parse_macs)
    loopback = place.read(LOOPBACK, parse_addresses)
    files = [f"/proc/sys/net/ipv4/conf/{scope}/{key}" for key in _KEYS for scope in ("all", device)]
    sysctls = place.read(("cat", *files), parse_sysctls)
    if isinstance(macs, Unknown) or isinstance(loopback, Unknown) or isinstance(sysctls, Unknown):
        return next(fact for fact in (macs, loopback, sysctls) if isinstance(fact, Unknown))
    return BackendFacts(macs, loopback, sysctls)


def parse_sysctls(text: str) -> dict[str, int]:
    """Parse two lines for each setting, of `all` and of the device; the larger value applies. Raises ParseError."""
    lines = text.split()
    if len(lines) != 2 * len(_KEYS) or not all(line.isascii() and line.isdigit() for line in lines):
        raise ParseError(text=text, offset=0, expected=f"{2 * len(_KEYS)} numbers, one a line")
    values = [int(line) for line in lines]
    return {key: max(values[2 * i : 2 * i + 2]) for i, key in enumerate(_KEYS)}


# Packets that ports received for the CPU, by ip-stats(8), ethtool(8) or sysfs. What `rx_packets` of a port in switchdev
# mode counts depends on the driver: mlx5 counts there what the NIC forwards itself too (en_rep.c of Linux,
# mlx5e_rep_get_stats). For the packets of the CPU alone Linux has CPU_HIT (uapi/linux/if_link.h,
# IFLA_OFFLOAD_XSTATS_CPU_HIT).


_CPU_HIT = ("ip", "-j", "stats", "show", "group", "offload", "subgroup", "cpu_hit")
"""Since iproute2 5.19."""
_SPLIT = regex(r"^\s+(?:vport_rx_packets|rx_packets_phy|rx_vport_unicast_packets): ", re.MULTILINE)
"""If `ethtool -S` has one of these names, `rx_packets` counts only packets of the CPU (mlx5)."""
_RX = regex(r"^\s+rx_packets: ([0-9]{1,20})$", re.MULTILINE)
_ENTERED = regex(r"^\s+(?:vport_rx_packets|rx_packets_phy): ([0-9]{1,20})$", re.MULTILINE)
"""Counters of all packets at a representor or at the wire (counters.rst of mlx5 in the kernel's documentation)."""
_DEVICES = Path("/sys/class/net")


def read_port_packets(ports: Iterable[str], place: Netns = HERE, *, is_brief: bool = False) -> dict[str, PortPackets]:
    """Return the packets that each port received for the CPU, without ports that have no such counter. Never raises.
    `is_brief`: read all ports whose driver has CPU_HIT by one process, without `entered`."""
    names, hits = tuple(ports), dict[str, PortPackets]()
    if names:
        with suppress(SwitchError):
            hits = parse_cpu_hits(try_run(place.argv(*_CPU_HIT)).stdout)
    found = {name: hits[name] if is_brief and name in hits else _port(name, hits.get(name), place) for name in names}
    return {name: each for name, each in found.items() if each is not None}


def parse_cpu_hits(text: str) -> dict[str, PortPackets]:
    """Parse the JSON of `ip stats show group offload subgroup cpu_hit`; empty for anything else."""
    found = dict[str, PortPackets]()
    with suppress(ArithmeticError, LookupError, TypeError, ValueError, RecursionError):
        for row in json.loads(text):
            if "stats64" in row:
                packets = int(row["stats64"]["rx"]["packets"])
                found[str(row["ifname"])] = PortPackets(packets, CpuCounter.CPU, "cpu_hit of `ip stats`")
    return found


def parse_ethtool(text: str) -> PortPackets | None:
    """Return `rx_packets` of `ethtool -S PORT` if it counts only packets of the CPU."""
    received = _RX.search(text)
    if received is None or not _SPLIT.search(text):
        return None
    return PortPackets(int(received[1]), CpuCounter.CPU, "rx_packets of `ethtool -S`", parse_entered(text))


def parse_entered(text: str) -> int | None:
    """Return the number of all packets that entered the port in `ethtool -S PORT`; None if it is not shown."""
    found = _ENTERED.search(text)
    return int(found[1]) if found else None


def _port(port: str, cpu_hits: PortPackets | None, place: Netns) -> PortPackets | None:
    with suppress(SwitchError):
        shown = try_run(place.argv("ethtool", "-S", port)).stdout
        if (found := replace(cpu_hits, entered=parse_entered(shown)) if cpu_hits else parse_ethtool(shown)) is not None:
            return found
    if cpu_hits is not None or place != HERE:
        # sysfs shows the devices of the namespace that it was mounted in (sysfs(5)).
        return cpu_hits
    packets = number_of(read_file(_DEVICES / port / "statistics" / "rx_packets"))
    # A bond adds up what its members count, each in its own way.
    if packets is None or list_files(_DEVICES / port, "bonding"):
        return None
    return PortPackets(packets, CpuCounter.ALL, "rx_packets of the device")
