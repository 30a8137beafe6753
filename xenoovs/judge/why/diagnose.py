"""Why megaflows are not in hardware: collects the reasons of all kinds of evidence, most likely first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import cache

from xenoovs.dataclass import dataclass, field, replace
from xenoovs.datapath.ipsec import address_text
from xenoovs.datapath.megaflow import MaskedValue, Megaflow, Verdict, match_of, verdict_of
from xenoovs.datapath.outer import encapsulations
from xenoovs.errors import counted, first_names
from xenoovs.evidence.evidence import Evidence, Shape
from xenoovs.evidence.samples import NO_GROWTH, Growth, PortFinding
from xenoovs.judge.chains import ChainLink, link_chains
from xenoovs.judge.expected import (
    AnswerFinder,
    ExpectedService,
    ServiceEntry,
    delivers,
    index_blocks,
    is_slow_path,
    is_undetermined,
    match_of_fields,
    outside_kind_of,
)
from xenoovs.judge.findings import Anomaly, MegaflowState, Unwildcarding
from xenoovs.judge.foreign import (
    ExtraBits,
    OverrideCounter,
    OwnMask,
    UnwildcardCounter,
    overriding_flows,
    unwildcarding_flows,
)
from xenoovs.judge.offload import MegaflowJudge, ProofCounter, is_recent
from xenoovs.judge.why.case import (
    DOCA_LAYER,
    OFFLOAD_INFO,
    BlockOverride,
    Case,
    is_of_doca,
    shape_of,
)
from xenoovs.judge.why.flows import action_reasons, marked_only, override_reasons, unwildcarded_reasons
from xenoovs.judge.why.kernel import chain_reasons, kernel_reasons, silent_refusal
from xenoovs.judge.why.reason import Cause, Likelihood, Reason, rank
from xenoovs.judge.why.settings import likely_off, not_offered, setting_reasons
from xenoovs.model.address import IPAddress
from xenoovs.openflow.flow import Flow
from xenoovs.openflow.text import render_match

LISTED = 3
"""Most services, backends or megaflows of one group that are shown as text."""
_MAX_CANDIDATES = 100_000
"""Most megaflows to diagnose; each takes about 2 kB."""


@dataclass(slots=True)
class Selection:
    """The megaflows to diagnose. `left_out`: number of further megaflows that are not in hardware. `unconfirmed`:
    number of megaflows in the NIC without a counter that proves that it forwards by them. `chained`: number of
    megaflows in hardware whose chains have another one that is not. `absent`: number of blocks without a megaflow.
    `notes`: what was undone of an earlier run, and what could not be read. `is_filtered`: whether the dump may lack
    megaflows in software, as all of it is offloaded."""

    candidates: list[Case] = field(default_factory=list)
    in_hardware: int = 0
    unjudged: int = 0
    shapes: set[Shape] = field(default_factory=set)
    left_out: int = 0
    layers: set[str] = field(default_factory=set)
    unconfirmed: int = 0
    uncounted: int = 0
    growth: Growth = NO_GROWTH
    ports: tuple[PortFinding, ...] = ()
    chained: int = 0
    absent: int = 0
    notes: tuple[str, ...] = ()
    is_filtered: bool = False

    @property
    def contradicted(self) -> tuple[PortFinding, ...]:
        """Ports that gave the CPU more packets than megaflows explain."""
        return tuple(port for port in self.ports if port.is_contradicted)


def select_candidates(
    megaflows: Iterable[Megaflow],
    services: Iterable[ExpectedService],
    is_selected: Callable[[Case], bool],
    evidence: Evidence | None = None,
) -> Selection:
    """Select the megaflows to diagnose; those that recirculate come last. Without services each is judged alone."""
    evidence, listed = evidence or Evidence(), tuple(services)
    selector, judge = _Selector(evidence, listed, is_selected), MegaflowJudge(evidence)
    for megaflow in megaflows:
        if evidence.ports is not None and not evidence.ports.has(megaflow):
            continue
        state = judge.state_of(megaflow)
        if state is None or not judge.keep_hop(state):
            selector.add(megaflow, state)
    hops, is_judged = judge.hops()
    for state, link in zip(hops, link_chains(hops, is_judged), strict=True):
        selector.add(state.megaflow, state, link, None if link.before is None else hops[link.before].megaflow)
    found, unproven = selector.found, sum(selector.proof.unproven().values())
    found.in_hardware -= unproven
    found.unconfirmed += unproven
    found.absent = sum(id(block) not in selector.present for service in listed for block in service.blocks)
    return found


class _Selector:
    """Sorts megaflows into those to diagnose and those that are only counted. `present`: ids of blocks with some."""

    def __init__(
        self, evidence: Evidence, services: tuple[ExpectedService, ...], is_selected: Callable[[Case], bool]
    ) -> None:
        self._evidence, self._is_selected = evidence, is_selected
        self._index = index_blocks(services)
        self._overrides = OverrideCounter(self._index)
        self._answers = AnswerFinder(services, self._overrides.index)
        self.found, self.present, self.proof = Selection(ports=evidence.port_checks), set[int](), ProofCounter()

    def _candidate(self, megaflow: Megaflow, verdict: Verdict | None) -> Case:
        block = self._index.find(megaflow)
        if block is not None:
            self.present.add(id(block))
            return Case(megaflow, verdict or Verdict.ABSENT, block, self._evidence)
        answers = self._answers.find(megaflow, self._evidence.internal_ports)
        overrides = () if answers else self._overridden(megaflow)
        return Case(megaflow, verdict or Verdict.ABSENT, None, self._evidence, answers=answers, overrides=overrides)

    def _overridden(self, megaflow: Megaflow) -> tuple[BlockOverride, ...]:
        """Return the blocks that a megaflow overrides; empty if it drops the packets, as a blocklist does."""
        if megaflow.actions == ("drop",) or not is_recent(megaflow.used_s, self._evidence):
            return ()
        found = self._overrides.overridden(megaflow, self._evidence.internal_ports)
        return tuple(BlockOverride(entry.service, blocks) for entry, blocks in found)

    def add(
        self,
        megaflow: Megaflow,
        state: MegaflowState | None,
        link: ChainLink | None = None,
        before: Megaflow | None = None,
    ) -> None:
        """Add a megaflow. `link`, `before`: as in Case."""
        found, verdict = self.found, state.verdict if state is not None else None
        held = state if _is_held(megaflow, state) else None
        found.layers.add((megaflow.layer or "") if megaflow.offloaded is None else "offloaded")
        if is_of_doca(megaflow):
            found.layers.add(DOCA_LAYER)
        if (held or verdict in _UNREFUSED) and len(found.shapes) < _MAX_CANDIDATES:
            found.shapes.add(shape_of(megaflow))
        candidate = replace(self._candidate(megaflow, verdict), held=held, link=link, before=before)
        if not self._is_selected(candidate):
            return
        if state is not None:
            found.growth += state.growth or NO_GROWTH
            found.uncounted += not state.is_counted
        if verdict is None:
            found.unjudged += 1
        elif verdict in _UNREFUSED and link is not None and link.is_in_software:
            found.chained += 1
        elif verdict is Verdict.UNCONFIRMED:
            found.unconfirmed += 1
        elif verdict is Verdict.HW:
            found.in_hardware += 1
            if state is not None and candidate.block is not None:
                key = id(candidate.block), megaflow.in_port
                self.proof.add(key, verdict, state.packets, is_new=state.is_new)
        elif len(found.candidates) < _MAX_CANDIDATES:
            found.candidates.append(candidate)
        else:
            found.left_out += 1


_UNREFUSED = (Verdict.HW, Verdict.UNCONFIRMED)


def _is_held(megaflow: Megaflow, state: MegaflowState | None) -> bool:
    """Return whether the NIC holds a rule of the megaflow, and the CPU forwards its packets."""
    if state is None or not state.verdict.is_software or verdict_of(megaflow) is not Verdict.HW:
        return False
    return Anomaly.NOT_IN_HW not in state.anomalies


def diagnose(selection: Selection, evidence: Evidence) -> list[Case]:
    """Return the candidates with their reasons, in the order of the dump."""
    known = replace(evidence, in_hardware=frozenset(selection.shapes), layers=frozenset(selection.layers))
    return [_diagnose(replace(case, evidence=known)) for case in selection.candidates]


def _diagnose(case: Case) -> Case:
    overrides = tuple(override_reasons(case))
    if case.held is not None:
        return _with_reasons(case, (*overrides, *held_reasons(case, case.held)))
    reasons = rank(reason for rule in _RULES for reason in rule(case))
    if case.verdict is Verdict.TC_SW and all(reason.likelihood >= Likelihood.LIKELY for reason in reasons):
        is_explained = case.megaflow.ufid in case.evidence.driver or any(
            reason.cause is Cause.TABLE_FULL for reason in reasons
        )
        reasons = reasons if is_explained else (*reasons, silent_refusal(case))
    if not reasons and (marked := marked_only(case)):
        reasons = (marked,)
    if all(reason.likelihood >= Likelihood.LIKELY for reason in reasons) and (off := likely_off(case)):
        reasons = (off, *reasons)
    if all(reason.likelihood is Likelihood.POSSIBLE for reason in reasons) and (fallback := not_offered(case)):
        reasons = (fallback, *reasons)
    # Overrides come first: the packets do not reach their backends at all.
    return _with_reasons(case, (*overrides, *_chain(case), *(reasons or (_UNKNOWN,))))


def _chain(case: Case) -> Iterator[Reason]:
    """Yield a reason if an earlier megaflow of the chain is not in hardware, so that packets miss this one's rule."""
    if (before := case.before) is not None:
        text = "its packets come from a megaflow that is not in hardware: the reason for that one comes first"
        seen = f"{before.ufid or '(no ufid)'} leads to recirc_id {case.megaflow.key('recirc_id')}"
        yield Reason(Cause.RECIRCULATION, Likelihood.CERTAIN, text, (seen,))


def _with_reasons(case: Case, listed: Iterable[Reason]) -> Case:
    # The commands work from any shell, also for an Open vSwitch elsewhere.
    shown = (replace(one, fix=tuple(map(case.evidence.target.text, one.fix))) for one in listed)
    return replace(case, reasons=tuple(shown))


def _remarks(case: Case) -> Iterator[Reason]:
    for name, text in case.megaflow.extra:
        if name == OFFLOAD_INFO:
            said = f"the datapath reports: {text}"
            yield Reason(Cause.REPORTED_BY_DATAPATH, Likelihood.CONFIRMED, said, (f"{name}:{text}",))


_RULES = (_remarks, setting_reasons, unwildcarded_reasons, action_reasons, chain_reasons, kernel_reasons)
_UNKNOWN = Reason(
    Cause.UNKNOWN,
    Likelihood.POSSIBLE,
    "no evidence explains it; with --reinstall Open vSwitch installs it again and logs why",
    fix=("xenoovs why FILE --reinstall",),
)


@dataclass(frozen=True, slots=True)
class MegaflowFilter:
    """Selects megaflows that meet all given conditions; without any, megaflows of all blocks, and answers.

    `source` (a client) and `ufid` (first digits) select megaflows outside all blocks too. `internal_ports`: None with a
    config. Without one every megaflow that belongs in hardware is selected, and others if the datapath reports why they
    are not.
    """

    service: str | None = None
    source: IPAddress | None = None
    ufid: str | None = None
    internal_ports: Set[str] | None = None

    def selects(self, candidate: Case) -> bool:
        if self.service is not None and self.service not in candidate.services:
            return False
        if self.source is not None and not _comes_from(candidate.megaflow, self.source):
            return False
        if self.ufid is not None:
            return (candidate.megaflow.ufid or "").startswith(self.ufid.lower())
        if self.internal_ports is not None and self.source is None:
            if candidate.link is not None and not candidate.link.is_judged:
                return False
            has_remark = any(name == OFFLOAD_INFO for name, _ in candidate.megaflow.extra)
            return has_remark or outside_kind_of(candidate.megaflow, self.internal_ports).is_judged
        return bool(candidate.services) or self.source is not None

    def describe_none(self, *, is_recorded: bool) -> str:
        """Return the message if no megaflow is selected. `is_recorded`: whether the dump was made earlier."""
        if self.ufid is not None:
            message = f"no megaflow has a ufid that begins with {self.ufid}"
        elif self.source is not None:
            message = f"no megaflow matches packets from {self.source}"
        elif self.internal_ports is not None:
            message = "no megaflow that belongs in hardware"
        else:
            message = f"no megaflow of {'the services' if self.service is None else f'service {self.service}'}"
        if is_recorded:
            return f"{message} in the dump"
        return f"{message} now: no traffic yet, or idle for longer than max-idle; send some and run this again"


def _comes_from(megaflow: Megaflow, source: IPAddress) -> bool:
    """Return whether the megaflow may match packets from this address."""
    matched = megaflow.source(source.version)
    return matched is not None and int(source) & matched.mask == matched.value


def group(diagnoses: Iterable[Case]) -> list[list[Case]]:
    """Return the cases with the same verdict for the same reasons together, the largest group first. All of a group are
    of blocks, of answers, or of no service."""
    by_key: dict[tuple[object, ...], list[Case]] = {}
    for found in diagnoses:
        kind = found.block is None, bool(found.answers)
        key = (found.verdict, *kind, tuple((reason.cause, reason.text) for reason in found.reasons))
        by_key.setdefault(key, []).append(found)
    return sorted(by_key.values(), key=lambda cases: -len(cases))


def describe_group(cases: Sequence[Case], *, has_config: bool) -> str:
    """Return verdict, number, services and packets of a group."""
    names = (each.answers if each.block is None else (each.block.service,) for each in cases)
    services = first_names(sorted({name for of in names for name in of}), most=LISTED)
    of = f" with answers of {services}" if services else " of no service"
    if backends := sorted({each.block.backend for each in cases if each.block}):
        of = f" of {services} ({first_names(backends, most=LISTED)})"
    packets = counted(sum(each.megaflow.packets for each in cases), "packet")
    return f"{cases[0].verdict.value}: {counted(len(cases), 'megaflow')}{of if has_config else ''}, {packets}"


def describe(found: Case) -> str:
    """Return the match of the megaflow's block, or the main keys of its own match."""
    if found.block is not None:
        return render_match(found.block.flow.match)
    return ",".join(f"{key.name}({key.inner})" for key in found.megaflow.keys if key.name in _MAIN_KEYS)


_MAIN_KEYS = frozenset(
    ("recirc_id", "in_port", "eth", "eth_type", "vlan", "ipv4", "ipv6", "tcp", "udp", "sctp", "icmp", "encap")
)


def to_json(selection: Selection) -> dict[str, object]:
    """Return the diagnoses for JSON, in the order of the dump."""
    return {
        "in_hardware": selection.in_hardware,
        "in_hardware_in_chains": selection.chained,
        "unconfirmed": selection.unconfirmed,
        "megaflows": [_diagnosis(found) for found in selection.candidates],
        "notes": list(selection.notes),
    }


def _diagnosis(found: Case) -> dict[str, object]:
    megaflow, block = found.megaflow, found.block
    return {
        "ufid": megaflow.ufid,
        "verdict": found.verdict.value,
        "service": block.service if block else None,
        "backend": block.backend if block else None,
        "answers_of": list(found.answers),
        "block": render_match(block.flow.match) if block else None,
        "in_port": megaflow.in_port,
        "match": ",".join(f"{key.name}({key.inner})" for key in megaflow.keys),
        "actions": list(megaflow.actions),
        "packets": megaflow.packets,
        "reasons": [_reason(reason) for reason in found.reasons],
    }


def _reason(reason: Reason) -> dict[str, object]:
    return {
        "cause": reason.cause.value,
        "likelihood": reason.likelihood.name.lower(),
        "text": reason.text,
        "evidence": list(reason.evidence),
        "fix": list(reason.fix),
        "source": reason.source,
    }


ReadFlows = Callable[[], tuple[Flow, ...] | None]
"""Returns the foreign flows; None if they cannot be read, as with a recorded dump."""

_Key = tuple[str, str | None, ExtraBits, frozenset[str]]


class Attribution:
    """Finds the foreign flows that un-wildcard bits of megaflows."""

    def __init__(
        self, services: tuple[ExpectedService, ...], bridge: str, own_mask: OwnMask, read_foreign: ReadFlows
    ) -> None:
        """Take what the flows of the bridge are for. Calls `read_foreign` at most once."""
        self._bridge, self._flows = bridge, cache(read_foreign)
        self._counter, self._index = UnwildcardCounter(own_mask), index_blocks(services)
        self._results = dict[_Key, Unwildcarding]()

    def attributed(self, candidate: Case) -> Case:
        """Return the case with the un-wildcarded bits. Raises what `read_foreign` raises."""
        fields = match_of(candidate.megaflow)
        if candidate.overrides:
            return replace(candidate, overrides=tuple(self._override(each, candidate) for each in candidate.overrides))
        located = self._index.locate(candidate.megaflow.in_port, fields)
        if located is None:
            return candidate
        entry, block = located
        actions = candidate.megaflow.actions
        is_open = is_slow_path(actions) or is_undetermined(actions)
        if not is_open and not delivers(candidate.megaflow, fields, block):
            overridden = self._override(BlockOverride(entry.service, 1), candidate)
            candidate = replace(candidate, overrides=(overridden,))
        extra = self._counter.extra_of(candidate.megaflow, fields, entry, block)
        return replace(candidate, unwildcarded=self._unwildcarded(extra, fields, entry)) if extra else candidate

    def _override(self, override: BlockOverride, candidate: Case) -> BlockOverride:
        foreign = self._flows()
        match = match_of_fields(candidate.megaflow.in_port, match_of(candidate.megaflow))
        flows = None if foreign is None else overriding_flows(match, foreign, service=override.service)
        return replace(override, flows=flows)

    def _unwildcarded(self, extra: ExtraBits, fields: Mapping[str, MaskedValue], entry: ServiceEntry) -> Unwildcarding:
        service, in_port = entry.service, entry.match.in_port
        added = frozenset(name for name, bits in extra if fields[name].mask == bits)
        key = service.name, in_port, extra, added
        found = self._results.get(key)
        if found is None:
            foreign = self._flows()
            flows = None if foreign is None else unwildcarding_flows(extra, foreign, service=service, in_port=in_port)
            found = self._results[key] = Unwildcarding(service.name, extra, 1, in_port, flows, added, self._bridge)
        return found


# Rules that the NIC holds and does not use.


_REINSTALL = (
    "# a reset of the NIC leaves a line of its driver here:",
    "dmesg",
    "# installs all rules again, and compares two samples of them; run it while traffic flows:",
    "xenoovs why FILE --reinstall",
)


def held_reasons(case: Case, held: MegaflowState) -> Iterator[Reason]:
    """Yield why the CPU forwards although the NIC holds the rule. The NIC accepted it, so no refusal is a reason."""
    evidence = tuple(_evidence(case, held))
    if case.verdict is Verdict.CONTRADICTED:
        text = (
            f"the NIC counts the packets, and {case.in_port} gave the CPU more than the megaflows explain: another "
            "program handles them before Open vSwitch, or the driver counts packets that it does not forward"
        )
        ports = tuple(each for each in case.evidence.port_checks if each.port == case.in_port)
        if any(port.twice for port in ports):
            text = "the driver counts packets as the NIC's that the CPU forwards"
        fix = tuple(command.format(port=case.in_port) for command in _CONTRADICTED)
        yield Reason(Cause.COUNTERS_CONTRADICTED, Likelihood.LIKELY, text, (*map(str, ports), *evidence), fix)
        return
    if held.reason:
        yield Reason(Cause.RECIRCULATION, Likelihood.CERTAIN, held.reason, evidence[1:])
        return
    unresolved = tuple(_unresolved(case, evidence))
    if any(reason.likelihood is Likelihood.CERTAIN for reason in unresolved):
        yield from unresolved
        return
    if case.verdict is not Verdict.IDLE_HW:
        text = "the NIC forwards only a part of the packets by the rule that it holds"
        yield Reason(Cause.RULE_PARTLY_USED, Likelihood.CONFIRMED, text, evidence, _REINSTALL)
        return
    text = "the NIC holds the rule and does not use it; likely it was reset and lost its rules, or it evicted this one"
    yield Reason(Cause.RULE_UNUSED, Likelihood.CONFIRMED, text, evidence, _REINSTALL)
    yield from unresolved


def _unresolved(case: Case, evidence: tuple[str, ...]) -> Iterator[Reason]:
    """Yield a reason if the MAC of a tunnel's next hop is unknown; CERTAIN if the next hop does not answer."""
    tunnels = case.evidence.host.tunnels
    for outer in encapsulations(case.megaflow.actions):
        remote = address_text(outer.remote, is_ipv6=outer.is_ipv6)
        fix = tuple(command.format(remote=remote) for command in _RESOLVE)
        hop, entry = (tunnels and tunnels.neighbour(remote)) or (remote, None)
        if entry is None:
            text = (
                f"the MAC of the next hop to {remote} may be unknown: until then mlx5 has a rule in place of this one "
                "that gives the packets to the CPU"
            )
            yield Reason(Cause.NEIGHBOUR_UNRESOLVED, Likelihood.POSSIBLE, text, (), fix)
        elif not entry.is_valid:
            text = f"the next hop to {remote} does not answer, and without its MAC the NIC cannot encapsulate"
            shown = f"{hop}: no answer ({entry.state})"
            yield Reason(Cause.NEIGHBOUR_UNRESOLVED, Likelihood.CERTAIN, text, (shown, *evidence), fix)


_RESOLVE = (
    "# the next hop must be REACHABLE or STALE:",
    "ip route get {remote}",
    "ip neigh show",
    "# makes the kernel ask for its MAC:",
    "ping -c 1 {remote}",
)
_CONTRADICTED = (
    "# rules without a cookie are not Open vSwitch's:",
    "tc -s filter show dev {port} ingress",
    "# `prog/xdp` is a program that gets packets before Open vSwitch:",
    "ip link show dev {port}",
    "# packets that reach the CPU:",
    "tcpdump -c 20 -ni {port}",
    "# if these are packets of the megaflow and no other program is there, let Open vSwitch install the rules again:",
    "xenoovs why FILE --reinstall",
    "# if that does not help, report it to the vendor of the driver",
)


def _evidence(case: Case, state: MegaflowState) -> Iterator[str]:
    if state.growth is not None and state.growth.packets:
        came = f"{counted(state.growth.packets, 'packet')} came between two samples"
        yield f"{came}, {state.growth.hw_packets} of them in hardware"
    else:
        yield f"{counted(state.packets, 'packet')} since the rule was installed, {state.hw_packets} of them in hardware"
    if case.filter is not None:
        # Imported here, as most runs do not need it.
        from xenoovs.judge.links import filter_text

        yield filter_text(case.filter, case.in_port or "-")
