"""Reasons that lie in flows: in keys and actions of a megaflow itself, or in flows of others that widen its mask."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from shlex import join

from xenoovs.compile.offloadable.check import Offloadability, check_megaflow, judge
from xenoovs.compile.offloadable.openflow_topics import match_topics
from xenoovs.compile.offloadable.table import DEFAULT_VERSION, Offload, Profile, TopicKind, Version, parse_version
from xenoovs.datapath.megaflow import Verdict
from xenoovs.openflow.flow import Field, Flow, Match
from xenoovs.openflow.text import render_bits, render_flow, render_key_to_send, render_match_to_send
from xenoovs.verify.why.case import Case, Widened, shape_of
from xenoovs.verify.why.log import Refusal
from xenoovs.verify.why.reason import Cause, Likelihood, Reason

# Reasons that lie in the megaflow itself: keys and actions that Open vSwitch does not give to the hardware.
#
# What it gives is the table of `compile.offloadable`; a line of the log that says the same makes a reason sure.


_CAUSES = {
    TopicKind.MATCH: Cause.UNSUPPORTED_MATCH,
    TopicKind.ACTION: Cause.UNSUPPORTED_ACTION,
    TopicKind.COMBINATION: Cause.UNSUPPORTED_ACTION,
    TopicKind.ENVIRONMENT: Cause.EGRESS_ELSEWHERE,
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
    for found in check_megaflow(case.megaflow, profile_of(case), version_of(case), internal_ports=_internal(case)):
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


# Reasons that lie in flows of others: what they look at, our megaflows match too, also where the NIC cannot.
#
# Open vSwitch adds the mask of every subtable that a packet passes to its megaflow (lib/classifier.c).


_SHOWN = 3
_ENOSPC = 28
"""errno(3) of Linux, all architectures that have eSwitches."""

_AGAIN = "ovs-appctl revalidator/purge"
"""A megaflow that is narrower than needed stays as long as packets come (revalidate_ukey of ofproto-dpif-upcall.c)."""

_OWNER = "# whether {it} may go is {its} owner's to say: leave {it}, give {it} a priority below ours, or delete {it}:"


def widened_reasons(case: Case) -> Iterator[Reason]:
    """Which bits no flow of ours looks at, and whose flow does. Nothing where the driver takes such a rule."""
    widened, answer = case.widened, case.evidence.driver.get(case.megaflow.ufid or "")
    if widened is None or (answer is not None and answer.error is None):
        return
    lost = next(_unsupported(case, widened), None)
    likelihood, effect = Likelihood.POSSIBLE, "so it takes more entries of the NIC than planned"
    if lost is not None:
        likelihood, effect = Likelihood.CERTAIN, f"and that is not offloaded ({lost.topic.what}: {lost.row.text})"
    elif _may_be_refused(case, widened):
        likelihood, effect = Likelihood.LIKELY, "and a driver refuses every rule with a key that it does not know"
    yield Reason(
        Cause.WIDENED,
        likelihood,
        f"{_whose(widened)}: it matches {_bits(widened)} too, at which no flow of its service looks, {effect}",
        _seen(widened),
        _mending(widened),
        lost.row.source if lost is not None else None,
    )


def _may_be_refused(case: Case, widened: Widened) -> bool:
    """Whether the driver may have refused it for a key that our flows alone would not have brought in."""
    if case.verdict is not Verdict.TC_SW or not widened.added or shape_of(case.megaflow) in case.evidence.in_hardware:
        return False
    answer = case.evidence.driver.get(case.megaflow.ufid or "")
    return answer is None or answer.error != _ENOSPC


def _unsupported(case: Case, widened: Widened) -> Iterator[Offloadability]:
    """What the table says of the fields that others brought in, the worst first."""
    names = {name for name, _ in widened.fields}
    for flow in (widened.flows or ())[:_SHOWN]:
        alone = _only(flow.match, names)
        for found in judge(tuple(match_topics(alone)), profile_of(case), version_of(case)):
            if found.offload.is_software and explains(found, case.verdict):
                yield found


def _only(match: Match, names: set[str]) -> Match:
    """The conditions on these fields; the EtherType stays, as it tells which ICMP is meant."""
    masked = tuple(one for one in match.masked if one.field.ovs_name in names or one.field is Field.DL_TYPE)
    foreign = tuple(text for text in match.foreign if text.partition("=")[0] in names)
    return replace(match, masked=masked, foreign=foreign)


def _whose(widened: Widened) -> str:
    if widened.flows is None:
        return "widened, by flows that were not seen"
    if not widened.flows:
        return "widened, by no flow that is there now (left from before a change)"
    return "widened by a flow of others" if len(widened.flows) == 1 else "widened by flows of others"


def _bits(widened: Widened) -> str:
    return ", ".join(f"{name} {render_bits(name, bits)}" for name, bits in widened.fields)


def _seen(widened: Widened) -> tuple[str, ...]:
    flows = widened.flows or ()
    more = (f"and {len(flows) - _SHOWN} more flows that look there",) if len(flows) > _SHOWN else ()
    return (*(f"flow of others on {widened.bridge}: {render_flow(flow)}" for flow in flows[:_SHOWN]), *more)


def _mending(widened: Widened) -> tuple[str, ...]:
    if widened.flows is None:
        return ("xenoovs why FILE --from-dump DUMP --from-flows FLOWS",)
    shown, is_one = widened.flows[:_SHOWN], len(widened.flows) == 1
    if not shown:
        return (_AGAIN,)
    owner = _OWNER.format(it="it" if is_one else "each", its="its" if is_one else "their")
    looks = tuple(_look(widened.bridge, flow) for flow in shown)
    deletes = (join(("ovs-ofctl", "--strict", "del-flows", widened.bridge, render_key_to_send(flow))) for flow in shown)
    return (*dict.fromkeys(looks), owner, *deletes, _AGAIN)


def _look(bridge: str, flow: Flow) -> str:
    """The command that shows the flow with its counters; ovs-ofctl asks for no priority there."""
    match = ",".join(filter(None, (f"table={flow.table}", render_match_to_send(flow.match))))
    return join(("ovs-ofctl", "--names", "dump-flows", bridge, match))
