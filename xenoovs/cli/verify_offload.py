"""`xenoovs verify-offload`: does the NIC do the work?"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from xenoovs.cli.offload import (
    DatapathCheck,
    DatapathChecker,
    check_live_bridge,
    check_recorded_bridge,
    check_recorded_dump,
    datapath_checker,
)
from xenoovs.cli.options import (
    FILE,
    OutputFormat,
    address_commands,
    duration,
    load_recorded,
    load_resolved,
    optional_config_argument,
    output_option,
    reach,
    share,
    switch_options,
)
from xenoovs.cli.output import clear_terminal, echo, print_json, print_table, print_text
from xenoovs.datapath.megaflow import Verdict
from xenoovs.display import percent
from xenoovs.errors import SwitchError, counted, worded
from xenoovs.openflow.flow import Flow
from xenoovs.openflow.text import render_bits, render_flow, render_match
from xenoovs.verify.bridge import BridgeFindings
from xenoovs.verify.findings import Anomaly, Conclusion, OffloadFindings, OverriddenBlocks, Unwildcarding, carry_over
from xenoovs.verify.report import OffloadRow, backend_rows, bridge_to_json, to_json, total_row

_COLOUR = {
    Verdict.HW: "green",
    Verdict.PARTIAL: "yellow",
    Verdict.TC_SW: "red",
    Verdict.SW: "red",
    Verdict.ABSENT: "bright_black",
}
_MEANING = {
    Verdict.PARTIAL: "the NIC matches, the CPU forwards",
    Verdict.TC_SW: "in the kernel's traffic control: the driver or its settings kept it out of the NIC",
    Verdict.SW: "in Open vSwitch's software datapath: offload is off, or the flow cannot be translated",
    Verdict.ABSENT: "no traffic yet, or idle: neither good nor bad",
}
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
_OVERRIDDEN = "foreign flows override blocks: packets are not sent where the config says"
_MAX_FLOWS = 5
_UNPARSED = "cannot judge: the dump has no readable megaflow"
_WITHOUT_M = "cannot judge: the dump does not show where megaflows run; make it with `ovs-appctl dpctl/dump-flows -m`"
_ANOMALY = {
    Anomaly.MISDELIVERED: "packets leave by another port or with another MAC than the config says; see `xenoovs plan`",
    Anomaly.SLOW_PATH: "ovs-vswitchd handles each packet itself",
    Anomaly.CONTRADICTED: "OVS reports offloaded:yes but the tc filter is not_in_hw; counted as TC_SW",
    Anomaly.UNCONFIRMED: "OVS reports offloaded:yes but the tc filter is neither in_hw nor not_in_hw",
    Anomaly.WITHOUT_FILTER: "no tc filter has its cookie: filters changed between two reads, or the megaflow is stale",
    Anomaly.DRAINED: "megaflows of moving blocks, one for each connection until the drain ends",
    Anomaly.WITHOUT_PACKETS: "in the NIC without a counted packet: new, or the NIC does not use it",
    Anomaly.EXPIRING: "no packet for almost max-idle; will expire soon",
}


_INTERVAL_S = 2.0
"""Open vSwitch reads the counters of hardware no more often (offloaded-stats-delay)."""


@click.command("verify-offload")
@optional_config_argument
@switch_options
@click.option("--bridge", metavar="NAME", help="Without FILE: check all megaflows of any bridge, such as OVN's br-int.")
@click.option(
    "--from-dump",
    type=FILE,
    metavar="DUMP",
    help="Judge the output of `ovs-appctl dpctl/dump-flows -m` in a file, - for standard input, and read no switch. A "
    "dump with type= or filter= may lack megaflows that are not offloaded; then the exit status is 3, not 0.",
)
@click.option(
    "--from-flows",
    type=FILE,
    metavar="FLOWS",
    help="With --from-dump: the output of `ovs-ofctl --names dump-flows`, which shows the blocks as they were, and "
    "foreign flows.",
)
@click.option(
    "--wait", "wait_s", type=duration, metavar="TIME", help="Repeat until every block had traffic, at most for TIME."
)
@click.option("--watch", is_flag=True, help="Repeat every 2 s until interrupted.")
@click.option(
    "--require",
    "required",
    type=share,
    metavar="SHARE",
    help="Require only this share of the packets in hardware, such as 95%.",
)
@click.option("--blocks", is_flag=True, help="Show every block, not only backends.")
@output_option
@click.pass_context
def verify_offload_command(
    context: click.Context,
    /,
    config: Path | None,
    *,
    db: str | None,
    lab: str | None,
    bridge: str | None,
    from_dump: Path | None,
    from_flows: Path | None,
    wait_s: float | None,
    watch: bool,
    required: float | None,
    blocks: bool,
    output: OutputFormat,
) -> None:
    """Check for each block of the config FILE where its packets are forwarded, with one dump of the datapath.

    \b
    HW       in the NIC
    PARTIAL  the NIC matches, the CPU forwards
    TC_SW    in the kernel's traffic control
    SW       in Open vSwitch's software datapath
    ABSENT   no megaflow: no traffic yet, or idle longer than max-idle (10 s)

    MEGAFLOWS: found/predicted, for clients behind one MAC. IN HW: share of the packets. Do not compare bytes: traffic
    control in software does not count 14 bytes of each frame.

    Exit status 0: every block that has had traffic is in hardware (with --require: enough packets), 2: not all are,
    1: it could not check, 3: no traffic yet, or a recorded dump that may be filtered.
    """
    live = {"--db": db, "--lab": lab, "--wait": wait_s, "--watch": watch}
    given = [name for name, value in live.items() if value]
    if (config is None) == (bridge is None):
        raise click.UsageError("give either the config FILE, or --bridge NAME for a bridge without one.")
    if from_dump is not None and given:
        raise click.UsageError(f"--from-dump reads no switch, so {given[0]} has no use.")
    if from_flows is not None and (from_dump is None or bridge is not None):
        raise click.UsageError("--from-flows goes with the config FILE and --from-dump.")
    if [config, from_dump, from_flows].count(Path("-")) > 1:
        raise click.UsageError("standard input can be only one of FILE, DUMP and FLOWS.")
    if watch and wait_s:
        raise click.UsageError("--wait and --watch exclude each other.")
    if bridge is not None and (wait_s or blocks):
        raise click.UsageError("--wait and --blocks need the config FILE.")

    def run() -> Conclusion:
        if config is None:
            return _check_bridge(bridge or "", from_dump, output, db=db, lab=lab, required=required)
        if from_dump is not None:
            check = check_recorded_dump(load_recorded(config), from_dump, from_flows)
        else:
            balancer = load_resolved(config)
            check = _check(datapath_checker(balancer, reach(db, lab)), wait_s=wait_s or 0)
        if output is OutputFormat.JSON:
            findings = check.findings
            remarks = (*check.remarks, check.expired) if check.expired else check.remarks
            print_json(to_json(findings, required=required, origins=check.origins, remarks=remarks))
        else:
            show(check, blocks=blocks, required=required)
        return check.findings.conclusion_for(required)

    while watch:
        clear_terminal()
        try:
            run()
        except SwitchError as error:
            # The user of --watch wants to see the end of a restart.
            if not error.retryable:
                raise
            address_commands(error, config=config, db=db, lab=lab)
            echo(f"cannot check now; retrying: {error}", err=True)
        time.sleep(_INTERVAL_S)
    context.exit(int(run()))


def _check_bridge(
    bridge: str, dump: Path | None, output: OutputFormat, *, db: str | None, lab: str | None, required: float | None
) -> Conclusion:
    findings = check_live_bridge(bridge, reach(db, lab)) if dump is None else check_recorded_bridge(bridge, dump)
    if output is OutputFormat.JSON:
        print_json(bridge_to_json(findings, required=required))
    else:
        show_bridge(findings, required=required)
    return findings.conclusion_for(required)


def _check(checker: DatapathChecker, *, wait_s: float) -> DatapathCheck:
    """Sample once, or until every block had traffic; the last sample with a block counts for it."""
    deadline = time.monotonic() + wait_s
    check = checker.check()
    while check.findings.absent and (left_s := deadline - time.monotonic()) > 0:
        time.sleep(min(_INTERVAL_S, left_s))
        again = checker.check()
        check = replace(again, findings=carry_over(check.findings, again.findings))
    return check


def show(check: DatapathCheck, *, blocks: bool, required: float | None) -> None:
    """Print tables, anomalies, and the conclusion in the last line."""
    findings = check.findings
    if findings.conclusion is Conclusion.CHECK_FAILED:
        _show_unparsed(findings)
        echo(click.style(_UNPARSED if findings.is_unparsed else _WITHOUT_M, fg="yellow", bold=True))
        return
    if blocks:
        _show_blocks(findings)
    total = total_row(findings)
    headers = ["SERVICE", "BACKEND", *(verdict.value for verdict in Verdict), "MEGAFLOWS", "HW PACKETS", "SW PACKETS"]
    headers += ["IN HW", "HW BYTES", "SW BYTES"]
    rows = map(_row, (*backend_rows(findings), total))
    # Bytes are the least useful, as they do not compare between layers.
    spare = [headers.index(name) for name in ("SW BYTES", "HW BYTES", "MEGAFLOWS", "PARTIAL")]
    print_table(headers, rows, right=range(2, len(headers)), spare=spare)
    _show_ignored(findings)
    echo()
    for verdict, meaning in _MEANING.items():
        if total.count(verdict):
            is_either = verdict is Verdict.ABSENT and findings.overrides
            text = _ABSENT_OR_OVERRIDDEN if is_either else meaning
            print_text(f"{verdict.value}: {text}", indent="  ", fg=_COLOUR[verdict])
    if total.megaflows > total.predicted:
        _show_surplus(total, findings)
    for override in findings.overrides[:_MAX_FLOWS]:
        _show_override(override)
    if len(findings.overrides) > _MAX_FLOWS:
        echo(f"overridden: {counted(len(findings.overrides) - _MAX_FLOWS, 'more group')} of megaflows")
    for unwildcarding in findings.unwildcardings:
        _show_unwildcarding(unwildcarding)
    for anomaly, count in total.anomalies:
        if anomaly in _ANOMALY:
            _show_anomaly(anomaly, count, check)
    for remark in check.remarks:
        print_text(remark, fg="yellow")
    _show_unparsed(findings)
    concluded = findings.conclusion_for(required)
    sentence = _CONCLUSION[findings.conclusion]
    if findings.is_overridden:
        sentence = _OVERRIDDEN
    elif concluded is Conclusion.NOTHING_SEEN and check.expired:
        sentence = check.expired
    elif concluded is Conclusion.NOTHING_SEEN and (findings.is_filtered or total.megaflows):
        sentence = _FILTERED if findings.is_filtered else _UNCOUNTED
    _conclude(concluded, sentence, share=total.hw_share, required=required)


def show_bridge(findings: BridgeFindings, *, required: float | None) -> None:
    """Print megaflows by port, verdict and reason."""
    reached = findings.conclusion_for(None)
    if reached is Conclusion.CHECK_FAILED:
        _show_unparsed(findings)
        echo(click.style(_UNPARSED if findings.is_unparsed else _WITHOUT_M, fg="yellow", bold=True))
        return
    rows = [
        [
            row.in_port or "-",
            click.style(row.verdict.value, fg=_COLOUR[row.verdict] if row.is_judged else "bright_black"),
            row.reason or "-",
            "yes" if row.is_judged else "no",
            str(row.megaflows),
            str(row.packets),
            str(row.bytes),
        ]
        for row in findings.rows
    ]
    headers = ["IN PORT", "VERDICT", "REASON", "JUDGED", "MEGAFLOWS", "PACKETS", "BYTES"]
    print_table(headers, rows, right=(4, 5, 6))
    echo()
    for remark in findings.remarks:
        echo(click.style(remark, fg="yellow"))
    _show_unparsed(findings)
    concluded, is_judged = findings.conclusion_for(required), any(row.is_judged for row in findings.rows)
    sentence = _ON_BRIDGE[reached]
    if concluded is Conclusion.NOTHING_SEEN and (findings.is_filtered or is_judged):
        sentence = _FILTERED if findings.is_filtered else _UNCOUNTED
    _conclude(concluded, sentence, share=findings.hw_share, required=required)


def _conclude(conclusion: Conclusion, sentence: str, *, share: float | None, required: float | None) -> None:
    if required is not None and conclusion in (Conclusion.IN_HARDWARE, Conclusion.NOT_ALL_IN_HARDWARE):
        sentence = f"{percent(share)} of the packets went through the NIC, {percent(required)} are required; {sentence}"
    colour = "green" if conclusion is Conclusion.IN_HARDWARE else "yellow"
    print_text(sentence, fg=colour, bold=True)


def _row(row: OffloadRow) -> list[str]:
    counts = [(verdict, row.count(verdict)) for verdict in Verdict]
    return [
        row.service or "total",
        row.backend or "",
        *(click.style(str(count), fg=_COLOUR[verdict]) if count else "-" for verdict, count in counts),
        f"{row.megaflows}/{row.predicted or row.predicted_all}",
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


def _show_ignored(findings: OffloadFindings) -> None:
    if not findings.ignored:
        return
    echo()
    rows = [
        [found.reason.value, str(found.megaflows), str(found.packets), str(found.in_hardware)]
        for found in findings.ignored
    ]
    print_table(["OF NO BLOCK, NOT JUDGED", "MEGAFLOWS", "PACKETS", "IN HARDWARE"], rows, right=(1, 2, 3))


def _show_surplus(total: OffloadRow, findings: OffloadFindings) -> None:
    why = "; each client-side MAC and each PMD thread takes entries of its own"
    if findings.unwildcardings or any(anomaly is Anomaly.DRAINED for anomaly, _ in total.anomalies):
        why = ""  # Explained below.
    echo(f"megaflows ({total.megaflows}): {total.predicted} {worded(total.predicted, 'was', 'were')} predicted{why}")


def _show_unwildcarding(unwildcarding: Unwildcarding) -> None:
    fields = ", ".join(f"{name} {render_bits(name, bits)}" for name, bits in unwildcarding.fields)
    count, whose = unwildcarding.megaflows, f"megaflows of {unwildcarding.service}"
    print_text(
        f"un-wildcarded ({count}): {whose} match {fields}, which no flow of xenoovs does", indent="  ", fg="yellow"
    )
    if unwildcarding.flows:
        echo("  by foreign flows that match these bits:")
        _show_flows(unwildcarding.flows)
    else:
        echo(
            "  no foreign flow found (with --from-dump, add --from-flows). They may be left from before a change or a\n"
            "  drain: megaflows stay while packets come; `ovs-appctl revalidator/purge` reinstalls them"
        )


def _show_override(override: OverriddenBlocks) -> None:
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
        echo("  no foreign flow with a higher priority found; see `xenoovs plan` (with --from-dump, add --from-flows)")


def _show_flows(flows: Sequence[Flow]) -> None:
    for flow in flows[:_MAX_FLOWS]:
        echo(f"  {render_flow(flow)}")
    if len(flows) > _MAX_FLOWS:
        echo(f"  and {len(flows) - _MAX_FLOWS} more")


def _show_anomaly(anomaly: Anomaly, count: int, check: DatapathCheck) -> None:
    colour = "red" if anomaly in (Anomaly.MISDELIVERED, Anomaly.CONTRADICTED) else "yellow"
    print_text(f"{anomaly.value.replace('_', ' ')} ({count}): {_ANOMALY[anomaly]}", indent="  ", fg=colour)
    if anomaly is Anomaly.EXPIRING:
        return
    example = next(found for found in check.findings.examples if found.anomaly is anomaly)
    echo(f"  {example.service} {example.backend}: {example.match} -> {example.actions}")
    for origin in (check.origins or {}).get(example.ufid or "", ()):
        echo(f"    made by {origin}")


def _show_unparsed(findings: OffloadFindings | BridgeFindings) -> None:
    if findings.unparsed:
        lines = len(findings.unparsed) + findings.unparsed_more
        echo(f"lines that could not be read ({lines}); the first: {findings.unparsed[0]}")
