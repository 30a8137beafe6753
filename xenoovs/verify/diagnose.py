"""Why megaflows are not in hardware: every witness is heard, and the reasons are put in order, most likely first.

Witnesses: remarks of the datapath in the dump, settings and ports, the table of what can be offloaded, the log of
ovs-vswitchd, traffic control and the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from xenoovs.datapath.megaflow import Megaflow
from xenoovs.verify.expected import ExpectedBlock
from xenoovs.verify.verdict import Verdict, verdict_of
from xenoovs.verify.why.actions import action_reasons
from xenoovs.verify.why.case import Case, Evidence, Shape, Widened, shape_of
from xenoovs.verify.why.kernel import kernel_reasons, silent_refusal
from xenoovs.verify.why.reason import Cause, Likelihood, Reason, rank
from xenoovs.verify.why.settings import not_offered, setting_reasons
from xenoovs.verify.why.widened import widened_reasons

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
