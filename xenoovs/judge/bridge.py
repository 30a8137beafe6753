"""Chains of megaflows of any bridge by port, verdict and reason, without a config. It works for OVN's br-int too.

A chain begins with a megaflow of packets from a port, and has the megaflows to which it recirculates them. Its packets
are those of its first megaflow. A megaflow that does not recirculate is a chain of one.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from functools import lru_cache

from xenoovs.compile.offloadable.check import Offloadability, check_megaflow
from xenoovs.compile.offloadable.openflow_topics import OpenFlowGroup
from xenoovs.compile.offloadable.table import Profile, TopicKind, version_or_default
from xenoovs.dataclass import dataclass, field, replace
from xenoovs.datapath.megaflow import Megaflow, Verdict, attributes_of, output_ports
from xenoovs.datapath.ovn import LogicalFlow
from xenoovs.errors import ParseError, counted
from xenoovs.evidence.evidence import Evidence
from xenoovs.judge.chains import ChainLink, is_hop, judge_chains, link_chains
from xenoovs.judge.expected import OutsideKind, outside_kind_of
from xenoovs.judge.findings import Conclusion, Counts, DumpFindings, MegaflowState, conclude
from xenoovs.judge.links import MegaflowLink
from xenoovs.judge.offload import MegaflowJudge, reason_of
from xenoovs.judge.why.case import DOCA_LAYER, MINIFLOW, OFFLOAD_INFO
from xenoovs.judge.why.flows import explains
from xenoovs.regex import ASCII, MULTILINE, regex

_MAX_ROWS = 5_000
_OTHERS = "(others)"
"""Stands for the ports of rows beyond _MAX_ROWS."""


@dataclass(slots=True)
class BridgeRow(Counts):
    """Chains from one port that share verdict and reason.

    Attributes:
        verdict: the worst one of the judged megaflows of a chain.
        reason: why the first megaflow of a chain that is not in hardware is not; empty if unknown.
        is_judged: False for packets that belong in software (ARP, drops, first packets of connections ...).
        megaflows: number of megaflows; one that several chains share counts once.
        packets: packets of the first megaflow of each chain.
        hw_packets: packets that the NIC forwarded in all megaflows of a chain.
    """

    in_port: str
    verdict: Verdict
    reason: str
    is_judged: bool
    chains: int = 0
    exits: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class GroupUse:
    """The state of a group. `in_use`: buckets, from 0 as in ovs-ofctl. `dead`: watched ports and groups that are not
    live. `megaflows`: number of traced ones that pass it. `stale`: how many of these leave by a dead port."""

    number: int
    kind: str
    buckets: int
    in_use: tuple[int, ...]
    dead: tuple[str, ...]
    megaflows: int = 0
    stale: int = 0

    @property
    def is_bad(self) -> bool:
        return not self.in_use or bool(self.stale)

    def __str__(self) -> str:
        used = f"bucket {', '.join(map(str, self.in_use))} of {counted(self.buckets, 'bucket')} in use"
        used = used if self.in_use else "no live bucket, packets are dropped"
        why = f", as {' and '.join(self.dead)} {'is' if len(self.dead) == 1 else 'are'} dead" if self.dead else ""
        passed = f"; {counted(self.megaflows, 'megaflow')}, {self.stale or 'none'} of them by a dead port"
        return f"group {self.number} ({self.kind}): {used}{why}{passed if self.megaflows else ''}"


@dataclass(frozen=True, slots=True)
class BridgeFindings(DumpFindings):
    """Findings about a bridge. `rows`: sorted by port, then from best verdict to worst, then by reason.
    `recirculating`: number of megaflows that are part of longer chains. `has_tc_chains`: whether the kernel can offload
    such chains; None if unknown. `links`: every megaflow, if the check lists them. `logical_flows`: cookie -> logical
    flow of OVN, of the flows behind the links. `groups`: those of the bridge; empty for a recorded dump."""

    rows: tuple[BridgeRow, ...]
    recirculating: int = 0
    has_tc_chains: bool | None = None
    logical_ports: Mapping[str, str] = field(default_factory=dict, hash=False)
    links: tuple[MegaflowLink, ...] = ()
    logical_flows: Mapping[int, LogicalFlow] = field(default_factory=dict, hash=False)
    groups: tuple[GroupUse, ...] = ()

    def links_of(self, verdicts: Container[Verdict]) -> tuple[MegaflowLink, ...]:
        """Return the links of chains with one of these verdicts; without verdicts, all."""
        return tuple(link for link in self.links if not verdicts or link.chain in verdicts)

    @property
    def counted(self) -> tuple[BridgeRow, ...]:
        """Judged chains."""
        return tuple(row for row in self.rows if row.is_judged)

    def conclusion_for(self, required: float | None) -> Conclusion:
        """Return whether all judged megaflows are in hardware, or the share `required` (0-1) of their packets."""
        if self.cleartext or any(group.is_bad for group in self.groups):
            return Conclusion.NOT_ALL_IN_HARDWARE
        judged = self.counted
        is_software = any(row.verdict.is_software for row in judged)
        # A dump without `-m` shows the slow path too.
        if self.is_unparsed or (self.unjudged and not (is_software and required is None)):
            return Conclusion.CHECK_FAILED
        if self.is_contradicted:
            return Conclusion.NOT_ALL_IN_HARDWARE
        share = self.judged_share
        # Without a packet to prove it, offloaded:yes is no success.
        is_open = self.is_filtered or share is None
        if not judged or (is_open and not is_software) or (share is None and required is not None):
            return Conclusion.NOTHING_SEEN
        if required is None or share is None:
            is_unconfirmed = not is_software and any(row.verdict is Verdict.UNCONFIRMED for row in judged)
            return Conclusion.NOTHING_SEEN if is_unconfirmed else conclude(not is_software)
        is_reached = share >= required
        return Conclusion.NOTHING_SEEN if is_reached and (is_open or self.uncounted) else conclude(is_reached)


def check_bridge(
    megaflows: Iterable[Megaflow | ParseError], evidence: Evidence | None = None, *, is_listing: bool = False
) -> BridgeFindings:
    """Return the findings about a dump. `megaflows`: as `datapath.parse.scan_dump` reads them. Never raises."""
    evidence = evidence or Evidence()
    counter, judge = _RowCounter(evidence, is_listing=is_listing), MegaflowJudge(evidence)
    for megaflow in megaflows:
        if isinstance(megaflow, ParseError):
            judge.note(megaflow)
        elif (
            state := judge.count(megaflow, is_here=evidence.ports is None or evidence.ports.has(megaflow))
        ) is not None:
            counter.add(state)
    hops, is_judged = judge.hops()
    counter.add_hops(hops, is_judged)
    return BridgeFindings(
        counter.rows(),
        recirculating=len(hops),
        has_tc_chains=evidence.has_tc_chains,
        links=tuple(counter.links),
        **judge.found(),
    )


_Key = tuple[str, Verdict, str, bool]
"""Port, verdict, reason, and whether it is judged."""


class _RowCounter:
    """Sums up chains by port, verdict and reason. Lists their links if `is_listing`."""

    def __init__(self, evidence: Evidence, *, is_listing: bool) -> None:
        self.internal_ports = evidence.internal_ports
        self.links, self._is_listing = list[MegaflowLink](), is_listing
        self._reasons = ReasonFinder(evidence)
        self._rows: dict[_Key, BridgeRow] = {}

    def add(self, state: MegaflowState) -> None:
        """Count a megaflow that is a chain of one."""
        kind = outside_kind_of(state.megaflow, self.internal_ports)
        is_judged = state.verdict is Verdict.HW or kind.is_judged
        reason = self._reason(state) if is_judged else kind.value
        self._count(self._key(state, reason, is_judged=is_judged), state, output_ports(state.megaflow))
        if self._is_listing:
            self.links.append(MegaflowLink(state, state.verdict, is_judged, reason))

    def add_hops(self, hops: Sequence[MegaflowState], is_judged: Sequence[bool]) -> None:
        """Count the chains of megaflows that recirculate packets."""
        links = link_chains(hops, is_judged)
        judged = judge_chains(hops, [link.is_judged for link in links])
        keys = dict[int, _Key]()
        for number in sorted(range(len(hops)), key=lambda each: links[each].root != each):
            state, link, in_chain = hops[number], links[number], judged[number]
            if not link.is_judged:
                # Links behind it that are not judged have the same packets: only the first counts.
                key = self._key(state, self._software_kind(state.megaflow), is_judged=False)
                self._count(key, state if link.is_after_judged else None, link.exits)
            elif link.root == number:
                keys[number] = key = self._key(in_chain, self._chain_reason(hops, link), is_judged=True)
                self._count(key, in_chain, link.exits)
            else:
                self._count(keys[link.root], None, link.exits)
            if self._is_listing:
                reason = self._reason(state) if link.is_judged else self._software_kind(state.megaflow)
                self.links.append(MegaflowLink(state, in_chain.verdict, link.is_judged, reason))

    def _software_kind(self, megaflow: Megaflow) -> str:
        """Return why a link is not judged. If its own kind is judged, it follows the first packet of a connection."""
        kind = outside_kind_of(megaflow, self.internal_ports)
        return OutsideKind.NEW_CONNECTION.value if kind.is_judged else kind.value

    def _chain_reason(self, hops: Sequence[MegaflowState], link: ChainLink) -> str:
        if link.failing is None:
            return ""
        reason = self._reason(hops[link.failing])
        return f"link {link.depth + 1}: {reason or 'no reason shown'}" if link.depth else reason

    def _reason(self, state: MegaflowState) -> str:
        if state.verdict is Verdict.HW:
            return ""
        return state.reason or self._reasons.find(state.megaflow, state.verdict)

    def _key(self, state: MegaflowState, reason: str, *, is_judged: bool) -> _Key:
        key = state.megaflow.in_port or "", state.verdict, reason, is_judged
        return key if key in self._rows or len(self._rows) < _MAX_ROWS else (_OTHERS, state.verdict, "", is_judged)

    def _count(self, key: _Key, state: MegaflowState | None, exits: Iterable[str]) -> None:
        """Count a megaflow. `state`: of the chain that begins with it; None if it is a later link of a chain."""
        row = self._rows.setdefault(key, BridgeRow(*key))
        row.exits.update(exits)
        if state is None:
            row.megaflows += 1
        else:
            row.chains += 1
            row.add(state)

    def rows(self) -> tuple[BridgeRow, ...]:
        """Return the rows in the order of a report."""
        ordered = sorted(self._rows, key=lambda key: (key[0], key[1].badness, not key[3], key[2]))
        return tuple(self._rows[key] for key in ordered)


# Short reasons why a megaflow is not in hardware.


WITHOUT_CHAINS = "recirculation: the kernel lacks CONFIG_NET_TC_SKB_EXT"
_USERSPACE = "userspace datapath: a NIC forwards only for ports of type dpdk or doca"

_MAX_SHAPES = 4096
_OF_DOCA = (f", dp:{DOCA_LAYER},", f", {OFFLOAD_INFO}:")
_EXPLAINED = (Verdict.SW, Verdict.TC_SW, Verdict.PARTIAL)


class ReasonFinder:
    """Finds why megaflows are not in hardware. Megaflows of one shape share a cached reason."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence, self._version = evidence, version_or_default(evidence.version or "")
        self._known = dict[object, str]()
        # An iterator of lines cannot be searched for OVS-DOCA in advance.
        self._userspace: tuple[Profile, ...] = (Profile.DPDK, Profile.DOCA)
        if isinstance(evidence.lines, tuple) and evidence.lines:
            is_doca = any(mark in line for line in evidence.lines for mark in _OF_DOCA)
            self._userspace = (Profile.DOCA,) if is_doca else (Profile.DPDK,)

    def find(self, megaflow: Megaflow, verdict: Verdict) -> str:
        """Return the first reason of: the dump, slow path, kind of datapath, kernel, offload table; empty if none."""
        reason = reason_of(megaflow)
        if reason:
            return reason
        is_userspace = any(name == MINIFLOW for name, _ in megaflow.extra)
        if verdict is Verdict.SW and is_userspace and self._userspace != (Profile.DOCA,):
            return _USERSPACE
        if verdict not in _EXPLAINED:
            return ""
        if self._evidence.has_tc_chains is False and is_hop(megaflow):
            return WITHOUT_CHAINS
        shape = _shape_of(megaflow), verdict
        if shape not in self._known:
            # Limits the time for a dump whose megaflows all differ.
            if len(self._known) >= _MAX_SHAPES:
                return ""
            self._known[shape] = self._by_table(megaflow, verdict)
        return self._known[shape]

    def _by_table(self, megaflow: Megaflow, verdict: Verdict) -> str:
        ports = {port for port in (megaflow.in_port or "", *megaflow.actions) if port in self._evidence.internal_ports}
        is_userspace = any(name == MINIFLOW for name, _ in megaflow.extra)
        profiles = self._userspace if is_userspace or verdict is Verdict.PARTIAL else (Profile.TC,)
        each = [check_megaflow(megaflow, one, self._version, internal_ports=ports) for one in profiles]
        found = tuple(one for one in each[0] if explains(one, verdict))
        others = [{one.topic.name for one in rows if one.offload.is_software} for rows in each]
        certain = next((one for one in found if all(one.topic.name in names for names in others)), None)
        if certain is not None:
            return _words(certain)
        # The actions of a megaflow are stronger evidence than its match.
        likely = sorted(found, key=lambda one: one.topic.kind is TopicKind.MATCH)
        return f"perhaps {_words(likely[0])}" if likely else ""


def _words(found: Offloadability) -> str:
    what = found.topic.what
    return what[0].lower() + what[1:] if what[1:2].islower() else what


def _shape_of(megaflow: Megaflow) -> object:
    """Return the parts of a megaflow that decide its rows of the offload table, without values that vary."""
    keys = tuple(
        (key.name, key.inner if key.name in ("ct_state", "eth_type") else _shown(key.inner)) for key in megaflow.keys
    )
    actions = tuple(action.partition("=")[0].partition("(0x")[0] for action in megaflow.actions)
    return keys, actions


@lru_cache(maxsize=8192)
def _shown(inner: str) -> tuple[tuple[str, str], ...]:
    """Return the names of attributes, with masks, and with values that are flags or `later`."""
    return tuple(
        (name, value.rpartition("/")[2] if "/" in value else "" if value[:1].isalnum() and value != "later" else value)
        for name, value in attributes_of(inner).items()
    )


# Groups of any program: which buckets are in use, and whether megaflows follow them.


_PASSED = regex(r"^ *group:([0-9]{1,10})$", MULTILINE | ASCII)
"""A group action as ofproto/trace prints it (xlate_group_action() of ofproto/ofproto-dpif-xlate.c)."""
_MAX_DEPTH = 128
"""Depth of groups that watch groups (MAX_LIVENESS_RECURSION there)."""


def group_uses(
    groups: Mapping[int, OpenFlowGroup], live: Collection[str], traced: Iterable[tuple[Megaflow, str]]
) -> tuple[GroupUse, ...]:
    """Return the state of each group of a bridge, by number. `live`: its live ports. `traced`: megaflows, each with
    what ofproto/trace prints for it."""
    uses = {number: _use(number, groups, live) for number in sorted(groups)}
    for megaflow, text in traced:
        left = {f"port {name}" for name in output_ports(megaflow)}
        for number in {int(found) for found in _PASSED.findall(text)} & uses.keys():
            use = uses[number]
            stale = use.stale + (not left.isdisjoint(use.dead))
            uses[number] = replace(use, megaflows=use.megaflows + 1, stale=stale)
    return tuple(uses.values())


def _use(number: int, groups: Mapping[int, OpenFlowGroup], live: Collection[str], depth: int = 0) -> GroupUse:
    group, alive, dead = groups[number], list[int](), list[str]()
    for index, (port, other) in enumerate(group.watched):
        is_followed = bool(other) and int(other) in groups and depth < _MAX_DEPTH
        is_live = port in live or (is_followed and _use(int(other), groups, live, depth + 1).in_use)
        # As bucket_is_alive() there; for types all and indirect group_is_alive() checks no bucket.
        if is_live or not (port or other) or group.kind in ("all", "indirect"):
            alive.append(index)
        else:
            dead += [f"port {port}"] * bool(port) + [f"group {other}"] * bool(other)
    chosen = alive[:1] if group.kind in ("ff", "fast_failover") else alive
    return GroupUse(number, group.kind, len(group.watched), tuple(chosen), tuple(dict.fromkeys(dead)))
