"""Reasons in flows: keys and actions of the megaflow itself, or foreign flows that un-wildcard bits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from shlex import join

from xenoovs.compile.offloadable.check import Offloadability, check_megaflow, judge
from xenoovs.compile.offloadable.openflow_topics import match_topics
from xenoovs.compile.offloadable.table import SOURCES, Offload, Profile, TopicKind
from xenoovs.datapath.megaflow import Verdict
from xenoovs.datapath.tc import Objection, objection_of
from xenoovs.errors import counted
from xenoovs.judge.findings import Unwildcarding
from xenoovs.judge.why.case import Case, shape_of
from xenoovs.judge.why.log import Refusal
from xenoovs.judge.why.reason import REVALIDATOR_PURGE, Cause, Likelihood, Reason
from xenoovs.openflow.flow import Field, Flow, Match
from xenoovs.openflow.text import render_bits, render_flow, render_key_to_send, render_match_to_send

_CAUSES = {
    TopicKind.MATCH: Cause.UNSUPPORTED_MATCH,
    TopicKind.ACTION: Cause.UNSUPPORTED_ACTION,
    TopicKind.COMBINATION: Cause.UNSUPPORTED_ACTION,
    TopicKind.ENVIRONMENT: Cause.EGRESS_NOT_ON_ESWITCH,
}
_SPECIAL = {
    "controller": Cause.SLOW_PATH,
    "slow-path": Cause.SLOW_PATH,
    "recirculated": Cause.RECIRCULATION,
    "output-local": Cause.EGRESS_NOT_ON_ESWITCH,
    "other-eswitch": Cause.EGRESS_NOT_ON_ESWITCH,
}
"""Topics of the offload table with a cause of their own."""

_MAY_CAUSE = {
    Verdict.SW: frozenset((Offload.SW, Offload.DEPENDS)),
    Verdict.TC_SW: frozenset((Offload.TC_SW, Offload.DEPENDS)),
    Verdict.PARTIAL: frozenset((Offload.PARTIAL, Offload.SW, Offload.DEPENDS)),
    # In traffic control only, although the driver counts its packets as the NIC's.
    Verdict.CONTRADICTED: frozenset((Offload.TC_SW, Offload.DEPENDS)),
}
"""Verdict of a megaflow -> verdicts of the offload table that may explain it."""


def action_reasons(case: Case) -> Iterator[Reason]:
    """Yield the reasons of the offload table and the log for this megaflow. A line of the log confirms the table."""
    used = set[Refusal]()
    for found in check_megaflow(case.megaflow, case.profile, case.version, internal_ports=_internal_ports(case)):
        if explains(found, case.verdict):
            message = found.row.message
            lines = tuple(each for each in _refusals(case) if message is not None and message in each.message)
            used.update(lines)
            yield _reason(case, found, lines)
    for refusal in _refusals(case):
        if refusal.is_without_entry:
            yield _without_entry(case, refusal)
        elif refusal not in used:
            likelihood = Likelihood.CONFIRMED if refusal.is_specific else Likelihood.LIKELY
            text = f"Open vSwitch logged: {refusal.message}"
            yield Reason(refusal.cause, likelihood, text, (refusal.line,), source=refusal.source)


def marked_only(case: Case) -> Reason | None:
    """Return why the NIC only marks packets of a DPDK megaflow with supported actions; None for other megaflows."""
    if case.verdict is not Verdict.PARTIAL or case.profile is not Profile.DPDK or not case.egress:
        return None
    text = (
        f"the NIC only marks the packets, and the CPU sends them to {', '.join(case.egress)}: the driver does not take "
        "the actions, as for a vhost-user port or a port of another NIC"
    )
    seen, source = "offloaded:partial, and Open vSwitch could translate all actions", SOURCES["dpdk-marked"]
    return Reason(Cause.EGRESS_NOT_ON_ESWITCH, Likelihood.LIKELY, text, (seen,), source=source)


_MODULES = ("act_pedit", "act_csum", "act_tunnel_key", "act_ct", "act_vlan", "act_mirred")


def _without_entry(case: Case, refusal: Refusal) -> Reason:
    """Return the reason for ENOENT: the kernel did not find the qdisc, or the module of an action."""
    port = case.in_port or refusal.port or "PORT"
    writes = any(action.startswith("set(") for action in case.megaflow.actions)
    lacks = f"lacks a module for its actions ({'act_pedit, act_csum' if writes else 'act_mirred ...'})"
    likelihood = Likelihood.LIKELY if refusal.ufid is None else Likelihood.CONFIRMED
    text = f"the kernel did not find what the rule needs: {port} has no ingress qdisc, or the kernel {lacks}"
    first = (
        f"tc qdisc show dev {port}",
        "# if it has neither `ingress` nor `clsact`, find out what removed it (NetworkManager, a bond), then:",
    )
    fix = (*first, *case.evidence.target.restart, f"modprobe -a {' '.join(_MODULES)}", REVALIDATOR_PURGE)
    return Reason(Cause.NO_INGRESS_QDISC, likelihood, text, (refusal.line,), fix, refusal.source)


def explains(found: Offloadability, verdict: Verdict) -> bool:
    """Return whether the table's verdict may explain the verdict of a megaflow."""
    return found.offload in _MAY_CAUSE[verdict]


def _refusals(case: Case) -> tuple[Refusal, ...]:
    """Return the refusals that may be about the megaflow; none for megaflows in traffic control."""
    if case.verdict is Verdict.TC_SW:
        return ()
    fitting = tuple(refusal for refusal in case.refusals if refusal.fits(case.megaflow))
    # If a line names the megaflow, lines about any megaflow of its port add nothing.
    named = {refusal.cause for refusal in fitting if refusal.ufid is not None}
    return tuple(one for one in fitting if one.ufid is not None or one.pattern is not None or one.cause not in named)


def _reason(case: Case, found: Offloadability, lines: tuple[Refusal, ...]) -> Reason:
    certainty = Likelihood.LIKELY if found.offload is Offload.DEPENDS else Likelihood.CERTAIN
    likelihood = Likelihood.CONFIRMED if lines else certainty
    cause, text = _SPECIAL.get(found.topic.name) or _CAUSES[found.topic.kind], f"{found.topic.what}: {found.row.text}"
    seen = (found.evidence, *(refusal.line for refusal in lines))
    fix = _stop_sampling(case) if found.topic.name == "sampled" else ()
    return Reason(cause, likelihood, text, seen, fix, found.row.source)


def _stop_sampling(case: Case) -> tuple[str, ...]:
    """Return the commands that end sFlow and IPFIX of the bridge; another program may need them."""
    if case.bridge is None:
        return ()
    clear = ("ovs-vsctl", "clear", "Bridge", case.bridge.name)
    return (*(join((*clear, each)) for each in case.bridge.exporters if each != "netflow"), REVALIDATOR_PURGE)


def _internal_ports(case: Case) -> tuple[str, ...]:
    """Return the bridge's own port and others of type internal."""
    bridge = case.bridge
    if bridge is None:
        return ()
    return (bridge.name, *(port.name for port in bridge.ports if port.type == "internal"))


# Foreign flows. Open vSwitch adds the mask of every subtable that a packet passes to its megaflow (lib/classifier.c).


_SHOWN = 3
_FOR_ROOM = (Objection.TABLE_FULL, Objection.COLLISION)
"""Objections that are not about a key."""

_OWNER = "# ask the {owner} first; then give {it} a lower priority than the flows of xenoovs, or delete it:"


def override_reasons(case: Case) -> Iterator[Reason]:
    """Yield a reason for each service whose blocks this megaflow overrides, with the foreign flows that cause it."""
    bridge = case.bridge.name if case.bridge is not None else None
    for override in case.overrides:
        actions = ",".join(case.megaflow.actions)
        flows = override.flows or ()
        evidence = [f"foreign flow{f' on {bridge}' if bridge else ''}: {render_flow(flow)}" for flow in flows[:_SHOWN]]
        yield Reason(
            Cause.OVERRIDDEN,
            Likelihood.CERTAIN,
            f"packets of {counted(override.blocks, 'block')} of {override.service.name} match this megaflow and are "
            f"sent elsewhere ({actions}): a foreign flow of higher priority takes them",
            tuple(evidence),
            tuple(dict.fromkeys(_show(bridge or "BRIDGE", flow) for flow in flows[:_SHOWN])),
        )


def unwildcarded_reasons(case: Case) -> Iterator[Reason]:
    """Yield the bits that foreign flows un-wildcard; nothing if the driver accepts such a rule."""
    bits, answer = case.unwildcarded, case.driver_answer
    if bits is None or (answer is not None and answer.is_accepted):
        return
    is_netflow = not bits.flows and case.bridge is not None and "netflow" in case.bridge.exporters
    unsupported = next(_unsupported(case, bits), None)
    shown = ", ".join(f"{name} {render_bits(name, mask)}" for name, mask in bits.fields)
    likelihood, effect = Likelihood.POSSIBLE, ", which takes more entries of the NIC than planned"
    if unsupported is not None:
        topic = f"{unsupported.topic.what}: {unsupported.row.text}"
        likelihood, effect = Likelihood.CERTAIN, f", which is not offloaded ({topic})"
    elif _may_be_refused(case, bits):
        likelihood, effect = Likelihood.LIKELY, "; drivers refuse rules with keys that they do not support"
    whose, fix = _whose(bits), _fix(bits)
    if is_netflow:
        whose = "NetFlow of the bridge un-wildcards"
        fix = (join(("ovs-vsctl", "clear", "Bridge", bits.bridge, "netflow")), REVALIDATOR_PURGE)
    source = None if unsupported is None else unsupported.row.source
    yield Reason(Cause.UNWILDCARDED, likelihood, f"{whose} {shown}{effect}", _evidence(bits), fix, source)


def _may_be_refused(case: Case, bits: Unwildcarding) -> bool:
    """Return whether the driver may have refused it for a key that only foreign flows match."""
    if case.verdict is not Verdict.TC_SW or not bits.added or shape_of(case.megaflow) in case.evidence.in_hardware:
        return False
    answer = case.driver_answer
    return answer is None or objection_of(answer.error, answer.message) not in _FOR_ROOM


def _unsupported(case: Case, bits: Unwildcarding) -> Iterator[Offloadability]:
    """Yield the rows of the table about the un-wildcarded fields, the worst first."""
    names = {name for name, _ in bits.fields}
    for flow in (bits.flows or ())[:_SHOWN]:
        alone = _only(flow.match, names)
        for found in judge(tuple(match_topics(alone)), case.profile, case.version):
            if found.offload.is_software and explains(found, case.verdict):
                yield found


def _only(match: Match, names: set[str]) -> Match:
    """Return the conditions on these fields, and on the EtherType, which distinguishes ICMP from ICMPv6."""
    masked = tuple(one for one in match.masked if one.field.ovs_name in names or one.field is Field.DL_TYPE)
    foreign = tuple(text for text in match.foreign if text.partition("=")[0] in names)
    return replace(match, masked=masked, foreign=foreign)


def _whose(bits: Unwildcarding) -> str:
    if bits.flows is None:
        return "flows that were not read un-wildcard"
    if not bits.flows:
        return "a flow that is gone (the megaflow is from before a change) un-wildcarded"
    return "a foreign flow un-wildcards" if len(bits.flows) == 1 else "foreign flows un-wildcard"


def _evidence(bits: Unwildcarding) -> tuple[str, ...]:
    flows = bits.flows or ()
    more = (f"and {len(flows) - _SHOWN} more flows that match these bits",) if len(flows) > _SHOWN else ()
    return (*(f"foreign flow on {bits.bridge}: {render_flow(flow)}" for flow in flows[:_SHOWN]), *more)


def _fix(bits: Unwildcarding) -> tuple[str, ...]:
    if bits.flows is None:
        return ("xenoovs why FILE --from-dump DUMP --from-flows FLOWS",)
    shown, is_one = bits.flows[:_SHOWN], len(bits.flows) == 1
    if not shown:
        return (REVALIDATOR_PURGE,)
    owner = _OWNER.format(owner="flow's owner" if is_one else "flows' owners", it="it" if is_one else "each")
    shows = tuple(_show(bits.bridge, flow) for flow in shown)
    deletes = (join(("ovs-ofctl", "--strict", "del-flows", bits.bridge, render_key_to_send(flow))) for flow in shown)
    return (*dict.fromkeys(shows), owner, *deletes, REVALIDATOR_PURGE)


def _show(bridge: str, flow: Flow) -> str:
    """Return the command that shows the flow with its counters; ovs-ofctl accepts no priority there."""
    match = ",".join(filter(None, (f"table={flow.table}", render_match_to_send(flow.match))))
    return join(("ovs-ofctl", "--names", "dump-flows", bridge, match))
