"""`xenoovs status`: who gets what, now."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from xenoovs.cli.options import Output, bridge_command, connect, load
from xenoovs.cli.output import is_terminal, percent, print_json, print_table, quantity

if TYPE_CHECKING:
    from xenoovs.compile.program import Program
    from xenoovs.switch.api import Switch
    from xenoovs.verify.traffic import BackendTraffic, TrafficReport

_HEADERS = ["SERVICE", "BACKEND", "WANTED", "SPACE", "BLOCKS", "PACKETS", "SEEN", "BYTES", "PPS", "BPS"]


@bridge_command("status")
@click.option("--watch", is_flag=True, help="Show it again and again until interrupted.")
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between the two looks that rates are made from; 0: one look, no rates.",
)
@click.pass_context
def command(
    context: click.Context,
    config: Path,
    db: str | None,
    lab: str | None,
    *,
    watch: bool,
    interval_s: float,
    output: Output,
) -> None:
    """Show the backends of the config FILE with their shares, packets and rates, from the counters of the flows.

    WANTED: share by weight. SPACE: share of the client addresses. SEEN: share of the packets. Open vSwitch brings the
    counters of flows up to date about twice a second, those of hardware every 2 s. Exit status 2: the bridge is not as
    the config says.
    """
    from xenoovs.cli.main import EXIT_DIFFERS, EXIT_OK
    from xenoovs.cli.planning import compile_near

    balancer, switch = load(config), connect(db, lab)
    bridge = balancer.uplinks.bridge
    program = compile_near(balancer, switch.dump_flows(bridge))
    if watch and interval_s == 0:
        raise click.UsageError("--watch needs an --interval above 0.")
    report = None
    for report, before in _looks(program, switch, bridge, interval_s=interval_s):
        if watch and is_terminal():
            click.clear()
        _show(report, before, interval_s, output=output)
        if not watch:
            break
    context.exit(EXIT_OK if report is not None and report.is_as_configured else EXIT_DIFFERS)


def _looks(
    program: Program, switch: Switch, bridge: str, *, interval_s: float
) -> Iterator[tuple[TrafficReport, TrafficReport | None]]:
    from xenoovs.verify.traffic import traffic_report

    before = traffic_report(program, switch.dump_flows(bridge))
    if interval_s == 0:
        yield before, None
        return
    while True:
        time.sleep(interval_s)
        now = traffic_report(program, switch.dump_flows(bridge))
        yield now, before
        before = now


def _show(report: TrafficReport, before: TrafficReport | None, interval_s: float, *, output: Output) -> None:
    earlier: tuple[BackendTraffic | None, ...] = before.backends if before else (None,) * len(report.backends)
    pairs = list(zip(report.backends, earlier, strict=True))
    if output is Output.JSON:
        rows = [_document(now, then, interval_s) for now, then in pairs]
        print_json({"missing_flows": report.missing, "foreign_flows": report.foreign, "backends": rows})
        return
    print_table(_HEADERS, [_row(now, then, interval_s) for now, then in pairs], right=range(2, 10))
    if not report.is_as_configured:
        told = (
            f"the bridge differs from the config: {report.missing} flows missing or changed, {report.foreign} too many"
        )
        click.echo(click.style(f"\n{told}; see `xenoovs plan`", fg="yellow"))


def _row(now: BackendTraffic, then: BackendTraffic | None, interval_s: float) -> list[str]:
    pps, bps = _rates(now, then, interval_s)
    return [
        now.service,
        now.backend,
        percent(now.wanted),
        percent(now.space),
        str(now.blocks),
        str(now.packets),
        percent(now.seen),
        str(now.bytes),
        "-" if pps is None else quantity(pps),
        "-" if bps is None else quantity(bps),
    ]


def _document(now: BackendTraffic, then: BackendTraffic | None, interval_s: float) -> dict[str, object]:
    pps, bps = _rates(now, then, interval_s)
    return {
        "service": now.service,
        "backend": now.backend,
        "wanted": float(now.wanted),
        "space": float(now.space),
        "blocks": now.blocks,
        "packets": now.packets,
        "seen": None if now.seen is None else float(now.seen),
        "bytes": now.bytes,
        "rate_pps": pps,
        "rate_bps": bps,
    }


def _rates(now: BackendTraffic, then: BackendTraffic | None, interval_s: float) -> tuple[float | None, float | None]:
    """Packets and bits a second; none without an earlier look, or when the flows were replaced in between."""
    if then is None or now.packets < then.packets:
        return None, None
    return (now.packets - then.packets) / interval_s, (now.bytes - then.bytes) * 8 / interval_s
