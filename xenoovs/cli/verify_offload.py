"""`xenoovs verify-offload`: does the NIC do the work?"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from xenoovs.cli.offload import Look, Looker, look_at_bridge, look_at_bridge_dump, look_at_dump, looker_of
from xenoovs.cli.options import (
    Output,
    address_commands,
    duration,
    load_recorded,
    load_resolved,
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
from xenoovs.verify.findings import Anomaly, Conclusion, OffloadFindings, Override, Unwildcarding, carry_over
from xenoovs.verify.report import OffloadRow, backend_rows, bridge_to_json, to_json, total_row

# What people read of `xenoovs verify-offload`.


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


def show(look: Look, *, blocks: bool, required: float | None) -> None:
    """Print tables, anomalies, and the conclusion in the last line."""
    findings = look.findings
    if findings.conclusion is Conclusion.CHECK_FAILED:
        _show_unparsed(findings)
        _cannot_judge(is_unparsed=findings.is_unparsed)
        return
    if blocks:
        _show_blocks(findings)
    total = total_row(findings)
    headers = ["SERVICE", "BACKEND", *(verdict.value for verdict in Verdict), "MEGAFLOWS", "HW PACKETS", "SW PACKETS"]
    headers += ["IN HW", "HW BYTES", "SW BYTES"]
    rows = map(_row, (*backend_rows(findings), total))
    print_table(headers, rows, right=range(2, len(headers)), spare=_spare(headers))
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
            _show_anomaly(anomaly, count, look)
    for remark in look.remarks:
        print_text(remark, fg="yellow")
    _show_unparsed(findings)
    concluded = findings.conclusion_for(required)
    told = _UNCOUNTED if concluded is Conclusion.NOTHING_SEEN and total.megaflows else _CONCLUSION[findings.conclusion]
    told = _FILTERED if concluded is Conclusion.NOTHING_SEEN and findings.is_filtered else told
    told = _OVERRIDDEN if findings.is_overridden else told
    _conclude(concluded, told, share=total.hw_share, required=required)


def show_bridge(findings: BridgeFindings, *, required: float | None) -> None:
    """Print megaflows by port, verdict and reason."""
    reached = findings.conclusion_for(None)
    if reached is Conclusion.CHECK_FAILED:
        _show_unparsed(findings)
        _cannot_judge(is_unparsed=findings.is_unparsed)
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
    told = _UNCOUNTED if concluded is Conclusion.NOTHING_SEEN and is_judged else _ON_BRIDGE[reached]
    told = _FILTERED if concluded is Conclusion.NOTHING_SEEN and findings.is_filtered else told
    _conclude(concluded, told, share=findings.hw_share, required=required)


def _spare(headers: Sequence[str]) -> list[int]:
    """Bytes first: they do not compare between layers."""
    return [headers.index(name) for name in ("SW BYTES", "HW BYTES", "MEGAFLOWS", "PARTIAL")]


def _conclude(conclusion: Conclusion, told: str, *, share: float | None, required: float | None) -> None:
    if required is not None and conclusion in (Conclusion.IN_HARDWARE, Conclusion.NOT_ALL_IN_HARDWARE):
        told = f"{percent(share)} of the packets went through the NIC, {percent(required)} are required; {told}"
    colour = "green" if conclusion is Conclusion.IN_HARDWARE else "yellow"
    print_text(told, fg=colour, bold=True)


def _cannot_judge(*, is_unparsed: bool) -> None:
    echo(click.style(_UNPARSED if is_unparsed else _WITHOUT_M, fg="yellow", bold=True))


def _row(row: OffloadRow) -> list[str]:
    counts = [_count(verdict, row.count(verdict)) for verdict in Verdict]
    return [
        row.service or "total",
        row.backend or "",
        *counts,
        f"{row.megaflows}/{row.predicted or row.predicted_all}",
        str(row.hw_packets),
        str(row.sw_packets),
        percent(row.hw_share),
        str(row.hw_bytes),
        str(row.sw_bytes),
    ]


def _count(verdict: Verdict, count: int) -> str:
    return click.style(str(count), fg=_COLOUR[verdict]) if count else "-"


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
        f"un-wildcarded ({count}): {whose} match {fields}, which none of our flows does", indent="  ", fg="yellow"
    )
    if unwildcarding.flows:
        echo("  by foreign flows that match these bits:")
        _show_flows(unwildcarding.flows)
    else:
        echo(
            "  no foreign flow found (with --from-dump, add --from-flows). They may be left from before a change or a\n"
            "  drain: megaflows stay while packets come; `ovs-appctl revalidator/purge` reinstalls them"
        )


def _show_override(override: Override) -> None:
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
        echo("  no foreign flow above ours found; see `xenoovs plan` (with --from-dump, add --from-flows)")


def _show_flows(flows: Sequence[Flow]) -> None:
    for flow in flows[:_MAX_FLOWS]:
        echo(f"  {render_flow(flow)}")
    if len(flows) > _MAX_FLOWS:
        echo(f"  and {len(flows) - _MAX_FLOWS} more")


def _show_anomaly(anomaly: Anomaly, count: int, look: Look) -> None:
    colour = "red" if anomaly in (Anomaly.MISDELIVERED, Anomaly.CONTRADICTED) else "yellow"
    print_text(f"{anomaly.value.replace('_', ' ')} ({count}): {_ANOMALY[anomaly]}", indent="  ", fg=colour)
    if anomaly is Anomaly.EXPIRING:
        return
    example = next(found for found in look.findings.examples if found.anomaly is anomaly)
    echo(f"  {example.service} {example.backend}: {example.match} -> {example.actions}")
    for origin in (look.origins or {}).get(example.ufid or "", ()):
        echo(f"    made by {origin}")


def _show_unparsed(findings: OffloadFindings | BridgeFindings) -> None:
    if findings.unparsed:
        lines = len(findings.unparsed) + findings.unparsed_more
        echo(f"lines that could not be read ({lines}); the first: {findings.unparsed[0]}")


_INTERVAL_S = 2.0
"""Between two looks: Open vSwitch reads the counters of hardware no more often (offloaded-stats-delay)."""

_FILE = click.Path(allow_dash=True, path_type=Path)

_FROM_DUMP = (
    "Judge the output of `ovs-appctl dpctl/dump-flows -m` in a file, - for standard input. No switch is asked. A dump "
    "made with type= or filter= lacks what it left out: one that is offloaded throughout may be such (exit status 3)."
)
_FROM_FLOWS = (
    "With --from-dump: the output of `ovs-ofctl --names dump-flows`, which tells the blocks as they were, and the "
    "flows of others."
)
_WAIT = "Look again until every block was seen, at most for TIME (10s, 500ms, 2m)."
_REQUIRE = "Judge by the share of packets in hardware instead, such as 95%."


@dataclass(frozen=True, slots=True)
class Request:
    """The options of one call."""

    config: Path | None
    db: str | None
    lab: str | None
    bridge: str | None
    from_dump: Path | None
    from_flows: Path | None
    wait_s: float | None
    watch: bool
    require: float | None
    blocks: bool
    output: Output

    def check(self) -> None:
        """Raises click.UsageError for options that exclude each other."""
        live = {"--db": self.db, "--lab": self.lab, "--wait": self.wait_s, "--watch": self.watch}
        given = [name for name, value in live.items() if value]
        if (self.config is None) == (self.bridge is None):
            raise click.UsageError("give either the config FILE, or --bridge NAME for a bridge without one.")
        if self.from_dump is not None and given:
            raise click.UsageError(f"--from-dump asks no switch, so {given[0]} has no use.")
        if self.from_flows is not None and (self.from_dump is None or self.bridge is not None):
            raise click.UsageError("--from-flows goes with the config FILE and --from-dump.")
        if [self.config, self.from_dump, self.from_flows].count(Path("-")) > 1:
            raise click.UsageError("standard input can be only one of FILE, DUMP and FLOWS.")
        if self.watch and self.wait_s:
            raise click.UsageError("--wait and --watch exclude each other.")
        if self.bridge is not None and (self.wait_s or self.blocks):
            raise click.UsageError("--wait and --blocks need the config FILE.")

    def run(self) -> Conclusion:
        """Look, show, and tell the exit status."""
        if not self.watch:
            return self.look_once()
        while True:
            clear_terminal()
            self._look_again()
            time.sleep(_INTERVAL_S)

    def _look_again(self) -> None:
        """A switch that restarts is what whoever watches wants to see the end of."""
        try:
            self.look_once()
        except SwitchError as error:
            if not error.retryable:
                raise
            address_commands(error, config=self.config, db=self.db, lab=self.lab)
            echo(f"not now: {error}", err=True)

    def look_once(self) -> Conclusion:
        """One report, which takes several looks with --wait."""
        return self._bridge(self.bridge) if self.bridge is not None else self._config()

    def _bridge(self, bridge: str) -> Conclusion:
        if self.from_dump is not None:
            findings = look_at_bridge_dump(bridge, self.from_dump)
        else:
            findings = look_at_bridge(bridge, reach(self.db, self.lab))
        if self.output is Output.JSON:
            print_json(bridge_to_json(findings, required=self.require))
        else:
            show_bridge(findings, required=self.require)
        return findings.conclusion_for(self.require)

    def _config(self) -> Conclusion:
        config = self.config or Path("-")
        if self.from_dump is not None:
            look = look_at_dump(load_recorded(config), self.from_dump, self.from_flows)
        else:
            balancer = load_resolved(config)
            look = _look(looker_of(balancer, reach(self.db, self.lab)), wait_s=self.wait_s or 0)
        if self.output is Output.JSON:
            told = to_json(look.findings, required=self.require, origins=look.origins, remarks=look.remarks)
            print_json(told)
        else:
            show(look, blocks=self.blocks, required=self.require)
        return look.findings.conclusion_for(self.require)


def _look(looker: Looker, *, wait_s: float) -> Look:
    """One look, or several until every block was seen; of each block the last look that saw it counts."""
    deadline = time.monotonic() + wait_s
    look = looker.look()
    while look.findings.absent and (left_s := deadline - time.monotonic()) > 0:
        time.sleep(min(_INTERVAL_S, left_s))
        again = looker.look()
        look = replace(again, findings=carry_over(look.findings, again.findings))
    return look


@click.command("verify-offload")
@click.argument("config", metavar="[FILE]", required=False, type=_FILE)
@switch_options
@click.option("--bridge", metavar="NAME", help="Without FILE: all megaflows of any bridge, such as OVN's br-int.")
@click.option("--from-dump", type=_FILE, metavar="DUMP", help=_FROM_DUMP)
@click.option("--from-flows", type=_FILE, metavar="FLOWS", help=_FROM_FLOWS)
@click.option("--wait", "wait_s", type=duration, metavar="TIME", help=_WAIT)
@click.option("--watch", is_flag=True, help="Look again every 2 s, until interrupted.")
@click.option("--require", type=share, metavar="SHARE", help=_REQUIRE)
@click.option("--blocks", is_flag=True, help="Show every block, not only backends.")
@output_option
@click.pass_context
def verify_offload_command(context: click.Context, /, **options: Any) -> None:
    """Say for each block of the config FILE where its packets are forwarded, from one dump of the datapath.

    \b
    HW       in the NIC                         PARTIAL  the NIC matches, the CPU forwards
    TC_SW    in the kernel's traffic control    SW       in Open vSwitch's software datapath
    ABSENT   no megaflow: no traffic yet, or idle longer than max-idle (10 s). Neither good nor bad.

    MEGAFLOWS: found/predicted, for clients behind one MAC. IN HW: share of packets; bytes do not compare, as software
    traffic control leaves 14 bytes of each frame out of its count.

    Exit status 0: every block that has had traffic is in hardware (with --require: enough packets), 2: not,
    1: it could not look, 3: nothing seen yet, or a recorded dump that may be filtered.
    """
    request = Request(**options)
    request.check()
    context.exit(int(request.run()))
