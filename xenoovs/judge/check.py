"""The offload check: every megaflow of a dump is judged against what a program expects.

Shares are of packets, not of bytes: software traffic control counts each frame without 14 bytes of its header.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

from xenoovs.compile.encoding import key_field
from xenoovs.dataclass import dataclass, field, replace
from xenoovs.datapath.ipsec import EncapsulationUse
from xenoovs.datapath.megaflow import (
    MaskedValue,
    Megaflow,
    Offloaded,
    Verdict,
    match_of,
    output_ports,
    parse_value,
    verdict_of,
)
from xenoovs.datapath.outer import Encapsulation, encapsulations
from xenoovs.datapath.parse import read_line
from xenoovs.datapath.tc import TcCounters, TcFilter
from xenoovs.errors import ParseError
from xenoovs.evidence.evidence import Evidence
from xenoovs.evidence.samples import NO_GROWTH, DatapathSample, Growth, filter_of, id_of, sampled
from xenoovs.judge.chains import Hop, is_hop, judge_chains, recirculations
from xenoovs.judge.expected import (
    ANY,
    AnswerFinder,
    ExpectedBlock,
    ExpectedService,
    Fields,
    OutsideKind,
    ServiceEntry,
    delivers,
    index_blocks,
    is_slow_path,
    is_undetermined,
    match_of_fields,
    outside_kind_of,
)
from xenoovs.judge.findings import (
    AnomalousMegaflow,
    Anomaly,
    BlockOffload,
    ListedMegaflow,
    OffloadFindings,
    OutsideTraffic,
    Tally,
    summed,
    unanswered,
)
from xenoovs.judge.foreign import OverrideCounter, OwnMask, UnwildcardCounter, UnwildcardKey
from xenoovs.model.address import Family
from xenoovs.model.balancer import KeyField
from xenoovs.openflow.text import render_match

_MAX_UNPARSED = 100


@dataclass(slots=True)
class UnparsedLines:
    """Lines of a dump that could not be read: the first ones, and the number of further ones (`more`)."""

    listed: list[ParseError] = field(default_factory=list)
    more: int = 0

    def add(self, error: ParseError) -> None:
        if len(self.listed) < _MAX_UNPARSED:
            self.listed.append(error)
        else:
            self.more += 1


@dataclass(frozen=True, slots=True)
class MegaflowState:
    """Where one megaflow runs and what it counted.

    Attributes:
        hw_packets: packets that the NIC forwarded, by the counters of the tc filter if it has any.
        growth: since the sample before; of a megaflow that is new since then, all its packets. None: one sample.
        is_counted: False if the tc filter has no counter of hardware; `hw_packets` is then by the dump.
        reason: why it is not in hardware, where the megaflow itself does not show it.
        is_new: whether its tc filter was installed a moment ago, so that packets may not be counted yet.
    """

    verdict: Verdict
    packets: int
    bytes: int
    hw_packets: int
    hw_bytes: int
    anomalies: tuple[Anomaly, ...] = ()
    growth: Growth | None = None
    is_counted: bool = True
    reason: str = ""
    is_new: bool = False

    def in_chain(self, hop: Hop) -> MegaflowState:
        """Return the state as its chains of recirculation make it."""
        reason = "" if hop.verdict is self.verdict else f"recirculated: another hop is {hop.verdict.value}"
        hw_packets, hw_bytes = hop.hw_packets, hop.hw_bytes
        return replace(
            self, verdict=hop.verdict, hw_packets=hw_packets, hw_bytes=hw_bytes, growth=hop.growth, reason=reason
        )


def state_of(
    megaflow: Megaflow,
    filters: Mapping[str, TcFilter] | None,
    before: DatapathSample | None = None,
    contradicted: Container[str] = (),
) -> MegaflowState | None:
    """Return the state of a megaflow by the dump, its tc filter, and their growth; None: the dump is without `-m`.

    `filters`: by cookie; None: not read. `contradicted`: ports that gave the CPU more packets than megaflows explain.
    """
    state = _state_by_filter(megaflow, filters, before)
    if state is None or before is None:
        return state
    found = filter_of(megaflow, filters)
    now = sampled(megaflow, found.counters if found else None)
    growth = now.since(before.megaflows.get(id_of(megaflow))) or Growth(now.packets, now.hw_packets)
    verdict = state.verdict
    if verdict in (Verdict.HW, Verdict.TC_SW) and growth.hw_packets and megaflow.in_port in contradicted:
        verdict = Verdict.CONTRADICTED
    return replace(state, verdict=verdict, growth=state.growth or growth)


def _state_by_filter(
    megaflow: Megaflow, filters: Mapping[str, TcFilter] | None, before: DatapathSample | None
) -> MegaflowState | None:
    verdict = verdict_of(megaflow)
    if verdict is None:
        return None
    if filters is None or megaflow.layer != "tc":
        return _state_by_dump(megaflow, verdict)
    found = filter_of(megaflow, filters)
    if found is None:
        return _state_by_dump(megaflow, verdict, Anomaly.WITHOUT_FILTER)
    if verdict is Verdict.HW and found.in_hw is False:
        return _state_by_dump(megaflow, Verdict.TC_SW, Anomaly.NOT_IN_HW)
    counters = found.counters
    if verdict is Verdict.HW and (found.in_hw is None or (counters is not None and counters.hw_packets is None)):
        return replace(_state_by_dump(megaflow, verdict), verdict=Verdict.UNCONFIRMED, is_counted=False)
    if counters is None:
        return _state_by_dump(megaflow, verdict)
    stray = None
    if verdict is Verdict.HW:
        earlier = None if before is None else before.megaflows.get(id_of(megaflow))
        growth = sampled(megaflow, counters).since(earlier)
        verdict = _verdict_by_counters(counters, growth, active_s=found.active_s)
        if verdict is Verdict.IDLE_HW and growth is not None and _is_stray(growth, counters, found.age_s):
            verdict, stray = Verdict.UNCONFIRMED, NO_GROWTH
    is_new = found.age_s is not None and found.age_s < _SETTLED_S
    hardware = counters.hw_packets or 0, counters.hw_bytes
    return MegaflowState(verdict, counters.packets, counters.bytes, *hardware, growth=stray, is_new=is_new)


_SETTLED_S = 3
"""Packets that entered before the NIC had the rule are in software; none of them comes so long after it. More than the
2 s by which hardware counters may lag (offloaded-stats-delay), in whole seconds as tc prints them."""


_STRAY = 0.01
"""Share of the packets that may meet a rule in software although the NIC uses it."""


def _verdict_by_counters(counters: TcCounters, growth: Growth | None, *, active_s: int | None) -> Verdict:
    """Return whether the NIC forwards by a rule that it holds: growth decides, then the counters since its start."""
    if growth is not None and growth.packets:
        if not growth.hw_packets:
            return Verdict.IDLE_HW
        return Verdict.TC_SW if growth.sw_packets > _STRAY * growth.packets else Verdict.HW
    if counters.packets and not counters.hw_packets:
        return Verdict.IDLE_HW if active_s is not None and active_s >= _SETTLED_S else Verdict.UNCONFIRMED
    return Verdict.UNCONFIRMED if counters.sw_packets > (counters.hw_packets or 0) else Verdict.HW


def _is_stray(growth: Growth, counters: TcCounters, age_s: int | None) -> bool:
    """Return whether under a tenth of a second's usual packets came: the NIC may refresh its counters more rarely."""
    return age_s is not None and growth.packets * 10 * max(age_s, 1) < (counters.hw_packets or 0)


def _state_by_dump(megaflow: Megaflow, verdict: Verdict, *anomalies: Anomaly) -> MegaflowState:
    packets, size = megaflow.packets, megaflow.bytes
    if verdict is Verdict.HW:
        return MegaflowState(verdict, packets, size, packets, size, anomalies)
    return MegaflowState(verdict, packets, size, 0, 0, anomalies)


@dataclass(slots=True)
class ProofCounter:
    """Finds the groups of megaflows that the NIC holds for some seconds, and of which no packet was counted.

    Rules of several blocks that a NIC does not distinguish look like this: the first one takes the packets of all.
    """

    packets: Counter[Hashable] = field(default_factory=Counter)
    settled: Counter[Hashable] = field(default_factory=Counter)

    def add(self, key: Hashable, verdict: Verdict, packets: int, *, is_new: bool = False) -> None:
        self.packets[key] += packets
        self.settled[key] += verdict is Verdict.HW and not is_new

    def unproven(self) -> int:
        """Return the number of megaflows in these groups."""
        return sum(number for key, number in self.settled.items() if not self.packets[key])


def hop_of(megaflow: Megaflow, state: MegaflowState, *, is_judged: bool) -> Hop:
    place = megaflow.in_port or "", megaflow.recirc_id, recirculations(megaflow)
    counters = state.packets, state.hw_packets, state.hw_bytes
    return Hop(*place, state.verdict, *counters, is_judged, state.growth, frozenset(output_ports(megaflow)))


_FAR_FEWER = 10
"""Times. Megaflows behind a hop are narrower, so some of them may have expired and come back with counters at 0."""
_ENOUGH_GROWTH = 20


def judge_continuations(
    found: Sequence[tuple[Megaflow, MegaflowState]], *, is_partial: bool = False
) -> list[MegaflowState]:
    """Return the states of hops; one whose packets no megaflow takes is not in hardware: each packet is an upcall.
    `is_partial`: the dump may lack megaflows that are not offloaded."""
    if len(found) >= MAX_HOPS:
        return [state for _, state in found]
    behind = defaultdict[tuple[str | None, int], list[MegaflowState]](list)
    for megaflow, state in found:
        behind[megaflow.in_port, megaflow.recirc_id].append(state)
    return [_continued(megaflow, state, behind, is_partial=is_partial) for megaflow, state in found]


def _continued(
    megaflow: Megaflow,
    state: MegaflowState,
    behind: Mapping[tuple[str | None, int], Sequence[MegaflowState]],
    *,
    is_partial: bool,
) -> MegaflowState:
    targets = recirculations(megaflow)
    if not targets or not state.packets or state.verdict is not Verdict.HW:
        return state
    ids = " and ".join(f"recirc_id {target:#x}" for target in targets)
    following = [each for target in targets for each in behind.get((megaflow.in_port, target), ())]
    if not following and is_partial:
        reason = f"the dump may lack the megaflows of {ids}, which take its packets"
        return replace(state, verdict=Verdict.UNCONFIRMED, reason=reason)
    if not following:
        text = f"no megaflow of the dump takes its packets behind {ids}, so each of them is an upcall"
        return replace(state, verdict=Verdict.SW, reason=text, hw_packets=0, hw_bytes=0, growth=_in_software(state))
    came, went = (state.growth or NO_GROWTH).packets, sum((each.growth or NO_GROWTH).packets for each in following)
    if came >= _ENOUGH_GROWTH and went * _FAR_FEWER < came:
        text = f"megaflows of {ids} took {went} of the {came} packets that came, so the others are upcalls"
        return replace(state, verdict=Verdict.SW, reason=text, growth=_in_software(state))
    packets = sum(each.packets for each in following)
    if not came and packets * _FAR_FEWER < state.packets:
        text = f"megaflows of {ids} have {packets} of its {state.packets} packets"
        return replace(state, verdict=Verdict.UNCONFIRMED, reason=text)
    return state


def _in_software(state: MegaflowState) -> Growth | None:
    return None if state.growth is None else Growth(state.growth.packets, 0)


class MegaflowJudge:
    """Judges the megaflows of one dump. Those that recirculate packets are judged together at its end."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence, self._contradicted = evidence, evidence.contradicted
        self._hops, self._is_all_offloaded = list[tuple[Megaflow, MegaflowState]](), True

    def state_of(self, megaflow: Megaflow) -> MegaflowState | None:
        """Return where a megaflow runs; None if the dump was made without `-m`."""
        self._is_all_offloaded = self._is_all_offloaded and megaflow.offloaded is Offloaded.YES
        return state_of(megaflow, self._evidence.filters, self._evidence.before, self._contradicted)

    def keep_hop(self, megaflow: Megaflow, state: MegaflowState) -> bool:
        """Keep a megaflow that is a hop for `hops`; return whether it is one."""
        is_kept = is_hop(megaflow) and len(self._hops) < MAX_HOPS
        if is_kept:
            self._hops.append((megaflow, state))
        return is_kept

    def hops(self) -> list[tuple[Megaflow, MegaflowState]]:
        """Return the hops with their final states."""
        is_partial = self._evidence.is_recorded and self._is_all_offloaded
        states = judge_continuations(self._hops, is_partial=is_partial)
        return [(megaflow, state) for (megaflow, _), state in zip(self._hops, states, strict=True)]


_MAX_TUNNELS = 5_000


@dataclass(slots=True)
class TunnelCounter:
    """Counts megaflows whose packets the kernel's IPsec does not see: the NIC encapsulates, or a userspace datapath."""

    counts: dict[tuple[Encapsulation, bool], list[int]] = field(default_factory=dict)

    def add(self, megaflow: Megaflow, state: MegaflowState) -> None:
        is_held = megaflow.offloaded is Offloaded.YES and state.verdict not in (Verdict.IDLE_HW, Verdict.SW)
        is_held = is_held and Anomaly.NOT_IN_HW not in state.anomalies
        for outer in encapsulations(megaflow.actions):
            is_userspace = outer.out_port is not None
            key = replace(outer, key=None, device=""), is_userspace
            if (is_held or is_userspace) and (key in self.counts or len(self.counts) < _MAX_TUNNELS):
                counted = self.counts.setdefault(key, [0, 0])
                counted[0] += 1
                counted[1] += state.packets

    def result(self) -> tuple[EncapsulationUse, ...]:
        return tuple(
            EncapsulationUse(outer, megaflows, packets, is_userspace)
            for (outer, is_userspace), (megaflows, packets) in self.counts.items()
        )


MAX_HOPS = 50_000
"""Megaflows of chains that are judged together; further ones are judged one by one, as they need memory."""

_EXPIRING = 0.8
"""Of max-idle. The rest is less than the 2 s by which hardware counters may lag (offloaded-stats-delay)."""


def is_recent(used_s: float | None, evidence: Evidence) -> bool:
    """Return whether a megaflow will not expire soon; one that will may stem from before a change of flows."""
    return used_s is None or used_s < _EXPIRING * evidence.max_idle_s


_MAX_OUTSIDE = 5_000
"""Groups of megaflows outside all blocks."""

_OTHER_PORTS = "(others)"
"""Stands for the ports of further groups."""

_MAX_EXAMPLES = 5
"""Megaflows that are listed for each anomaly."""


@dataclass(slots=True)
class BlockCounters(Tally):
    """The counters of one block."""

    block: ExpectedBlock
    verdicts: Counter[Verdict] = field(default_factory=Counter)
    anomalies: Counter[Anomaly] = field(default_factory=Counter)
    entries: set[int] = field(default_factory=set)
    proof: ProofCounter = field(default_factory=ProofCounter)

    def add(self, state: MegaflowState, entry: int, in_port: str | None) -> None:
        self.proof.add(in_port, state.verdict, state.packets, is_new=state.is_new)
        self.verdicts[state.verdict] += 1
        self.count(state.packets, state.bytes, state.hw_packets, state.hw_bytes, state.growth)
        self.entries.add(entry)

    def add_equal(self, verdict: Verdict, packets: int, size: int, in_port: str | None) -> None:
        """Count a megaflow with a verdict and an entry that were counted before."""
        self.proof.add(in_port, verdict, packets)
        self.verdicts[verdict] += 1
        self.count_equal(verdict, packets, size)

    def result(self, *, has_totals: bool = True) -> BlockOffload:
        """Return the finding for the block. `has_totals`: as Evidence has it."""
        worst = max(self.verdicts, key=lambda verdict: verdict.badness, default=Verdict.ABSENT)
        if has_totals and worst is Verdict.HW and self.proof.unproven():
            worst = Verdict.UNCONFIRMED
        return BlockOffload(
            self.block,
            worst,
            tuple((verdict, self.verdicts[verdict]) for verdict in Verdict if self.verdicts[verdict]),
            tuple((anomaly, self.anomalies[anomaly]) for anomaly in Anomaly if self.anomalies[anomaly]),
            frozenset(self.entries),
            **summed((self,)),
        )


@dataclass(slots=True)
class OutsideCounters(Tally):
    """The counters of megaflows outside all blocks that share kind, port, services, verdict and reason."""

    key: tuple[OutsideKind, str, tuple[str, ...], Verdict, str]


@dataclass(frozen=True, slots=True)
class SharedVerdict:
    """What all megaflows of a block with the same mask, actions and layer have in common."""

    counters: BlockCounters
    entry: int
    in_port: str | None
    verdict: Verdict
    anomalies: tuple[Anomaly, ...]
    unwildcarding: UnwildcardKey | None


@dataclass(frozen=True, slots=True)
class SharedOverride:
    """What megaflows outside all blocks that differ only in their source have in common. `entries`: entries of services
    whose packets they may hold. `outside`: where they count if they override no block."""

    megaflow: Megaflow
    fields: Fields
    entries: tuple[ServiceEntry, ...]
    outside: OutsideCounters


Shared: TypeAlias = SharedVerdict | OutsideCounters | SharedOverride


_OFFLOAD_REASON = "dp-offload-info"
"""The remark of newer forks of Open vSwitch on why a megaflow is not offloaded."""


def reason_of(megaflow: Megaflow) -> str:
    """Return why a megaflow is not in hardware; empty if the dump does not show it."""
    remark = next((text for name, text in megaflow.extra if name == _OFFLOAD_REASON), None)
    if remark is not None:
        return remark
    if is_slow_path(megaflow.actions):
        return "slow path: ovs-vswitchd handles each packet"
    return ""


class OffloadCheck:
    """Judges megaflows one by one; `findings` returns the result."""

    def __init__(
        self,
        services: tuple[ExpectedService, ...],
        evidence: Evidence,
        *,
        own_mask: OwnMask | None = None,
        is_listing: bool = False,
    ) -> None:
        """As `check_dump`."""
        self.services, self.evidence, self.is_listing = services, evidence, is_listing
        self.index = index_blocks(services)
        self.counters = {id(block): BlockCounters(block) for service in services for block in service.blocks}
        self.outside: dict[tuple[OutsideKind, str, tuple[str, ...], Verdict, str], OutsideCounters] = {}
        self.listed: list[ListedMegaflow] = []
        self.unparsed = UnparsedLines()
        self.tunnels = TunnelCounter()
        self.unjudged = self.uncounted = 0
        self._judge = MegaflowJudge(evidence)
        self.unwildcarded = UnwildcardCounter(own_mask)
        self.overrides = OverrideCounter(self.index)
        self.answers = AnswerFinder(services, self.overrides.index)
        self._examples: dict[Anomaly, list[AnomalousMegaflow]] = {anomaly: [] for anomaly in Anomaly}

    def add(self, megaflow: Megaflow) -> Shared | None:
        """Count a megaflow. Return what it shares with similar ones; None if the dump hides where it runs."""
        state = self._judge.state_of(megaflow)
        if state is None:
            self.unjudged += 1
            return None
        self.uncounted += not state.is_counted
        self.tunnels.add(megaflow, state)
        return None if self._judge.keep_hop(megaflow, state) else self._add(megaflow, state, match_of(megaflow))

    def _add(self, megaflow: Megaflow, state: MegaflowState, fields: Fields) -> Shared:
        """Count a megaflow with its final state."""
        found = self.index.locate(megaflow.in_port, fields)
        if found is None:
            return self._add_outside(megaflow, state, fields)
        shared = self._shared(megaflow, state, fields, *found)
        anomalies = self._anomalies(shared, state.packets, megaflow.used_s)
        shared.counters.add(state, shared.entry, shared.in_port)
        if self.is_listing:
            self._list(megaflow, state, found[1], None)
        self._count_anomalies(shared, anomalies)
        for anomaly in anomalies:
            if len(self._examples[anomaly]) < _MAX_EXAMPLES:
                self._examples[anomaly].append(_example(anomaly, megaflow, fields, found[1]))
        return shared

    def _add_outside(self, megaflow: Megaflow, state: MegaflowState, fields: Fields) -> Shared:
        kind = outside_kind_of(megaflow, self.evidence.internal_ports, fields)
        outside = self._outside(megaflow, state, fields, kind)
        entries = self.overrides.entries(megaflow, fields, kind)
        if entries:
            shared = SharedOverride(megaflow, fields, entries, outside)
            if self._overrides(shared, fields, packets=megaflow.packets, used_s=megaflow.used_s):
                return shared
        outside.count(state.packets, state.bytes, state.hw_packets, state.hw_bytes, state.growth)
        if self.is_listing and outside.key[0].is_judged:
            self._list(megaflow, state, None, outside.key[:3])
        return shared if entries else outside

    def _outside(self, megaflow: Megaflow, state: MegaflowState, fields: Fields, kind: OutsideKind) -> OutsideCounters:
        in_port, reason = "", ""
        services: tuple[str, ...] = ()
        if kind.is_judged:
            services = self.answers.services(megaflow, fields)
            if services:
                kind = OutsideKind.ANSWERS
            elif self.evidence.ports is not None and not self.evidence.ports.has(megaflow):
                kind = OutsideKind.OTHER_PORT
        if kind.is_judged:
            in_port = megaflow.in_port or ""
            reason = "" if state.verdict is Verdict.HW else state.reason or reason_of(megaflow)
        key = kind, in_port, services, state.verdict, reason
        if key not in self.outside and len(self.outside) >= _MAX_OUTSIDE:
            key = kind, _OTHER_PORTS, services, state.verdict, ""
        return self.outside.setdefault(key, OutsideCounters(key))

    def _list(
        self,
        megaflow: Megaflow,
        state: MegaflowState,
        block: ExpectedBlock | None,
        outside: tuple[OutsideKind, str, tuple[str, ...]] | None,
    ) -> None:
        tc = filter_of(megaflow, self.evidence.filters)
        self.listed.append(ListedMegaflow(megaflow, state.verdict, state.packets, state.hw_packets, block, outside, tc))

    def add_override(
        self, shared: SharedOverride, fields: Fields, *, packets: int, size: int, used_s: float | None
    ) -> None:
        """Count a megaflow with these fields that may override blocks, by the counters of the dump."""
        if not self._overrides(shared, fields, packets=packets, used_s=used_s):
            shared.outside.count_equal(shared.outside.key[3], packets, size)

    def _overrides(self, shared: SharedOverride, fields: Fields, *, packets: int, used_s: float | None) -> bool:
        return is_recent(used_s, self.evidence) and self.overrides.add(
            shared.megaflow, fields, shared.entries, packets=packets
        )

    def count_cached(self, shared: SharedVerdict, packets: int, size: int, *, used_s: float | None) -> bool:
        """Count a megaflow like earlier ones. False: it is not counted, as an anomaly lacks examples: parse it."""
        anomalies = self._anomalies(shared, packets, used_s)
        if anomalies:
            if any(len(self._examples[anomaly]) < _MAX_EXAMPLES for anomaly in anomalies):
                return False
            self._count_anomalies(shared, anomalies)
        shared.counters.add_equal(shared.verdict, packets, size, shared.in_port)
        return True

    def _anomalies(self, shared: SharedVerdict, packets: int, used_s: float | None) -> tuple[Anomaly, ...]:
        anomalies = shared.anomalies
        if not packets and shared.verdict is Verdict.HW:
            anomalies = (*anomalies, Anomaly.WITHOUT_PACKETS)
        if not is_recent(used_s, self.evidence):
            anomalies = (*anomalies, Anomaly.EXPIRING)
        return anomalies

    def _count_anomalies(self, shared: SharedVerdict, anomalies: tuple[Anomaly, ...]) -> None:
        if shared.unwildcarding is not None:
            self.unwildcarded.counts[shared.unwildcarding] += 1
        for anomaly in anomalies:
            shared.counters.anomalies[anomaly] += 1

    def _shared(
        self, megaflow: Megaflow, state: MegaflowState, fields: Fields, entry: ServiceEntry, block: ExpectedBlock
    ) -> SharedVerdict:
        anomalies = list(state.anomalies)
        if is_slow_path(megaflow.actions):
            anomalies.append(Anomaly.SLOW_PATH)
        elif not is_undetermined(megaflow.actions) and not delivers(megaflow, fields, block):
            anomalies.append(Anomaly.DROPPED if megaflow.actions == ("drop",) else Anomaly.MISDELIVERED)
        if block.is_moving:
            anomalies.append(Anomaly.DRAINED)
        unwildcarding = self.unwildcarded.key_of(megaflow, fields, entry, block)
        if unwildcarding is not None:
            anomalies.append(Anomaly.UNWILDCARDED)
        counters, in_port = self.counters[id(block)], megaflow.in_port
        return SharedVerdict(counters, entry.number, in_port, state.verdict, tuple(anomalies), unwildcarding)

    def _add_hops(self) -> None:
        """Count the megaflows that recirculate packets, each by the worst hop of its chains."""
        found = self._judge.hops()
        kinds = (outside_kind_of(megaflow, self.evidence.internal_ports) for megaflow, _ in found)
        hops = (hop_of(*each, is_judged=kind.is_judged) for each, kind in zip(found, kinds, strict=True))
        for (megaflow, state), hop in zip(found, judge_chains(hops), strict=True):
            self._add(megaflow, state.in_chain(hop), match_of(megaflow))

    def findings(self) -> OffloadFindings:
        """Return the findings about all megaflows so far."""
        self._add_hops()
        blocks = tuple(counters.result(has_totals=self.evidence.has_totals) for counters in self.counters.values())
        outside = tuple(
            OutsideTraffic(*each.key, **summed((each,))) for each in self.outside.values() if each.megaflows
        )
        return OffloadFindings(
            services=self.services,
            blocks=blocks,
            outside=outside,
            unparsed=tuple(self.unparsed.listed),
            unparsed_more=self.unparsed.more,
            unjudged=self.unjudged,
            uncounted=self.uncounted,
            unwildcardings=self.unwildcarded.result(),
            overrides=self.overrides.result(),
            examples=tuple(example for examples in self._examples.values() for example in examples),
            listed=tuple(self.listed),
            ports=self.evidence.port_checks,
            has_growth=self.evidence.before is not None,
            tunnels=self.tunnels.result(),
            unanswered=unanswered(blocks, outside),
        )


def _example(anomaly: Anomaly, megaflow: Megaflow, fields: Fields, block: ExpectedBlock) -> AnomalousMegaflow:
    match = render_match(match_of_fields(megaflow.in_port, fields))
    return AnomalousMegaflow(anomaly, block.service, block.backend, megaflow.ufid, match, ",".join(megaflow.actions))


# Lines of a dump that differ only in ufid, counters and client are judged once, then only counted: a large dump is
# mostly such lines. What a line has in common with an earlier one is compared as text, so nothing of it is parsed
# again. The address determines the block, or the bits of the port that choose blocks, in which such lines agree.


_WIDTHS = {"ipv4(": 32, "ipv6(": 128}
_FIELDS = {family.bits: key_field(KeyField.SOURCE_ADDRESS, family).ovs_name for family in Family}
_UFID = re.compile(r"ufid:[^, ]+, ", re.ASCII)
_ADDRESS = re.compile(r"[0-9a-fA-F]*[.:][0-9a-fA-F.:]*", re.ASCII)
"""Not a bare number: the 99 in `5/99` is a mask, in `0.0.0.5/99` a prefix length."""
_COUNTERS = re.compile(
    r", packets:([0-9]{1,20}), bytes:([0-9]{1,20}), used:(?:never|([0-9]{1,12}\.[0-9]{1,6})s)", re.ASCII
)

_MAC = re.compile(r"(?<=eth\(src=)(?:[0-9a-f]{2}:){5}[0-9a-f]{2}(?=[,/])", re.ASCII)
_PORT = re.compile(r"(?<=(?:tcp|udp)\(src=)(?:[1-5]?[0-9]{1,4}|6[0-4][0-9]{3})(?=[,/])", re.ASCII)
_CLIENT_FIELDS = ("dl_src", "tp_src")
"""Clients also differ in these fields if a flow makes megaflows of single connections. Lines with source ports of 65000
and above are parsed."""

_MAX_SHAPES = 4096
_PAUSE = 65_536
"""Lines for which the cache pauses if fewer than half of the lines before were found in it."""

_ShapeKey = tuple[str, str, str]
"""The text before the address, between address and counters, and after the counters."""

_Lookups = tuple[tuple[int, dict[int, ExpectedBlock]], ...]


class _LineParts(NamedTuple):
    """Offsets in a line: start of the keys, start and end of the source address; its counters and address."""

    begin: int
    start: int
    end: int
    counters: re.Match[str]
    address: str


@dataclass(frozen=True, slots=True)
class _LineShape:
    """What lines with the same key share.

    Attributes:
        outside: set if such lines can belong to no block.
        override: set if such lines belong to no block and may override some.
        verdicts: by id of the block.
    """

    width: int
    mask: int
    lookups: _Lookups
    outside: OutsideCounters | None
    override: SharedOverride | None
    verdicts: dict[int, SharedVerdict] = field(default_factory=dict)


class LineCache:
    """Counts lines that equal an earlier line in all but ufid, counters and client."""

    def __init__(self, check: OffloadCheck) -> None:
        self.check = check
        self.shapes: dict[_ShapeKey, _LineShape] = {}
        # A megaflow's tc filter is found by its ufid, so with filters no two lines are equal.
        is_general = check.evidence.filters is None and not check.is_listing
        self.is_usable = is_general and not check.index.matches_any_of(_FIELDS.values())
        self._hits = self._pause = 0
        port_bits = check.index.bits_of("tp_src")
        is_matched = check.index.matches_any_of(_CLIENT_FIELDS)
        self._key_of = _key_of if is_matched else partial(_general_key_of, port_bits)

    def add(self, line: str) -> bool:
        """Count a line. Return False if it has to be parsed."""
        if self._pause:
            self._pause -= 1
            return False
        parts = _split(line) if self.shapes else None
        shape = self.shapes.get(self._key_of(line, parts)) if parts else None
        if parts is None or shape is None:
            return False
        self._hits += 1
        packets, size, used = parts.counters.groups()
        try:
            value = parse_value(parts.address, shape.width)
        except ValueError:
            return False
        used_s = float(used) if used else None
        if shape.outside is not None:
            shape.outside.count_equal(shape.outside.key[3], int(packets), int(size))
            return True
        if shape.override is not None:
            fields = shape.override.fields
            if shape.mask:
                fields = {**fields, _FIELDS[shape.width]: MaskedValue(value & shape.mask, shape.mask)}
            self.check.add_override(shape.override, fields, packets=int(packets), size=int(size), used_s=used_s)
            return True
        for mask, blocks in shape.lookups:
            block = blocks.get(value & mask)
            if block is not None:
                shared = shape.verdicts.get(id(block))
                return shared is not None and self.check.count_cached(shared, int(packets), int(size), used_s=used_s)
        return False

    def store(self, line: str, megaflow: Megaflow, shared: Shared | None) -> None:
        """Store what a line that was parsed and counted shares with similar lines."""
        if self._pause:
            return
        parts = _split(line) if self.is_usable and shared is not None else None
        if parts is None or shared is None:
            return
        before, behind, _ = key = self._key_of(line, parts)
        if sum((before + behind).count(name) for name in _WIDTHS) != 1:
            return
        shape = self.shapes.get(key)
        if shape is None:
            if len(self.shapes) >= _MAX_SHAPES:
                # If all lines differ, the cache costs more than it saves.
                self._pause, self._hits = (0 if self._hits > _MAX_SHAPES else _PAUSE), 0
                self.shapes.clear()
            width = _WIDTHS[before[-len("ipv4(src=") :][:5]]
            shape = self.shapes[key] = self._shape(megaflow, width, shared)
        if isinstance(shared, SharedVerdict):
            shape.verdicts[id(shared.counters.block)] = shared

    def _shape(self, megaflow: Megaflow, width: int, shared: Shared) -> _LineShape:
        fields = match_of(megaflow)
        name = _FIELDS[width]
        source = fields.pop(name, ANY)
        entries = tuple(self.check.index.entries_for(megaflow.in_port, fields))
        lookups = tuple(_lookups(entries, name, {**fields, name: source}))
        is_general = not self.check.answers.depends_on_source(megaflow.in_port, match_of(megaflow))
        outside = shared if isinstance(shared, OutsideCounters) and not lookups and is_general else None
        override = shared if isinstance(shared, SharedOverride) and not lookups and is_general else None
        # If several entries match, the first may lack a block for an address that the second has.
        return _LineShape(width, source.mask, lookups if len(entries) == 1 else (), outside, override)


def _lookups(
    entries: Iterable[ServiceEntry], name: str, fields: Fields
) -> Iterator[tuple[int, dict[int, ExpectedBlock]]]:
    """Yield the masks under which an address determines the block; mask 0 if the bits of the port determine it."""
    for entry in entries:
        for key_name, mask, blocks in entry.blocks.by_mask:
            found = fields.get(key_name, ANY)
            if found.mask & mask != mask:
                continue
            if key_name == name:
                yield mask, blocks
            elif (block := blocks.get(found.value & mask)) is not None:
                yield 0, {0: block}


def _split(line: str) -> _LineParts | None:
    """Return the parts of a line; None if it has another form."""
    start = line.find("ipv4(src=")
    if start < 0:
        start = line.find("ipv6(src=")
    if start < 0:
        return None
    start += len("ipv4(src=")
    address = _ADDRESS.match(line, start)
    counters = _COUNTERS.match(line, line.find(", packets:", start))
    if address is None or counters is None:
        return None
    ufid = _UFID.match(line)
    return _LineParts(ufid.end() if ufid else 0, start, address.end(), counters, address[0])


def _key_of(line: str, parts: _LineParts) -> _ShapeKey:
    counters = parts.counters
    return line[parts.begin : parts.start], line[parts.end : counters.start()], line[counters.end() :]


def _general_key_of(port_bits: int, line: str, parts: _LineParts) -> _ShapeKey:
    """Return the key without values that no entry and no block matches: MAC and port of the client."""
    before, behind, after = _key_of(line, parts)
    port = (lambda found: str(int(found[0]) & port_bits)) if port_bits else ""
    return _MAC.sub("", before, count=1), _PORT.sub(port, behind, count=1), after


def check_dump(
    services: Iterable[ExpectedService],
    lines: Iterable[str],
    evidence: Evidence | None = None,
    *,
    own_mask: OwnMask | None = None,
    is_listing: bool = False,
) -> OffloadFindings:
    """Judge the lines of a dump against the expected services, similar lines once. Never raises.

    `own_mask` returns the mask of a megaflow with our flows alone; None: what its block needs at least.
    """
    check = OffloadCheck(tuple(services), evidence or Evidence(), own_mask=own_mask, is_listing=is_listing)
    cache = LineCache(check)
    for number, line in enumerate(lines, start=1):
        if cache.add(line):
            continue
        megaflow = read_line(line, number=number)
        if isinstance(megaflow, ParseError):
            check.unparsed.add(megaflow)
        elif megaflow is not None:
            cache.store(line, megaflow, check.add(megaflow))
    return check.findings()
