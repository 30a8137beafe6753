"""The offload check: every megaflow of a dump is judged against what a program expects.

Shares are of packets, not of bytes: software traffic control counts each frame without 14 bytes of its header.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from xenoovs.dataclass import dataclass, field, replace
from xenoovs.datapath.ipsec import EncapsulationUse
from xenoovs.datapath.megaflow import Megaflow, Offloaded, Verdict, match_of, verdict_of
from xenoovs.datapath.outer import Encapsulation, encapsulations
from xenoovs.datapath.parse import scan_dump
from xenoovs.datapath.tc import TcCounters, TcFilter
from xenoovs.errors import ParseError
from xenoovs.evidence.evidence import Evidence
from xenoovs.evidence.samples import EXPIRING, NO_GROWTH, DatapathSample, Growth, filter_of, id_of, sampled
from xenoovs.judge.chains import is_hop, judge_chains, recirculations
from xenoovs.judge.expected import (
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
    outside_kind_of,
)
from xenoovs.judge.findings import (
    Anomaly,
    BlockOffload,
    MegaflowState,
    OffloadFindings,
    OutsideKey,
    OutsideTraffic,
    unanswered,
)
from xenoovs.judge.foreign import OverrideCounter, OwnMask, UnwildcardCounter

_MAX_UNPARSED = 100
_MAX_TUNNELS = 5_000


def state_of(
    megaflow: Megaflow,
    filters: Mapping[str, TcFilter] | None,
    before: DatapathSample | None = None,
    contradicted: Container[str] = (),
) -> MegaflowState | None:
    """Return the state of a megaflow by the dump, its tc filter, and their growth; None if the dump is without `-m`.

    `filters`: by cookie; None if not read. `contradicted`: ports that gave the CPU more packets than megaflows explain.
    """
    verdict, found = verdict_of(megaflow), filter_of(megaflow, filters)
    if verdict is None:
        return None
    known = growth = None
    if before is not None:
        now = sampled(megaflow, found.counters if found else None)
        known = now.since(before.megaflows.get(id_of(megaflow)))
        growth = known or Growth(now.packets, now.hw_packets)
    if found is not None:
        state = _state_by_filter(megaflow, verdict, found, known)
    else:
        lacks_filter = filters is not None and megaflow.layer == "tc"
        state = _state_by_dump(megaflow, verdict, *((Anomaly.WITHOUT_FILTER,) if lacks_filter else ()))
    if growth is None:
        return state
    verdict = state.verdict
    if verdict in (Verdict.HW, Verdict.TC_SW) and growth.hw_packets and megaflow.in_port in contradicted:
        verdict = Verdict.CONTRADICTED
    return replace(state, verdict=verdict, growth=state.growth or growth)


def _state_by_filter(megaflow: Megaflow, verdict: Verdict, found: TcFilter, growth: Growth | None) -> MegaflowState:
    """Return the state by the tc filter. `growth`: None if the sample before does not have the megaflow."""
    if verdict is Verdict.HW and found.in_hw is False:
        return _state_by_dump(megaflow, Verdict.TC_SW, Anomaly.NOT_IN_HW, tc=found)
    counters = found.counters
    if verdict is Verdict.HW and (found.in_hw is None or (counters is not None and counters.hw_packets is None)):
        return replace(_state_by_dump(megaflow, verdict, tc=found), verdict=Verdict.UNCONFIRMED, is_counted=False)
    if counters is None:
        return _state_by_dump(megaflow, verdict, tc=found)
    stray = None
    if verdict is Verdict.HW:
        verdict = _verdict_by_counters(counters, growth, active_s=found.active_s)
        if verdict is Verdict.IDLE_HW and growth is not None and found.age_s is not None:
            is_due = growth.packets * 10 * max(found.age_s, 1) >= (counters.hw_packets or 0)
            # Fewer packets came than usual in 0.1 s: the NIC may refresh its counters less often.
            verdict, stray = (verdict, None) if is_due else (Verdict.UNCONFIRMED, NO_GROWTH)
    is_new = found.age_s is not None and found.age_s < _SETTLED_S
    counts = counters.packets, counters.bytes, counters.hw_packets or 0, counters.hw_bytes
    return MegaflowState(megaflow, verdict, *counts, growth=stray, is_new=is_new, tc=found)


_SETTLED_S = 3
"""Age of a rule after which its packets should be in hardware; earlier ones may have entered before the NIC had it.
More than the 2 s by which hardware counters may lag (offloaded-stats-delay), in whole seconds as tc prints them."""


_STRAY = 0.01
"""Share of the packets that may meet a rule in software although the NIC uses it."""


def _verdict_by_counters(counters: TcCounters, growth: Growth | None, *, active_s: int | None) -> Verdict:
    """Return the verdict on a rule in the NIC: by growth if there is any, else by all packets so far."""
    if growth is not None and growth.packets:
        if not growth.hw_packets:
            return Verdict.IDLE_HW
        return Verdict.TC_SW if growth.sw_packets > _STRAY * growth.packets else Verdict.HW
    if counters.packets and not counters.hw_packets:
        return Verdict.IDLE_HW if active_s is not None and active_s >= _SETTLED_S else Verdict.UNCONFIRMED
    return Verdict.UNCONFIRMED if counters.sw_packets > (counters.hw_packets or 0) else Verdict.HW


def _state_by_dump(
    megaflow: Megaflow, verdict: Verdict, *anomalies: Anomaly, tc: TcFilter | None = None
) -> MegaflowState:
    packets, size = megaflow.packets, megaflow.bytes
    hardware = (packets, size) if verdict is Verdict.HW else (0, 0)
    return MegaflowState(megaflow, verdict, packets, size, *hardware, anomalies, tc=tc)


_BlockAndPort = tuple[int, str | None]
"""The id of a block, and an ingress port."""


@dataclass(slots=True)
class ProofCounter:
    """Finds the blocks and ports with megaflows that the NIC has held for some seconds without a counted packet.

    This happens if a NIC does not distinguish the rules of several blocks: the first one takes all packets.
    """

    packets: Counter[_BlockAndPort] = field(default_factory=Counter)
    settled: Counter[_BlockAndPort] = field(default_factory=Counter)

    def add(self, key: _BlockAndPort, verdict: Verdict, packets: int, *, is_new: bool = False) -> None:
        self.packets[key] += packets
        self.settled[key] += verdict is Verdict.HW and not is_new

    def unproven(self) -> dict[_BlockAndPort, int]:
        """Return the number of megaflows of each of them."""
        return {key: number for key, number in self.settled.items() if number and not self.packets[key]}


_FAR_FEWER = 10
"""Factor. Megaflows behind a hop are narrower, so some may have expired and been recreated with counters at 0."""
_ENOUGH_GROWTH = 20


def judge_continuations(found: Sequence[MegaflowState], *, is_partial: bool = False) -> Sequence[MegaflowState]:
    """Return the states of hops. A hop that no megaflow continues is not in hardware: each packet is an upcall.
    `is_partial`: whether the dump may lack megaflows that are not offloaded."""
    if len(found) >= MAX_HOPS:
        return found
    behind = defaultdict[tuple[str | None, int], list[MegaflowState]](list)
    for state in found:
        behind[state.megaflow.in_port, state.megaflow.recirc_id].append(state)
    return [_continued(state, behind, is_partial=is_partial) for state in found]


def _continued(
    state: MegaflowState, behind: Mapping[tuple[str | None, int], Sequence[MegaflowState]], *, is_partial: bool
) -> MegaflowState:
    targets, in_port = recirculations(state.megaflow), state.megaflow.in_port
    if not targets or not state.packets or state.verdict is not Verdict.HW:
        return state
    ids = " and ".join(f"recirc_id {target:#x}" for target in targets)
    following = [each for target in targets for each in behind.get((in_port, target), ())]
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
        self._hops, self._is_all_offloaded = list[MegaflowState](), True
        self._unparsed, self._unparsed_more, self._is_partly_read = list[ParseError](), 0, False
        self._read = self._unjudged = self._uncounted = 0
        self._tunnels = dict[tuple[Encapsulation, bool], list[int]]()

    def note(self, error: ParseError) -> None:
        """Count a line that could not be read. A whole one may be a megaflow in software."""
        self._is_partly_read |= " actions:" in error.text and ", offloaded:yes," not in error.text
        if len(self._unparsed) < _MAX_UNPARSED:
            self._unparsed.append(error)
        else:
            self._unparsed_more += 1

    def count(self, megaflow: Megaflow, *, is_here: bool = True) -> MegaflowState | None:
        """Count a megaflow and return its state; None if it is of another bridge, a hop (see `hops`), or of a dump
        without `-m`."""
        state = self.state_of(megaflow)
        self._read += 1
        if state is None:
            self._unjudged += 1
        elif is_here:
            self._uncounted += not state.is_counted
            self._count_tunnels(state)
        return None if state is None or not is_here or self.keep_hop(state) else state

    def found(self) -> dict[str, Any]:
        """Return the arguments of DumpFindings about all counted megaflows."""
        return {
            "read": self._read,
            "unparsed": tuple(self._unparsed),
            "unparsed_more": self._unparsed_more,
            "is_filtered": self._is_partly_read or len(self._hops) >= MAX_HOPS,
            "unjudged": self._unjudged,
            "uncounted": self._uncounted,
            "tunnels": tuple(
                EncapsulationUse(outer, megaflows, packets, is_userspace)
                for (outer, is_userspace), (megaflows, packets) in self._tunnels.items()
            ),
            "ports": self._evidence.port_checks,
            "has_growth": self._evidence.before is not None,
        }

    def _count_tunnels(self, state: MegaflowState) -> None:
        """Count packets that bypass the kernel's IPsec: the NIC or a userspace datapath encapsulates them."""
        is_held = state.megaflow.offloaded is Offloaded.YES and state.verdict not in (Verdict.IDLE_HW, Verdict.SW)
        is_held = is_held and Anomaly.NOT_IN_HW not in state.anomalies
        for outer in encapsulations(state.megaflow.actions):
            is_userspace = outer.out_port is not None
            key = replace(outer, key=None, device=""), is_userspace
            if (is_held or is_userspace) and (key in self._tunnels or len(self._tunnels) < _MAX_TUNNELS):
                counted = self._tunnels.setdefault(key, [0, 0])
                counted[0] += 1
                counted[1] += state.packets

    def state_of(self, megaflow: Megaflow) -> MegaflowState | None:
        """Return where a megaflow runs; None if the dump was made without `-m`."""
        self._is_all_offloaded = self._is_all_offloaded and megaflow.offloaded is Offloaded.YES
        return state_of(megaflow, self._evidence.filters, self._evidence.before, self._contradicted)

    def keep_hop(self, state: MegaflowState) -> bool:
        """Keep a megaflow for `hops` if it is a hop. Return whether it was kept."""
        is_kept = is_hop(state.megaflow) and len(self._hops) < MAX_HOPS
        if is_kept:
            self._hops.append(state)
        return is_kept

    def hops(self) -> tuple[Sequence[MegaflowState], list[bool]]:
        """Return the hops with their final states, and whether each should be in hardware."""
        states = judge_continuations(self._hops, is_partial=self._evidence.is_recorded and self._is_all_offloaded)
        kinds = (outside_kind_of(state.megaflow, self._evidence.internal_ports) for state in states)
        return states, [kind.is_judged for kind in kinds]


MAX_HOPS = 50_000
"""Most megaflows of chains that are judged together, as they take memory; with more, offloaded:yes proves nothing."""


def is_recent(used_s: float | None, evidence: Evidence) -> bool:
    """Return False if a megaflow will expire soon: it may be older than a change of flows."""
    return used_s is None or used_s < EXPIRING * evidence.max_idle_s


_MAX_OUTSIDE = 5_000
"""Most groups of megaflows outside all blocks."""

_OTHER_PORTS = "(others)"
"""Stands for the ports of further groups."""

_MAX_EXAMPLES = 5
"""Most megaflows that are listed for each anomaly."""


_OFFLOAD_REASON = "dp-offload-info"
"""The field in which newer forks of Open vSwitch show why a megaflow is not offloaded."""


def reason_of(megaflow: Megaflow) -> str:
    """Return why a megaflow is not in hardware; empty if the dump does not show it."""
    remark = next((text for name, text in megaflow.extra if name == _OFFLOAD_REASON), None)
    if remark is not None:
        return remark
    return "slow path: ovs-vswitchd handles each packet" if is_slow_path(megaflow.actions) else ""


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
        """Take the arguments of `check_dump`."""
        self.services, self.evidence, self.is_listing = services, evidence, is_listing
        self.index = index_blocks(services)
        self.blocks = {id(block): BlockOffload(block) for service in services for block in service.blocks}
        self.proof = ProofCounter()
        self.outside = dict[tuple[OutsideKey, Verdict, str], OutsideTraffic]()
        self.listed: list[MegaflowState] = []
        self._judge = MegaflowJudge(evidence)
        self.unwildcarded = UnwildcardCounter(own_mask)
        self.overrides = OverrideCounter(self.index)
        self.answers = AnswerFinder(services, self.overrides.index)
        self._examples: dict[Anomaly, list[MegaflowState]] = {anomaly: [] for anomaly in Anomaly}

    def add(self, megaflow: Megaflow | ParseError) -> None:
        if isinstance(megaflow, ParseError):
            self._judge.note(megaflow)
        elif (state := self._judge.count(megaflow)) is not None:
            self._add(state)

    def _add(self, state: MegaflowState) -> None:
        """Count a megaflow with its final state."""
        in_port, fields = state.megaflow.in_port, match_of(state.megaflow)
        found = self.index.locate(in_port, fields)
        if found is None:
            self._add_outside(state, fields)
            return
        entry, block = found
        offload = self.blocks[id(block)]
        offload.add(state)
        offload.verdicts[state.verdict] += 1
        offload.entries_seen.add(entry.number)
        self.proof.add((id(block), in_port), state.verdict, state.packets, is_new=state.is_new)
        if self.is_listing:
            self.listed.append(replace(state, block=block))
        for anomaly in self._anomalies(state, fields, entry, block):
            offload.anomalies[anomaly] += 1
            if len(self._examples[anomaly]) < _MAX_EXAMPLES:
                self._examples[anomaly].append(replace(state, block=block))

    def _add_outside(self, state: MegaflowState, fields: Fields) -> None:
        megaflow = state.megaflow
        kind = outside_kind_of(megaflow, self.evidence.internal_ports, fields)
        entries = self.overrides.entries(megaflow, fields, kind)
        if entries and is_recent(megaflow.used_s, self.evidence) and self.overrides.add(megaflow, fields, entries):
            return
        key = self._key_outside(state, fields, kind)
        if key not in self.outside:
            self.outside[key] = OutsideTraffic(*key[0], *key[1:])
        self.outside[key].add(state)
        if self.is_listing and key[0][0].is_judged:
            self.listed.append(replace(state, outside=key[0]))

    def _key_outside(self, state: MegaflowState, fields: Fields, kind: OutsideKind) -> tuple[OutsideKey, Verdict, str]:
        megaflow, in_port, reason = state.megaflow, "", ""
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
        key = (kind, in_port, services), state.verdict, reason
        if key not in self.outside and len(self.outside) >= _MAX_OUTSIDE:
            key = (kind, _OTHER_PORTS, services), state.verdict, ""
        return key

    def _anomalies(
        self, state: MegaflowState, fields: Fields, entry: ServiceEntry, block: ExpectedBlock
    ) -> list[Anomaly]:
        megaflow, anomalies = state.megaflow, list(state.anomalies)
        if is_slow_path(megaflow.actions):
            anomalies.append(Anomaly.SLOW_PATH)
        elif not is_undetermined(megaflow.actions) and not delivers(megaflow, fields, block):
            anomalies.append(Anomaly.DROPPED if megaflow.actions == ("drop",) else Anomaly.MISDELIVERED)
        if block.is_moving:
            anomalies.append(Anomaly.DRAINED)
        if self.unwildcarded.add(megaflow, fields, entry, block):
            anomalies.append(Anomaly.UNWILDCARDED)
        if not state.packets and state.verdict is Verdict.HW:
            anomalies.append(Anomaly.WITHOUT_PACKETS)
        if not is_recent(megaflow.used_s, self.evidence):
            anomalies.append(Anomaly.EXPIRING)
        return anomalies

    def findings(self) -> OffloadFindings:
        """Return the findings about all megaflows so far. Those that recirculate packets count by the worst hop of
        their chains."""
        for state in judge_chains(*self._judge.hops()):
            self._add(state)
        blocks, outside = tuple(self.blocks.values()), tuple(self.outside.values())
        unproven = {block for block, _ in self.proof.unproven()} if self.evidence.has_totals else set[int]()
        for each in blocks:
            each.verdict = max(each.verdicts, key=lambda verdict: verdict.badness, default=Verdict.ABSENT)
            if each.verdict is Verdict.HW and id(each.block) in unproven:
                each.verdict = Verdict.UNCONFIRMED
        return OffloadFindings(
            services=self.services,
            blocks=blocks,
            outside=outside,
            unwildcardings=self.unwildcarded.result(),
            overrides=self.overrides.result(),
            examples={anomaly: tuple(found) for anomaly, found in self._examples.items()},
            listed=tuple(self.listed),
            unanswered=unanswered(blocks, outside),
            **self._judge.found(),
        )


def check_dump(
    services: Iterable[ExpectedService],
    lines: Iterable[str],
    evidence: Evidence | None = None,
    *,
    own_mask: OwnMask | None = None,
    is_listing: bool = False,
) -> OffloadFindings:
    """Judge the lines of a dump against the expected services. Never raises.

    `own_mask` returns the mask of a megaflow with our flows alone; None for the smallest mask of its block.
    """
    check = OffloadCheck(tuple(services), evidence or Evidence(), own_mask=own_mask, is_listing=is_listing)
    for megaflow in scan_dump(lines):
        check.add(megaflow)
    return check.findings()
