"""Reasons that lie in the megaflow itself: keys and actions that Open vSwitch does not give to the hardware.

What it gives is the table of `compile.offloadable`; a line of the log that says the same makes a reason sure.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from xenoovs.compile.offloadable.check import Offloadability, check_megaflow
from xenoovs.compile.offloadable.row import DEFAULT_VERSION, Kind, Offload, Profile, Version, parse_version
from xenoovs.verify.verdict import Verdict
from xenoovs.verify.why.case import Case
from xenoovs.verify.why.log import Refusal
from xenoovs.verify.why.reason import Cause, Likelihood, Reason

_CAUSES = {
    Kind.MATCH: Cause.UNSUPPORTED_MATCH,
    Kind.ACTION: Cause.UNSUPPORTED_ACTION,
    Kind.COMBINATION: Cause.UNSUPPORTED_ACTION,
    Kind.PLACE: Cause.EGRESS_ELSEWHERE,
}
_SPECIAL = {
    "controller": Cause.SLOW_PATH,
    "slow-path": Cause.SLOW_PATH,
    "recirculated": Cause.RECIRCULATION,
    "output-local": Cause.EGRESS_ELSEWHERE,
    "other-eswitch": Cause.EGRESS_ELSEWHERE,
}
"""Topics of the table that have a cause of their own."""

_PARTLY = {
    Verdict.SW: frozenset((Offload.SW, Offload.DEPENDS)),
    Verdict.TC_SW: frozenset((Offload.TC_SW, Offload.DEPENDS)),
    Verdict.PARTIAL: frozenset((Offload.PARTIAL, Offload.SW, Offload.DEPENDS)),
}
"""What may have brought a megaflow where it runs."""


def action_reasons(case: Case) -> Iterator[Reason]:
    """What the table says of this megaflow, and what the log says of it."""
    told = set[Refusal]()
    for found in check_megaflow(case.megaflow, profile_of(case), version_of(case), internal=_internal(case)):
        if explains(found, case.verdict):
            lines = tuple(refusal for refusal in _refusals(case) if _says(refusal, found))
            told.update(lines)
            yield _reason(found, lines)
    for refusal in _refusals(case):
        if refusal not in told:
            likelihood = Likelihood.TOLD if refusal.is_specific else Likelihood.LIKELY
            text = f"Open vSwitch says: {refusal.message}"
            yield Reason(refusal.cause, likelihood, text, (refusal.line,), source=refusal.source)


def explains(found: Offloadability, verdict: Verdict) -> bool:
    """Whether what the table says may have brought a megaflow where it runs."""
    return found.offload in _PARTLY[verdict]


def _refusals(case: Case) -> tuple[Refusal, ...]:
    """What was logged that can be about it. Of what traffic control has, Open vSwitch refused nothing."""
    if case.verdict is Verdict.TC_SW:
        return ()
    return tuple(refusal for refusal in case.evidence.refusals if refusal.fits(case.megaflow))


def _says(refusal: Refusal, found: Offloadability) -> bool:
    return found.row.message is not None and found.row.message in refusal.message


def _reason(found: Offloadability, lines: tuple[Refusal, ...]) -> Reason:
    certainty = Likelihood.LIKELY if found.offload is Offload.DEPENDS else Likelihood.CERTAIN
    return Reason(
        _SPECIAL.get(found.topic.name) or _CAUSES[found.topic.kind],
        Likelihood.TOLD if lines else certainty,
        f"{found.topic.what}: {found.row.text}",
        (found.evidence, *(refusal.line for refusal in lines)),
        source=found.row.source,
    )


def profile_of(case: Case) -> Profile:
    """How Open vSwitch reaches the NIC that the megaflow is for; where nothing tells, by traffic control."""
    bridge, port, database = case.bridge, case.interface, case.evidence.database
    if case.megaflow.layer == "doca" or (bridge is not None and bridge.datapath_type == "doca"):
        return Profile.DOCA
    if bridge is None or bridge.datapath_type == "system":
        return Profile.TC
    is_doca = port is not None and (port.type == "doca" or (database is not None and database.has_doca))
    return Profile.DOCA if is_doca else Profile.DPDK


def version_of(case: Case) -> Version:
    """Of the Open vSwitch that runs; where it is not known, the default of the table."""
    told = case.evidence.version
    if told is not None:
        with suppress(ValueError):
            return parse_version(told)
    return DEFAULT_VERSION


def _internal(case: Case) -> tuple[str, ...]:
    """The bridge's own port, and others of type internal."""
    bridge = case.bridge
    if bridge is None:
        return ()
    return (bridge.name, *(interface.name for interface in bridge.interfaces if interface.type == "internal"))
