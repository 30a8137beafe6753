"""Reasons that lie in flows of others: what they look at, our megaflows match too, also where the NIC cannot.

Open vSwitch adds the mask of every subtable that a packet passes to its megaflow (lib/classifier.c).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from shlex import join

from xenoovs.compile.offloadable.check import Offloadability, judge
from xenoovs.compile.offloadable.openflow_match import matched
from xenoovs.openflow.field import Field
from xenoovs.openflow.flow import Flow
from xenoovs.openflow.match import Match
from xenoovs.openflow.render import render_flow, render_key_to_send, render_match_to_send
from xenoovs.openflow.value import render_bits
from xenoovs.verify.verdict import Verdict
from xenoovs.verify.why.actions import explains, profile_of, version_of
from xenoovs.verify.why.case import Case, Widened, shape_of
from xenoovs.verify.why.reason import Cause, Likelihood, Reason

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
        for found in judge(tuple(matched(alone)), profile_of(case), version_of(case)):
            if found.offload.is_lost and explains(found, case.verdict):
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
