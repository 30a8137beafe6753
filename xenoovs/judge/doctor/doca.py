"""Checks of OVS-DOCA: its settings against what its megaflows need, huge pages, and known notes of its releases."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from xenoovs.compile.offloadable.megaflow_topics import megaflow_topics
from xenoovs.compile.offloadable.table import Profile
from xenoovs.dataclass import dataclass
from xenoovs.datapath.fact import Unknown
from xenoovs.datapath.megaflow import Verdict, output_ports, verdict_of
from xenoovs.datapath.parse import scan_dump
from xenoovs.errors import ParseError, counted, first_names
from xenoovs.judge.doctor.check import PURGE, CheckResult, CheckState, DoctorCase, Fix, HostCheck, set_config
from xenoovs.judge.doctor.nic import uplinks_of
from xenoovs.regex import regex


@dataclass(frozen=True, slots=True)
class MegaflowUse:
    """What the megaflows of a dump use. `topics`: topic of the offload table -> number of megaflows.

    `paths`: ingress and output port of IPv6 megaflows. `gone`: datapath number of a port that no longer exists ->
    number of megaflows that name it. `held`: number of these that the NIC holds.
    """

    topics: Mapping[str, int]
    paths: frozenset[tuple[str, str]]
    gone: Mapping[str, int]
    held: int = 0

    def of(self, *topics: str) -> int:
        """Return the number of megaflows with the most frequent of these topics."""
        return max(self.topics.get(topic, 0) for topic in topics)


def use_of(case: DoctorCase) -> MegaflowUse:
    """Return what the megaflows of the dump use; empty if none was read."""
    names = (port.name for bridge in case.database.bridges for port in bridge.ports)
    return _use(tuple(case.evidence.lines), frozenset(names))


_IPV6 = "0x86dd"
_RELEVANT = regex(
    r"\b(?:ct|hash|meter)\(|dp_hash\(0x|ct_state\((?!0/0)|in_port\([0-9]+\)| actions:(?:.*,)?[0-9]+(?:,|$)"
    r"|eth_type\(0x86dd\)",
    re.ASCII,
)
"""Finds the lines that matter here: parsing a dump of 200,000 megaflows takes half a minute."""


@lru_cache(maxsize=1)
def _use(lines: tuple[str, ...], names: frozenset[str]) -> MegaflowUse:
    topics, paths, gone, held = dict[str, int](), set[tuple[str, str]](), dict[str, int](), 0
    for megaflow in scan_dump(line for line in lines if _RELEVANT.search(line)):
        if isinstance(megaflow, ParseError):
            continue
        for topic in {use.topic for use in megaflow_topics(megaflow)}:
            topics[topic] = topics.get(topic, 0) + 1
        ports = (megaflow.in_port or "", *output_ports(megaflow))
        if megaflow.key("eth_type") == _IPV6:
            paths.update((ports[0], output) for output in ports[1:])
        # Open vSwitch prints the name of every port that it has (odp_portno_name_format() of lib/odp-util.c).
        without_name = {port for port in ports if port.isascii() and port.isdigit() and port not in names}
        held += bool(without_name) and verdict_of(megaflow) is Verdict.HW
        for port in without_name:
            gone[port] = gone.get(port, 0) + 1
    return MegaflowUse(topics, frozenset(paths), gone, held)


def check_gone_ports(case: DoctorCase) -> Iterator[CheckResult]:
    """Report megaflows (the NIC may hold them until max-idle, for minutes) and flows of ports that no longer exist."""
    check = HostCheck("ports that are gone", "they take entries of the NIC, and a new port may get the number")
    use = use_of(case)
    if use.gone:
        ports = first_names(tuple(sorted(use.gone)), most=3)
        held = f" ({use.held} in the NIC)" if use.held else ""
        seen = f"{counted(sum(use.gone.values()), 'megaflow')}{held} name port {ports} of the datapath, which is gone"
        yield check.wrong(seen, fix=Fix((PURGE,), is_safe=True))
    foreign, bridge = case.wanted.foreign, case.wanted.bridge
    if not isinstance(foreign, Unknown) and foreign.gone:
        show = Fix((("ovs-ofctl", "--names", "dump-flows", bridge),))
        names = first_names(foreign.gone, most=3)
        yield check.wrong(f"foreign flows name port {names}, which the bridge lacks", bridge, show)


# Connections or hashes: OVS-DOCA offloads the one or the other (NVIDIA DOCA documentation, OVS-DOCA).

_CT_SIZE = "hw-offload-ct-size"
DEFAULT_CT_SIZE = "250000"
_TRACKING, _HASHING = ("ct", "ct-action", "ct-nat"), ("hash", "dp-hash")


def _is_doca(case: DoctorCase) -> bool:
    return case.database.has_doca and any(b.datapath_type != "system" for b in case.bridges)


def check_ct_size(case: DoctorCase) -> Iterator[CheckResult]:
    """Check hw-offload-ct-size against megaflows that track connections or hash packets."""
    check = HostCheck(_CT_SIZE, "with 0 OVS-DOCA offloads hashes of select groups, with another size connections")
    if not _is_doca(case):
        return
    value, use = case.database.config.get(_CT_SIZE, f"{DEFAULT_CT_SIZE} by default"), use_of(case)
    is_off = Profile.DOCA.of_ct_size(case.database.config) is Profile.DOCA_NO_CT
    tracking, hashing = use.of(*_TRACKING), use.of(*_HASHING)
    lost, other = (tracking, hashing) if is_off else (hashing, tracking)
    if not lost:
        yield check.ok(f"{value}; {counted(other, 'megaflow')} {'with a hash' if is_off else 'with connections'}")
        return
    what, size = ("connections", DEFAULT_CT_SIZE) if is_off else ("a hash for a select group", "0")
    more = f"; it is right for {counted(other, 'other')}, so one of both stays in software" if other else ""
    fix = None if other else Fix((set_config(_CT_SIZE, size),), needs_restart=True)
    yield check.wrong(f"{value}, but {counted(lost, 'megaflow')} with {what}{more}", fix=fix)


BLUEFIELD_3, BLUEFIELD_4 = "0xa2dc", "0xa2df"
"""Device ids of PCI (pci.ids, vendor 15b3)."""

_PAGE_BYTES = 2 << 20
_PAGES, _PAGES_OF_BLUEFIELD_4 = 512, 2048
"""Defaults of BlueField images for OVS-DOCA (mlnx-tools, tsbin/mlnx_bf_configure, OVS_DEFAULT_HUGEPAGE_NUM)."""


def check_hugepages(case: DoctorCase) -> Iterator[CheckResult]:
    """Check the reserved huge pages, if DPDK or DOCA is in use."""
    check = HostCheck("huge pages", "DPDK and DOCA keep packets and rules in huge pages and do not start without them")
    database = case.database
    if not _uses_hugepages(case):
        return
    kernel = case.host.kernel
    has = kernel if isinstance(kernel, Unknown) else kernel.hugepages_bytes
    if isinstance(has, Unknown):
        yield check.unknown(has.reason)
        return
    is_large = any(each.device_id == BLUEFIELD_4 for each in case.host.eswitches)
    pages = (_PAGES_OF_BLUEFIELD_4 if is_large else _PAGES) if database.has_doca else 1
    lack = f", images of BlueField{'-4' if is_large else ''} have {pages * _PAGE_BYTES >> 20} for OVS-DOCA"
    is_enough = has >= (pages * _PAGE_BYTES if database.has_doca else 1)
    fix = Fix((("sysctl", "-w", f"vm.nr_hugepages={max(pages, _PAGES)}"),))
    yield check.judge(
        is_enough, f"{has >> 20} MiB reserved" + ("" if is_enough or not database.has_doca else lack), fix=fix
    )


def check_doca_init(case: DoctorCase) -> Iterator[CheckResult]:
    """Check doca-init, if a bridge of OVS-DOCA has the userspace datapath."""
    check = HostCheck("doca-init", "without it bridges of the userspace datapath do not use DOCA")
    if not _is_doca(case):
        return
    is_set = case.database.config.get("doca-init") == "true"
    yield check.judge(
        is_set, "true" if is_set else "not set", fix=Fix((set_config("doca-init", "true"),), needs_restart=True)
    )


def _uses_hugepages(case: DoctorCase) -> bool:
    types = {interface.type for bridge in case.bridges for interface in bridge.ports}
    settings = map(case.database.config.get, ("doca-init", "dpdk-init"))
    return bool(types & {"dpdk", "doca"}) or "true" in settings


@dataclass(frozen=True, slots=True)
class ReleaseNote:
    """A known issue of the DOCA releases `first` to `last`. `shape`: the use that it affects, a key of SHAPES."""

    note: str
    first: str
    last: str | None
    shape: str
    text: str
    source: str

    def covers(self, release: tuple[int, int]) -> bool:
        return _release(self.first) <= release and (self.last is None or release <= _release(self.last))


def _release(text: str | None) -> tuple[int, int]:
    """Return major and minor of a release such as `2.9.1`; (0, 0) for other texts."""
    found = re.match(r"([0-9]{1,3})\.([0-9]{1,3})", text or "", re.ASCII)
    return (int(found[1]), int(found[2])) if found else (0, 0)


NOTES = tuple(ReleaseNote(**row) for row in json.loads(Path(__file__).with_name("notes.json").read_text("utf-8")))
"""Notes of releases that concern Open vSwitch, as NVIDIA publishes them."""


def _crosses_uplinks(case: DoctorCase, use: MegaflowUse) -> bool:
    ports = {(a, b) for a in case.wanted.ingress for b in case.wanted.egress}
    uplinks = {device.name for device in uplinks_of(case, case.ports)}
    return any(a != b and {a, b} <= uplinks for a, b in ports | use.paths)


SHAPES: Mapping[str, Callable[[DoctorCase, MegaflowUse], bool]] = {
    "between-uplinks": _crosses_uplinks,
    "meter-and-sflow": lambda case, use: use.of("meter") > 0 and any("sflow" in b.exporters for b in case.bridges),
    "ct-turned-off": lambda case, use: use.of(*_TRACKING) > 0 and case.database.config.get(_CT_SIZE) == "0",
    "bluefield-3": lambda case, _use: any(each.device_id == BLUEFIELD_3 for each in case.host.eswitches),
    "ct-and-hash": lambda _case, use: use.of(*_TRACKING) > 0 and use.of(*_HASHING) > 0,
}


def check_notes(case: DoctorCase, *, notes: Iterable[ReleaseNote] = NOTES) -> Iterator[CheckResult]:
    """Report the known issues of this release that affect this host; those of all releases if it is unknown."""
    check = HostCheck("release notes", "a known issue of the release may crash Open vSwitch or keep flows in software")
    if not _is_doca(case):
        return
    version, use, met = case.database.doca_version, use_of(case), False
    for note in notes:
        is_known = _release(version) != (0, 0)
        if SHAPES[note.shape](case, use) and (not is_known or note.covers(_release(version))):
            met, until = True, f" to {note.last}" if note.last else ""
            seen = f"{note.note}, DOCA {note.first}{until or ' and later'}: {note.text} ({note.source})"
            state = CheckState.WRONG if is_known else CheckState.UNKNOWN
            yield check.row(state, seen if is_known else f"{seen}; the release is unknown")
    if not met:
        yield check.ok(f"none of {counted(len(NOTES), 'note')} concerns DOCA {version or '?'} as it is used")
