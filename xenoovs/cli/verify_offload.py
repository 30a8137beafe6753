"""`xenoovs verify-offload`: does the NIC do the work?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from xenoovs.cli.options import Output, config_argument, connect, load, output_option, switch_options
from xenoovs.cli.output import percent, print_json, print_table
from xenoovs.verify.offload import Conclusion, OffloadFindings
from xenoovs.verify.verdict import Verdict

if TYPE_CHECKING:
    from xenoovs.verify.report import OffloadRow

_COLOUR = {
    Verdict.HW: "green",
    Verdict.PARTIAL: "yellow",
    Verdict.TC_SW: "red",
    Verdict.SW: "red",
    Verdict.ABSENT: "bright_black",
}
_CONCLUSION = {
    Conclusion.IN_HARDWARE: "every block that has had traffic is forwarded by the NIC",
    Conclusion.COULD_NOT_LOOK: "the dump does not say where its megaflows run (it was made without -m)",
    Conclusion.NOT_ALL_IN_HARDWARE: "not every block that has had traffic is forwarded by the NIC",
    Conclusion.NOTHING_SEEN: "no block has had traffic yet, so nothing can be said; send some and ask again",
}
_MEANING = {
    Verdict.HW: "in the NIC",
    Verdict.PARTIAL: "the NIC matches, the CPU forwards",
    Verdict.TC_SW: "in the kernel's traffic control: the driver or its settings kept it out of the NIC",
    Verdict.SW: "in Open vSwitch's software datapath: offload is off, or the flow cannot be translated",
    Verdict.ABSENT: "no traffic yet, or idle: neither good nor bad",
}


@click.command("verify-offload")
@config_argument
@switch_options
@click.option("--blocks", is_flag=True, help="Show every block, not only backends.")
@output_option
@click.pass_context
def command(
    context: click.Context, /, config: Path, db: str | None, lab: str | None, *, blocks: bool, output: Output
) -> None:
    """Say for each block of the config FILE where its packets are forwarded, from one dump of the datapath.

    \b
    HW       in the NIC                         PARTIAL  the NIC matches, the CPU forwards
    TC_SW    in the kernel's traffic control    SW       in Open vSwitch's software datapath
    ABSENT   no megaflow: no traffic yet, or idle longer than max-idle (10 s). Neither good nor bad.

    Exit status 0: every block that has had traffic is in hardware, 2: some are not, 1: it could not look,
    3: nothing seen yet.
    """
    from xenoovs.cli.planning import compile_near
    from xenoovs.datapath.parse import scan_dump
    from xenoovs.verify.expected import expected_services
    from xenoovs.verify.offload import check_offload
    from xenoovs.verify.report import to_json

    balancer, switch = load(config), connect(db, lab)
    program = compile_near(balancer, switch.dump_flows(balancer.uplinks.bridge))
    dump = switch.dump_megaflows()
    findings = check_offload(expected_services(program), scan_dump(dump))
    if output is Output.JSON:
        print_json(to_json(findings))
    else:
        _show(findings, blocks=blocks)
    context.exit(int(findings.conclusion))


def _show(findings: OffloadFindings, *, blocks: bool) -> None:
    from xenoovs.verify.report import backend_rows, total_row

    if blocks:
        _show_blocks(findings)
    headers = ["SERVICE", "BACKEND", *(verdict.value for verdict in Verdict), "PACKETS", "IN HARDWARE"]
    total = total_row(findings)
    rows = [_row(row) for row in (*backend_rows(findings), total)]
    print_table(headers, rows, right=range(2, len(headers)))
    click.echo()
    for verdict in Verdict:
        if verdict is not Verdict.HW and total.count(verdict):
            click.echo(f"{click.style(verdict.value, fg=_COLOUR[verdict])}: {_MEANING[verdict]}")
    _show_oddities(findings)
    colour = "green" if findings.conclusion is Conclusion.IN_HARDWARE else "yellow"
    click.echo(click.style(_CONCLUSION[findings.conclusion], fg=colour, bold=True))


def _row(row: OffloadRow) -> list[str]:
    counts = [_count(verdict, row.count(verdict)) for verdict in Verdict]
    return [row.service or "total", row.backend or "", *counts, str(row.packets), percent(row.hw_share)]


def _count(verdict: Verdict, count: int) -> str:
    return click.style(str(count), fg=_COLOUR[verdict]) if count else "-"


def _show_blocks(findings: OffloadFindings) -> None:
    from xenoovs.openflow.render import render_match

    rows = [
        [
            found.block.service,
            found.block.backend,
            render_match(found.block.flow.match),
            click.style(found.verdict.value, fg=_COLOUR[found.verdict]),
            str(found.packets),
            str(found.hw_packets),
        ]
        for found in findings.blocks
    ]
    print_table(["SERVICE", "BACKEND", "BLOCK", "VERDICT", "PACKETS", "IN HARDWARE"], rows, right=(4, 5))
    click.echo()


def _show_oddities(findings: OffloadFindings) -> None:
    misdelivered = sum(found.misdelivered for found in findings.blocks)
    slow = sum(found.slow_path for found in findings.blocks)
    if misdelivered:
        click.echo(f"{misdelivered} megaflows send packets elsewhere than the config says; see `xenoovs plan`")
    if slow:
        click.echo(f"{slow} megaflows pass every packet through ovs-vswitchd (slow path)")
    if findings.ignored:
        listed = ", ".join(f"{count} {reason.value}" for reason, count in findings.ignored)
        click.echo(f"megaflows of no block, not judged: {listed}")
    if findings.torn:
        click.echo(f"{len(findings.torn)} lines could not be read; the first: {findings.torn[0]}")
