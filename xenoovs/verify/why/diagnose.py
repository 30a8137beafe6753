"""Why megaflows are not in hardware: the evidence of every source, ordered by how likely it is, as a report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv6Address

from xenoovs.datapath.megaflow import MaskedValue, Megaflow, Verdict, match_of, verdict_of
from xenoovs.openflow.flow import Flow
from xenoovs.openflow.text import render_match
from xenoovs.verify.expected import BlockIndex, ExpectedBlock, ServiceEntry
from xenoovs.verify.foreign import ExtraBits, OwnMask, UnwildcardCounter, unwildcarding_flows
from xenoovs.verify.why.case import Case, Evidence, Shape, Widened, shape_of
from xenoovs.verify.why.flows import action_reasons, widened_reasons
from xenoovs.verify.why.kernel import kernel_reasons, silent_refusal
from xenoovs.verify.why.reason import Cause, Likelihood, Reason, rank
from xenoovs.verify.why.settings import not_offered, setting_reasons

# Why megaflows are not in hardware: every witness is heard, and the reasons are put in order, most likely first.
#
# Witnesses: remarks of the datapath in the dump, settings and ports, the table of what can be offloaded, the log of
# ovs-vswitchd, traffic control and the driver.


FindBlock = Callable[[Megaflow], ExpectedBlock | None]

_MOST_SUSPECTS = 100_000
"""Each is kept to be asked about, in some two kilobytes."""

_REMARK = "dp-offload-info"
"""Newer forks tell the reason in the dump itself, behind the actions."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One megaflow that is not in hardware. `reasons`: at least one, most likely first."""

    megaflow: Megaflow
    verdict: Verdict
    block: ExpectedBlock | None
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class Suspect:
    """A megaflow that is not in hardware, before anybody is asked why. `widened`: as in Case, by `blame`."""

    megaflow: Megaflow
    verdict: Verdict
    block: ExpectedBlock | None
    widened: Widened | None = None


@dataclass(frozen=True, slots=True)
class Lineup:
    """The megaflows of a question: those not in hardware, and how many are. `evidence`: with what the dump tells.

    unjudged: megaflows of a dump made without `-m`. left_out: not in hardware, and more than are looked at.
    """

    suspects: tuple[Suspect, ...]
    in_hardware: int
    unjudged: int
    shapes: frozenset[Shape]
    left_out: int = 0


def line_up(megaflows: Iterable[Megaflow], *, find: FindBlock, asked: Callable[[Suspect], bool]) -> Lineup:
    """Sort the megaflows of a dump. `asked`: whether the question is about this one."""
    suspects, shapes, in_hardware, unjudged, left_out = list[Suspect](), set[Shape](), 0, 0, 0
    for megaflow in megaflows:
        verdict = verdict_of(megaflow)
        if verdict is Verdict.HW and len(shapes) < _MOST_SUSPECTS:
            shapes.add(shape_of(megaflow))
        suspect = Suspect(megaflow, verdict or Verdict.ABSENT, find(megaflow))
        if not asked(suspect):
            continue
        if verdict is None:
            unjudged += 1
        elif verdict is Verdict.HW:
            in_hardware += 1
        elif len(suspects) < _MOST_SUSPECTS:
            suspects.append(suspect)
        else:
            left_out += 1
    return Lineup(tuple(suspects), in_hardware, unjudged, frozenset(shapes), left_out)


def diagnose(lineup: Lineup, evidence: Evidence) -> tuple[Diagnosis, ...]:
    """The reasons for each suspect, in the order of the dump."""
    known = replace(evidence, in_hardware=lineup.shapes)
    return tuple(_diagnose(suspect, known) for suspect in lineup.suspects)


def _diagnose(suspect: Suspect, evidence: Evidence) -> Diagnosis:
    case = Case(suspect.megaflow, suspect.verdict, suspect.block, evidence, suspect.widened)
    reasons = rank((*_remarks(case), *_witnesses(case)))
    if suspect.verdict is Verdict.TC_SW and all(reason.likelihood >= Likelihood.LIKELY for reason in reasons):
        told = case.megaflow.ufid in evidence.driver or any(reason.cause is Cause.TABLE_FULL for reason in reasons)
        reasons = reasons if told else (*reasons, silent_refusal(case))
    if all(reason.likelihood is Likelihood.POSSIBLE for reason in reasons) and (left := not_offered(case)):
        reasons = (left, *reasons)
    given = reasons or (_unknown(),)
    return Diagnosis(suspect.megaflow, suspect.verdict, suspect.block, tuple(_addressed(r, case) for r in given))


def _addressed(reason: Reason, case: Case) -> Reason:
    """With commands that reach the Open vSwitch that was asked, from any shell."""
    return replace(reason, mend=tuple(map(case.evidence.where.text, reason.mend)))


def _witnesses(case: Case) -> Iterator[Reason]:
    yield from setting_reasons(case)
    yield from widened_reasons(case)
    yield from action_reasons(case)
    yield from kernel_reasons(case)


def _remarks(case: Case) -> Iterator[Reason]:
    for name, text in case.megaflow.extra:
        if name == _REMARK:
            yield Reason(Cause.TOLD_BY_DATAPATH, Likelihood.TOLD, f"the datapath says: {text}", (f"{name}:{text}",))


def _unknown() -> Reason:
    text = "nothing that was seen explains it; --reinstall lets Open vSwitch install it again and say why"
    return Reason(Cause.UNKNOWN, Likelihood.POSSIBLE, text, (), ("xenoovs why FILE --reinstall",))


# Which megaflows a question is about: of a service, from an address, by ufid; by default of all blocks.


Address = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class Question:
    """All that is given must hold; with `source` or `ufid` also of megaflows of no block. `ufid`: its first digits."""

    service: str | None = None
    source: Address | None = None
    ufid: str | None = None

    def asks_about(self, suspect: Suspect) -> bool:
        """Whether it is about this megaflow."""
        if self.service is not None and (suspect.block is None or suspect.block.service != self.service):
            return False
        if self.source is not None and not _comes_from(suspect.megaflow, self.source):
            return False
        if self.ufid is not None:
            return (suspect.megaflow.ufid or "").startswith(self.ufid.lower())
        return suspect.block is not None or self.source is not None

    def nothing_found(self, *, is_recorded: bool) -> str:
        """What to tell where no megaflow is asked about. `is_recorded`: of a dump that somebody made earlier."""
        if self.ufid is not None:
            told = f"no megaflow has a ufid that begins with {self.ufid}"
        elif self.source is not None:
            told = f"no megaflow takes packets from {self.source}"
        else:
            told = f"no megaflow of {'the services' if self.service is None else f'service {self.service}'}"
        if is_recorded:
            return f"{told} in the dump"
        return f"{told} now: no traffic yet, or idle longer than max-idle; send some and ask again"


def _comes_from(megaflow: Megaflow, source: Address) -> bool:
    """Whether packets from this address can belong to it."""
    seen = megaflow.ipv4_src if isinstance(source, IPv4Address) else megaflow.ipv6_src
    return seen is not None and int(source) & seen.mask == seen.value


# Diagnoses as plain values: groups for people, a dict that is ready for JSON for programs.


@dataclass(frozen=True, slots=True)
class Group:
    """Megaflows, all of services or none, that run in one place for the same reasons.

    reasons: with the evidence of the first of them.
    """

    verdict: Verdict
    reasons: tuple[Reason, ...]
    diagnoses: tuple[Diagnosis, ...]

    @property
    def services(self) -> tuple[str, ...]:
        """Names, sorted."""
        return tuple(sorted({found.block.service for found in self.diagnoses if found.block}))

    @property
    def backends(self) -> tuple[str, ...]:
        """Names, sorted."""
        return tuple(sorted({found.block.backend for found in self.diagnoses if found.block}))

    @property
    def packets(self) -> int:
        return sum(found.megaflow.packets for found in self.diagnoses)


def group(diagnoses: Iterable[Diagnosis]) -> tuple[Group, ...]:
    """Largest first."""
    alike: dict[tuple[object, ...], list[Diagnosis]] = {}
    for found in diagnoses:
        key = (found.verdict, found.block is None, tuple((reason.cause, reason.text) for reason in found.reasons))
        alike.setdefault(key, []).append(found)
    groups = (Group(found[0].verdict, found[0].reasons, tuple(found)) for found in alike.values())
    return tuple(sorted(groups, key=lambda group: -len(group.diagnoses)))


def describe(found: Diagnosis) -> str:
    """The megaflow in one line: where it comes in, and the match of its block or of its own."""
    if found.block is not None:
        return render_match(found.block.flow.match)
    return ",".join(f"{key.name}({key.inner})" for key in found.megaflow.keys if key.name in _TELLING)


_TELLING = frozenset(("recirc_id", "in_port", "eth", "eth_type", "ipv4", "ipv6", "tcp", "udp", "sctp", "icmp", "encap"))


def to_json(diagnoses: Iterable[Diagnosis], *, in_hardware: int, notes: Iterable[str]) -> dict[str, object]:
    """`megaflows`: those not in hardware, in the order of the dump; `notes`: what could not be looked at."""
    return {
        "in_hardware": in_hardware,
        "megaflows": [_diagnosis(found) for found in diagnoses],
        "notes": list(notes),
    }


def _diagnosis(found: Diagnosis) -> dict[str, object]:
    megaflow: Megaflow = found.megaflow
    block = found.block
    return {
        "ufid": megaflow.ufid,
        "verdict": found.verdict.value,
        "service": block.service if block else None,
        "backend": block.backend if block else None,
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
        "mend": list(reason.mend),
        "source": reason.source,
    }


# Suspects of why beside the flows of others: what each megaflow matches beyond ours, and who looks there.


ReadFlows = Callable[[], tuple[Flow, ...] | None]
"""The flows of others; None: there are none to read, as beside a dump alone."""

_Key = tuple[str, str | None, ExtraBits, frozenset[str]]


@dataclass(slots=True)
class Blame:
    """Names who widened what. `read_foreign` is called once, and only where a megaflow is wider than ours make it."""

    index: BlockIndex
    bridge: str
    own_mask: OwnMask
    read_foreign: ReadFlows
    _found: dict[_Key, Widened] = field(default_factory=dict)
    _foreign: list[tuple[Flow, ...] | None] = field(default_factory=list)

    def told(self, lineup: Lineup) -> Lineup:
        """The same lineup, with what widened each suspect. Raises what `read_foreign` does."""
        counter = UnwildcardCounter(self.own_mask)
        return replace(lineup, suspects=tuple(self._blamed(suspect, counter) for suspect in lineup.suspects))

    def _blamed(self, suspect: Suspect, counter: UnwildcardCounter) -> Suspect:
        fields = match_of(suspect.megaflow)
        located = self.index.locate(suspect.megaflow.in_port, fields)
        if located is None:
            return suspect
        place, block = located
        extra = counter.extra_of(suspect.megaflow, fields, place, block)
        return replace(suspect, widened=self._widened(extra, fields, place)) if extra else suspect

    def _widened(self, extra: ExtraBits, fields: Mapping[str, MaskedValue], entry: ServiceEntry) -> Widened:
        service, in_port = entry.service, entry.match.in_port
        added = frozenset(name for name, bits in extra if fields[name].mask == bits)
        key = service.name, in_port, extra, added
        found = self._found.get(key)
        if found is None:
            foreign = self._flows()
            flows = None if foreign is None else unwildcarding_flows(extra, foreign, service=service, in_port=in_port)
            found = self._found[key] = Widened(self.bridge, extra, added, flows)
        return found

    def _flows(self) -> tuple[Flow, ...] | None:
        if not self._foreign:
            self._foreign.append(self.read_foreign())
        return self._foreign[0]
