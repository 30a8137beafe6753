"""What `verify-offload` prints for people: tables, anomalies and foreign flows, and the conclusion in the last line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import click

from xenoovs.dataclass import dataclass
from xenoovs.datapath.megaflow import Verdict
from xenoovs.display import percent
from xenoovs.errors import counted, first_names, worded
from xenoovs.evidence.command_target import THIS_HOST, CommandTarget
from xenoovs.judge.expected import OutsideKind
from xenoovs.judge.findings import (
    Anomaly,
    Conclusion,
    DumpFindings,
    OffloadFindings,
    OverriddenBlocks,
    Unwildcarding,
    of_services,
    with_verdicts,
)
from xenoovs.judge.report import OffloadRow, OutsideRow, backend_rows, blocks_row, ignored_rows, outside_rows, total_row
from xenoovs.openflow.flow import Flow
from xenoovs.openflow.text import render_bits, render_flow, render_match
from xenoovs.terminal.output import echo, print_table, print_text

if TYPE_CHECKING:
    from xenoovs.judge.bridge import BridgeFindings, BridgeRow
    from xenoovs.judge.findings import BlockOffload, OutsideTraffic, PreemptingRule
    from xenoovs.judge.links import Node

_COLOUR = {
    Verdict.HW: "green",
    Verdict.UNCONFIRMED: "yellow",
    Verdict.PARTIAL: "yellow",
    Verdict.TC_SW: "red",
    Verdict.IDLE_HW: "red",
    Verdict.SW: "red",
    Verdict.CONTRADICTED: "red",
    Verdict.ABSENT: "bright_black",
}
_MEANING = {
    Verdict.UNCONFIRMED: "the NIC holds the rules, but no counter proves that it forwards by them; send some traffic "
    "and run this again meanwhile. `xenoovs measure load rate` proves which backend receives what",
    Verdict.PARTIAL: "the NIC matches, the CPU forwards",
    Verdict.TC_SW: "in the kernel's traffic control: the driver or its settings kept it out of the NIC",
    Verdict.IDLE_HW: "the NIC holds the rules and does not use them: the CPU forwards their packets. The NIC was "
    "reset, evicted them, or waits, as for the neighbour of a tunnel; `ovs-appctl revalidator/purge` installs them "
    "again",
    Verdict.SW: "in Open vSwitch's software datapath: offload is off, or the flow cannot be translated",
    Verdict.CONTRADICTED: "the NIC counts the packets, but counters of its port show that the CPU got them: "
    "another program handles them first, or the driver counts wrongly; see `tc filter show dev PORT ingress`",
    Verdict.ABSENT: "no traffic yet, or idle: neither good nor bad",
}
_RARE = (Verdict.UNCONFIRMED, Verdict.IDLE_HW, Verdict.CONTRADICTED)
"""Verdicts that have a column only if something has that verdict."""
_ABSENT_OR_OVERRIDDEN = "no traffic yet, idle, or overridden by foreign flows (see below)"
_CONCLUSION = {
    Conclusion.IN_HARDWARE: "every block that has had traffic is forwarded by the NIC",
    Conclusion.NOT_ALL_IN_HARDWARE: "not every block that has had traffic is forwarded by the NIC",
    Conclusion.NOTHING_SEEN: "no conclusion: no block has had traffic yet; send some and run this again",
}
_ON_BRIDGE = {
    Conclusion.IN_HARDWARE: "every megaflow that can be judged is in the NIC",
    Conclusion.NOT_ALL_IN_HARDWARE: "not every megaflow that can be judged is in the NIC",
    Conclusion.NOTHING_SEEN: "no conclusion: no megaflow can be judged; send some traffic and run this again",
}
_UNCOUNTED = "no conclusion: no packet was counted yet; send some and run this again"
_FILTERED = "no conclusion: all megaflows of the dump are in the NIC, but it may lack those that are not"
_UNREAD = "no conclusion: lines that could not be read may be megaflows that are not in the NIC"
_OVERRIDDEN = "foreign flows override blocks: packets are not sent where the config says"
_PREEMPTED = "rules of other programs in traffic control take packets of blocks before Open vSwitch does"
_OTHER_IN_SOFTWARE = (
    "other traffic is not all in the NIC; it does not count here, as it does with `verify-offload --bridge`"
)
_UNCONFIRMED = "no conclusion: the NIC holds the rules, but no counter proves that it forwards by them"
_CONTRADICTED = "counters of a port show that the CPU got packets that the NIC counts: counts of megaflows are wrong"
_OF_CPU = "in software as it has to be: the CPU encrypts these tunnels, so it encapsulates too"
_BUT_ENCRYPTED = "every block that has had traffic is forwarded by the NIC, but those whose tunnel the CPU encrypts"
_ENCRYPTED = "no block that has had traffic is for the NIC: the CPU encrypts the tunnels of all of them"
_GROUPS = "a group loses packets: none of its buckets is live, or megaflows leave by a dead port"
_CLEARTEXT = "packets that need IPsec leave unencrypted; stop them first, then look at the rest"
_COMMANDS = ("ovs-appctl revalidator/purge", "xenoovs doctor", "xenoovs plan")
_NO_CHAINS = (
    "this kernel is built without CONFIG_NET_TC_SKB_EXT, so Open vSwitch offloads no megaflow that recirculates packets"
)
_MAX_FLOWS = 5
_MAX_PORTS = 10
"""Other traffic from more ports is summed up in one row per kind."""
_MAX_NAMES = 2
_UNPARSED = "cannot judge: the dump has no readable megaflow"
_WITHOUT_M = "cannot judge: the dump does not show where megaflows run; make it with `ovs-appctl dpctl/dump-flows -m`"
_ANOMALY = {
    Anomaly.MISDELIVERED: "packets leave by another port or with another MAC than the config says; see `xenoovs plan`",
    Anomaly.DROPPED: "packets leave by no port: that of the backend is not on the bridge any more, is down, or was "
    "renamed; see `xenoovs doctor` and `xenoovs plan`",
    Anomaly.SLOW_PATH: "ovs-vswitchd handles each packet itself",
    Anomaly.NOT_IN_HW: "OVS reports offloaded:yes but the tc filter is not_in_hw; counted as TC_SW",
    Anomaly.WITHOUT_FILTER: "no tc filter has its cookie: filters changed between two reads, or the megaflow is stale",
    Anomaly.DRAINED: "megaflows of moving blocks, one for each connection until the drain ends",
    Anomaly.WITHOUT_PACKETS: "in the NIC without a counted packet: new, or the NIC does not use it",
    Anomaly.EXPIRING: "no packet for almost max-idle; will expire soon",
}


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """Which part of the findings is printed, and how. `verdicts`: only blocks and other traffic with these verdicts are
    printed; all are judged. Empty for any. `required`: share of the packets in hardware; None for all."""

    services: tuple[str, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    blocks: bool = False
    tree: bool = False
    required: float | None = None
    target: CommandTarget = THIS_HOST

    def say(self, text: str) -> str:
        """Return a text with its commands as the user has to type them."""
        return self.target.message(text, _COMMANDS)

    def judged(self, findings: OffloadFindings) -> OffloadFindings:
        """Return the findings that the conclusion is about."""
        return of_services(findings, self.services) if self.services else findings

    def part(self, judged: OffloadFindings) -> OffloadFindings | None:
        """Return the findings that are printed; None for all."""
        return with_verdicts(judged, self.verdicts) if self.verdicts else None


def show(every: OffloadFindings, shown: ReportOptions) -> None:
    """Print tables, anomalies, and the conclusion in the last line. `every`: the findings about all services."""
    judged = shown.judged(every)
    part = shown.part(judged)
    findings = judged if part is None else part
    _show_cleartext(judged)
    if _is_failed(findings, findings.conclusion):
        return
    if shown.tree:
        from xenoovs.judge.tree import OffloadTree

        _print_tree(OffloadTree(findings).nodes())
    if shown.blocks and findings.blocks:
        _show_blocks(findings)
    _show_sums(judged, part, shown)
    if not shown.services:
        rows = [[kind, *map(str, sums.values())] for kind, sums in ignored_rows(judged).items()]
        if rows:
            echo()
            print_table(["NOT JUDGED", "MEGAFLOWS", "PACKETS", "IN HARDWARE"], rows, right=(1, 2, 3))
    echo()
    _show_meanings(findings, shown.say)
    _show_ports(findings)
    blocks = blocks_row(judged)
    if blocks.megaflows > blocks.predicted:
        _show_surplus(blocks, judged)
    for override in findings.overrides[:_MAX_FLOWS]:
        _show_override(override, shown)
    if len(findings.overrides) > _MAX_FLOWS:
        echo(f"overridden: {counted(len(findings.overrides) - _MAX_FLOWS, 'more group')} of megaflows")
    for rule in findings.preempting[:_MAX_FLOWS]:
        _show_preempting(rule, shown)
    if len(findings.preempting) > _MAX_FLOWS:
        echo(f"{counted(len(findings.preempting) - _MAX_FLOWS, 'more rule')} of other programs before Open vSwitch")
    for unwildcarding in findings.unwildcardings:
        _show_unwildcarding(unwildcarding, shown)
    anomalies = blocks_row(findings).anomalies
    for anomaly in _ANOMALY:
        if anomalies[anomaly]:
            _show_anomaly(anomaly, anomalies[anomaly], every, shown)
    if judged.cpu_blocks:
        blocks_of_cpu = counted(judged.cpu_blocks, "block")
        print_text(f"{_OF_CPU} ({blocks_of_cpu}); only `offload: packet` lets the NIC do it", indent="  ", fg="yellow")
    if judged.software_kinds - {OutsideKind.ANSWERS}:
        print_text(_OTHER_IN_SOFTWARE, indent="  ", fg="yellow")
    for remark in judged.remarks:
        print_text(shown.say(remark), fg="yellow")
    _show_unparsed(findings)
    concluded, sentence = judged.conclusion_for(shown.required), _sentence(judged)
    if judged.is_overridden:
        sentence = _OVERRIDDEN
    elif judged.is_preempted:
        sentence = _PREEMPTED
    elif concluded is Conclusion.NOTHING_SEEN and judged.expired:
        sentence = judged.expired
    elif concluded is Conclusion.NOTHING_SEEN and (judged.is_filtered or blocks.megaflows):
        sentence = _unproven(judged, judged.judged)
    _conclude(concluded, sentence, findings=judged, required=shown.required)


def _sentence(findings: OffloadFindings) -> str:
    """Return the conclusion about blocks and answers in words."""
    conclusion, has_bad = findings.conclusion, OutsideKind.ANSWERS in findings.software_kinds
    if conclusion is not Conclusion.IN_HARDWARE:
        more = ", nor are all answers" if has_bad and conclusion is Conclusion.NOT_ALL_IN_HARDWARE else ""
        return f"{_CONCLUSION[conclusion]}{more}"
    if findings.is_left_to_cpu:
        return f"{_ENCRYPTED}; not all answers are forwarded by the NIC" if has_bad else _ENCRYPTED
    sentence = _BUT_ENCRYPTED if findings.cpu_blocks else _CONCLUSION[conclusion]
    if has_bad:
        return f"{sentence}, but not all answers are"
    return f"{sentence}, and so are answers" if findings.nic_answers else sentence


def _is_failed(findings: OffloadFindings | BridgeFindings, conclusion: Conclusion) -> bool:
    """Return whether nothing can be judged, and print why."""
    if conclusion is not Conclusion.CHECK_FAILED:
        return False
    _show_unparsed(findings)
    echo(click.style(_UNPARSED if findings.is_unparsed else _WITHOUT_M, fg="yellow", bold=True))
    return True


def _unproven(findings: DumpFindings, judged: Iterable[BlockOffload | OutsideTraffic | BridgeRow]) -> str:
    """Return, as a sentence, why megaflows allow no conclusion."""
    if findings.is_filtered:
        return _UNREAD if findings.unparsed else _FILTERED
    return _UNCONFIRMED if any(each.verdict is Verdict.UNCONFIRMED for each in judged) else _UNCOUNTED


def _print_tree(nodes: Sequence[Node]) -> None:
    from xenoovs.judge.links import tree_lines

    for before, verdict, behind in tree_lines(nodes):
        word = "" if verdict is None else f"  {click.style(verdict.value, fg=_COLOUR[verdict])}"
        echo(f"{before}{word}{f'  {behind}' if behind else ''}")
    echo()


def _show_sums(judged: OffloadFindings, part: OffloadFindings | None, shown: ReportOptions) -> None:
    """Print the table of backends, answers and other traffic, with their sums."""
    findings = judged if part is None else part
    total = total_row(judged)
    verdicts = tuple(verdict for verdict in Verdict if verdict not in _RARE or total.count(verdict))
    headers = ["SERVICE", "BACKEND", *(verdict.value for verdict in verdicts), "MEGAFLOWS", "HW PACKETS", "SW PACKETS"]
    headers += ["IN HW", "HW BYTES", "SW BYTES"]
    rows = [_row(row.service or "", row.backend or "", row, verdicts) for row in backend_rows(findings)]
    rows += [_row(*_names(row), row.sums, verdicts) for row in outside_rows(findings, max_ports=_MAX_PORTS)]
    of = f" of {_listed(shown.services)}" if shown.services else ""
    if part is not None:
        rows.append(_row("part", "/".join(verdict.value for verdict in shown.verdicts), total_row(part), verdicts))
    rows.append(_row(f"total{of}", "", total, verdicts))
    # Bytes are the least useful, as they do not compare between layers.
    spare = [headers.index(name) for name in ("SW BYTES", "HW BYTES", "MEGAFLOWS", "PARTIAL")]
    print_table(headers, rows, right=range(2, len(headers)), spare=spare)


def _names(row: OutsideRow) -> tuple[str, str]:
    """Return the first two cells of a row of answers or of other traffic."""
    where = f" from {row.in_port}" if row.in_port else ""
    if row.kind is OutsideKind.ANSWERS:
        return _listed(row.services), f"(answers{where})"
    return "(other)", f"{row.kind.value}{where}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= _MAX_NAMES else f"{len(names)} services"


def _show_meanings(findings: OffloadFindings, say: Callable[[str], str]) -> None:
    total, outside = total_row(findings), outside_rows(findings, max_ports=_MAX_PORTS)
    for verdict, meaning in _MEANING.items():
        if total.count(verdict) and (verdict is not Verdict.ABSENT or findings.absent):
            is_either = verdict is Verdict.ABSENT and findings.overrides
            text = _ABSENT_OR_OVERRIDDEN if is_either else meaning
            print_text(f"{verdict.value}: {say(text)}", indent="  ", fg=_COLOUR[verdict])
            if verdict is Verdict.UNCONFIRMED:
                _show_unproven(findings)
    for row in outside:
        service, name = _names(row)
        for reason in row.reasons:
            colour = "bright_black" if row.sums.count(Verdict.ABSENT) else "yellow"
            print_text(f"{service} {name}: {reason}", indent="  ", fg=colour)


def _show_unproven(findings: OffloadFindings) -> None:
    """Print the blocks without a packet, first those with the most expected packets."""
    unproven = sorted(findings.unproven, key=lambda each: -each.expected)
    for each in unproven[:_MAX_FLOWS]:
        echo(f"  {each}")
    if len(unproven) > _MAX_FLOWS:
        echo(f"  and {counted(len(unproven) - _MAX_FLOWS, 'more block')} without a packet")


def _show_cleartext(findings: DumpFindings) -> None:
    """Print the tunnels whose packets leave unencrypted and must not."""
    for found in findings.cleartext[:_MAX_FLOWS]:
        print_text(f"CLEARTEXT: {found}", indent="  ", fg="red", bold=True)
    if len(findings.cleartext) > _MAX_FLOWS:
        echo(f"CLEARTEXT: {counted(len(findings.cleartext) - _MAX_FLOWS, 'more tunnel')}")
    if findings.cleartext:
        echo()


def _show_ports(findings: DumpFindings) -> None:
    for port in findings.ports:
        if port.is_contradicted:
            print_text(f"contradicted: {port}", indent="  ", fg="red")


def show_bridge(findings: BridgeFindings, shown: ReportOptions) -> None:
    """Print chains of megaflows by port, verdict and reason."""
    required = shown.required
    reached = findings.conclusion_for(None)
    _show_cleartext(findings)
    if _is_failed(findings, reached):
        return
    if shown.tree:
        from xenoovs.judge.links import LinkTree

        links = findings.links_of(shown.verdicts)
        _print_tree(LinkTree(links, findings.logical_ports, findings.logical_flows).nodes())
    if findings.recirculating and findings.has_tc_chains is False:
        print_text(f"{_NO_CHAINS} ({counted(findings.recirculating, 'megaflow')} here)", indent="  ", fg="red")
        echo()
    rows = [
        [
            _port(row.in_port, findings),
            first_names([_port(name, findings) for name in sorted(row.exits)], most=_MAX_NAMES) or "-",
            click.style(row.verdict.value, fg=_COLOUR[row.verdict] if row.is_judged else "bright_black"),
            str(row.chains),
            str(row.megaflows),
            str(row.packets),
            str(row.bytes),
            (row.reason or "-") if row.is_judged else f"not judged: {row.reason}",
        ]
        for row in findings.rows
        if not shown.verdicts or row.verdict in shown.verdicts
    ]
    headers = ["IN PORT", "OUT", "VERDICT", "CHAINS", "MEGAFLOWS", "PACKETS", "BYTES", "REASON"]
    print_table(headers, rows, right=(3, 4, 5, 6), spare=(6, 3, 4, 1))
    echo()
    for verdict in _RARE:
        if any(row.verdict is verdict for row in findings.rows):
            print_text(f"{verdict.value}: {shown.say(_MEANING[verdict])}", indent="  ", fg=_COLOUR[verdict])
    _show_ports(findings)
    for group in findings.groups:
        print_text(str(group), indent="  ", fg="red" if group.is_bad else None)
    for remark in findings.remarks:
        echo(click.style(remark, fg="yellow"))
    _show_unparsed(findings)
    concluded, sentence = findings.conclusion_for(required), _ON_BRIDGE[reached]
    if concluded is Conclusion.NOTHING_SEEN and (findings.is_filtered or findings.counted):
        sentence = _unproven(findings, findings.rows)
    sentence = _GROUPS if any(group.is_bad for group in findings.groups) else sentence
    _conclude(concluded, sentence, findings=findings, required=required)


def _port(name: str, findings: BridgeFindings) -> str:
    """Return a port with its name in OVN or Neutron."""
    logical = findings.logical_ports.get(name)
    return f"{name} ({logical})" if logical and logical != name else name or "-"


def _conclude(conclusion: Conclusion, sentence: str, *, findings: DumpFindings, required: float | None) -> None:
    """Print the conclusion. With `required` it is about the share of the packets alone."""
    is_decided = conclusion in (Conclusion.IN_HARDWARE, Conclusion.NOT_ALL_IN_HARDWARE)
    if findings.cleartext:
        sentence = _CLEARTEXT
    elif findings.is_contradicted:
        sentence = _CONTRADICTED
    elif required is not None and is_decided and findings.judged_share is not None:
        which = "of the packets between the two samples" if findings.growth.packets else "of the packets"
        share = f"{percent(findings.judged_share)} {which} went through the NIC, {percent(required)} are required"
        is_enough = findings.judged_share >= required
        sentence = f"{share}: enough" if is_enough and conclusion is Conclusion.IN_HARDWARE else f"{share}: too few"
        if is_enough and conclusion is not Conclusion.IN_HARDWARE:
            sentence = f"{share}, but some leave elsewhere than the config says"
    colour = "green" if conclusion is Conclusion.IN_HARDWARE else "yellow"
    print_text(sentence, fg=colour, bold=True)


def _row(service: str, backend: str, row: OffloadRow, verdicts: Sequence[Verdict]) -> list[str]:
    counts = [(verdict, row.count(verdict)) for verdict in verdicts]
    # Only blocks have a prediction.
    is_predicted = row.predicted_all and row.others.keys() <= {Verdict.ABSENT}
    predicted = f"/{row.predicted or row.predicted_all}" if is_predicted else ""
    return [
        service,
        backend,
        *(click.style(str(count), fg=_COLOUR[verdict]) if count else "-" for verdict, count in counts),
        f"{row.megaflows}{predicted}",
        str(row.hw_packets),
        str(row.sw_packets),
        percent(row.hw_share),
        str(row.hw_bytes),
        str(row.sw_bytes),
    ]


def _show_blocks(findings: OffloadFindings) -> None:
    rows = [
        [
            found.block.service,
            found.block.backend,
            render_match(found.block.flow.match),
            click.style(found.verdict.value, fg=_COLOUR[found.verdict]),
            str(found.megaflows),
            str(found.hw_packets),
            str(found.packets - found.hw_packets),
        ]
        for found in findings.blocks
    ]
    headers = ["SERVICE", "BACKEND", "BLOCK", "VERDICT", "MEGAFLOWS", "HW PACKETS", "SW PACKETS"]
    print_table(headers, rows, right=(4, 5, 6))
    echo()


def _show_surplus(blocks: OffloadRow, findings: OffloadFindings) -> None:
    why = "; each client-side MAC and each PMD thread takes entries of its own"
    if blocks.megaflows <= blocks.with_ecn:
        why = f", or up to {blocks.with_ecn} if packets use ECN, behind tunnels"
    elif blocks.with_ecn > blocks.predicted:
        why = f", and ECN explains no more than {blocks.with_ecn}: see `tunnel port megaflows` in `xenoovs doctor`{why}"
    if findings.unwildcardings or blocks.anomalies[Anomaly.DRAINED]:
        why = ""  # Explained below.
    predicted = f"{blocks.predicted} {worded(blocks.predicted, 'was', 'were')} predicted{why}"
    echo(f"megaflows of blocks ({blocks.megaflows}): {predicted}")


def _show_unwildcarding(unwildcarding: Unwildcarding, shown: ReportOptions) -> None:
    fields = ", ".join(f"{name} {render_bits(name, bits)}" for name, bits in unwildcarding.fields)
    count, whose = unwildcarding.megaflows, f"megaflows of {unwildcarding.service}"
    print_text(
        f"un-wildcarded ({count}): {whose} match {fields}, which no flow of xenoovs does", indent="  ", fg="yellow"
    )
    if unwildcarding.flows:
        echo("  by foreign flows that match these bits:")
        _show_flows(unwildcarding.flows)
    else:
        text = (
            "no foreign flow found (with --from-dump, add --from-flows). They may be left from before a change or a "
            "drain: megaflows stay while packets come; `ovs-appctl revalidator/purge` reinstalls them"
        )
        print_text(f"  {shown.say(text)}", indent="  ")


def _show_preempting(rule: PreemptingRule, shown: ReportOptions) -> None:
    text = f"{rule.device}: a rule of another program in traffic control: {rule.describe()}"
    print_text(text, indent="  ", fg="red" if rule.is_effective else "yellow")
    echo(f"  ask its owner; {shown.target.text(f'tc -s filter show dev {rule.device} ingress')}")


def _show_override(override: OverriddenBlocks, shown: ReportOptions) -> None:
    blocks, packets = counted(len(override.blocks), "block"), counted(override.packets, "packet")
    backends = ", ".join(dict.fromkeys(block.backend for block in override.blocks))
    is_one = len(override.blocks) == 1
    fate = f"{worded(override.packets, 'was', 'were')} {'dropped' if override.is_drop else 'sent elsewhere'}"
    megaflows = worded(override.megaflows, "this megaflow", f"{override.megaflows} megaflows such as this")
    text = f"{blocks} of {override.service} ({backends}) {'is' if is_one else 'are'} overridden"
    colour = "yellow" if override.is_drop else "red"
    print_text(f"{text}: {packets} matched {megaflows} and {fate}:", indent="  ", fg=colour)
    echo(f"  {render_match(override.match)} -> {override.actions}")
    if override.flows:
        # Several if some have conditions that xenoovs does not know: one of them overrides the blocks.
        echo(f"  by {'this foreign flow' if len(override.flows) == 1 else 'one of these foreign flows'}:")
        _show_flows(override.flows)
    else:
        text = "no foreign flow with a higher priority found; see `xenoovs plan` (with --from-dump, add --from-flows)"
        print_text(f"  {shown.say(text)}", indent="  ")


def _show_flows(flows: Sequence[Flow]) -> None:
    for flow in flows[:_MAX_FLOWS]:
        echo(f"  {render_flow(flow)}")
    if len(flows) > _MAX_FLOWS:
        echo(f"  and {len(flows) - _MAX_FLOWS} more")


def _show_anomaly(anomaly: Anomaly, count: int, every: OffloadFindings, shown: ReportOptions) -> None:
    colour = "red" if anomaly in (Anomaly.MISDELIVERED, Anomaly.DROPPED, Anomaly.NOT_IN_HW) else "yellow"
    print_text(f"{anomaly.value.replace('_', ' ')} ({count}): {shown.say(_ANOMALY[anomaly])}", indent="  ", fg=colour)
    if anomaly is Anomaly.EXPIRING:
        return
    example = every.examples[anomaly][0]
    echo(f"  {example.text}")
    for origin in every.origins.get(example.megaflow.ufid or "", ()):
        echo(f"    made by {origin}")


def _show_unparsed(findings: DumpFindings) -> None:
    if findings.unparsed:
        lines = len(findings.unparsed) + findings.unparsed_more
        echo(f"lines that could not be read ({lines}); the first: {findings.unparsed[0]}")
