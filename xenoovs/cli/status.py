"""`xenoovs status`: backends with their shares, packets and rates, now."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xenoovs.agent.conditions import notices
from xenoovs.agent.rows import BackendRow, backend_rows
from xenoovs.agent.snapshot import BackendState, Snapshot
from xenoovs.cli.agent_client import Where, agent_of, agent_options, find_client
from xenoovs.cli.options import OutputFormat, load_resolved, output_option, reach
from xenoovs.cli.output import clear_terminal, echo, print_json, print_table, print_text
from xenoovs.display import duration, percent, printable, quantity
from xenoovs.errors import AgentMissing, counted
from xenoovs.model.balancer import DrainMode

if TYPE_CHECKING:
    from xenoovs.agent.control.client import Client
    from xenoovs.model.balancer import Balancer
    from xenoovs.switch.api import Switch
    from xenoovs.verify.traffic import BackendTraffic, TrafficReport


# From the agent.


_AGENT_HEADERS = [
    "SERVICE",
    "BACKEND",
    "STATE",
    "SINCE",
    "WEIGHT",
    "TARGET",
    "SHARE",
    "BLOCKS",
    "PPS",
    "BPS",
    "IN HW",
    "PROBE",
]
_AGENT_SPARE = tuple(_AGENT_HEADERS.index(name) for name in ("BLOCKS", "BPS", "TARGET", "PPS", "IN HW"))
_COLOURS = {BackendState.UP: "green", BackendState.DOWN: "red", BackendState.DRAINED: "yellow"}
_NOTICE_COLOURS = {"bad": "red", "warn": "yellow", "note": "cyan"}


def show_snapshot(snapshot: Snapshot) -> None:
    """Print the backends, and below them what is wrong or temporary."""
    age = duration(snapshot.now_s - snapshot.started_s)
    echo(f"bridge {snapshot.bridge}: agent up {age}, config {snapshot.config_path} ({snapshot.config_digest})\n")
    print_table(_AGENT_HEADERS, map(_agent_row, backend_rows(snapshot)), right=range(4, 11), spare=_AGENT_SPARE)
    for index, (text, how) in enumerate(notices(snapshot)):
        if index == 0:
            echo()
        print_text(text, fg=_NOTICE_COLOURS[how])


def _agent_row(row: BackendRow) -> list[str]:
    return [
        row.service.name,
        row.backend.name,
        click.style(row.state, fg=_COLOURS.get(row.backend.state)),
        row.since,
        row.weight,
        row.target,
        row.share,
        str(row.backend.flows),
        row.pps,
        row.bps,
        row.in_hw,
        # A line feed would break the table.
        printable(row.probe),
    ]


# From the bridge.


_HEADERS = ["SERVICE", "BACKEND", "TARGET", "SHARE", "BLOCKS", "PACKETS", "TRAFFIC", "BYTES", "PPS", "BPS"]

_SPARE = tuple(_HEADERS.index(name) for name in ("BLOCKS", "BYTES", "BPS"))


@dataclass(frozen=True, slots=True)
class StatusOptions:
    """The options of one call."""

    config: Path | None
    where: Where
    from_bridge: bool
    watch: bool
    interval_s: float
    output: OutputFormat


@click.command("status")
@click.argument("config", metavar="[FILE]", required=False, type=click.Path(allow_dash=True, path_type=Path))
@agent_options
@click.option("--from-bridge", is_flag=True, help="Read the bridge although an agent runs; needs FILE.")
@click.option("--watch", is_flag=True, help="Repeat until interrupted.")
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two reads. Rates of a bridge need two reads; 0: one read, no rates.",
)
@output_option
@click.pass_context
def status_command(context: click.Context, /, **given: Any) -> None:
    """Show backends with their shares and rates, and what is wrong.

    The data is from the running agent; without one, from the bridge and the config FILE.

    From the agent: STATE of each backend and SINCE when (`held`: down, but kept in service by `max_down`; `ramp`: in a
    slow start). WEIGHT: in use, and in the config where that differs. TARGET: share of the clients by weight. SHARE:
    share of the clients now. PPS, BPS and IN HW: between the last two samples of the datapath.

    From the bridge: TARGET and SHARE, and TRAFFIC, the share of the packets, from the counters of the flows. Open
    vSwitch updates those about twice a second, and counters of hardware every 2 s.

    Exit status 0: the newest config is on the bridge, its ports have links, and the backends of all clients answer. 2:
    one of these does not hold; the lines below the table say which. A change that waits for `xenoovs confirm` is
    shown, and is no failure.
    """
    options = StatusOptions(**given)
    if options.watch and options.interval_s == 0:
        raise click.UsageError("--watch needs an --interval above 0.")
    if options.from_bridge and options.config is None:
        raise click.UsageError("--from-bridge needs the config FILE.")
    balancer = None if options.config is None else load_resolved(options.config)
    try:
        client = _agent(balancer, options)
        if client is not None:
            context.exit(_from_agent(client, options))
    except AgentMissing:
        echo("without an agent, use `xenoovs status FILE`, which reads the bridge", err=True)
        raise
    if balancer is not None:
        context.exit(_from_bridge(balancer, options))


def _agent(balancer: Balancer | None, options: StatusOptions) -> Client | None:
    """Return the agent to ask; None: read the bridge. Raises AgentMissing where only an agent will do."""
    if balancer is None:
        return find_client(options.where)
    return None if options.from_bridge else agent_of(options.where, balancer.uplinks.label, balancer.uplinks.bridge)


def _from_agent(client: Client, options: StatusOptions) -> int:
    from xenoovs.agent.conditions import is_as_desired
    from xenoovs.agent.snapshot import parse_snapshot
    from xenoovs.cli.main import EXIT_DIFFERS, EXIT_OK

    while True:
        document = client.ask("status")
        snapshot = parse_snapshot(document["snapshot"])
        if options.watch:
            clear_terminal()
        if options.output is OutputFormat.JSON:
            print_json({"from": "agent", **document})
        else:
            show_snapshot(snapshot)
        if not options.watch:
            return EXIT_OK if is_as_desired(snapshot) else EXIT_DIFFERS
        time.sleep(options.interval_s)


def _from_bridge(balancer: Balancer, options: StatusOptions) -> int:
    from xenoovs.cli.main import EXIT_DIFFERS, EXIT_OK

    switch, bridge = reach(options.where.db, options.where.lab), balancer.uplinks.bridge
    source = f"from the flows of bridge {bridge}" + ("" if options.from_bridge else ", which has no agent")
    report: TrafficReport | None = None
    dead: tuple[str, ...] = ()
    for report, before in _reports(balancer, switch, interval_s=options.interval_s):
        if options.watch:
            clear_terminal()
        if options.output is OutputFormat.TEXT:
            echo(f"{source}:\n")
        dead = _dead_ports(switch, balancer)
        _show(report, before, options, dead=dead)
        if not options.watch:
            break
    return EXIT_OK if report is not None and report.is_as_configured and not dead else EXIT_DIFFERS


def _dead_ports(switch: Switch, balancer: Balancer) -> tuple[str, ...]:
    """Return the ports of the config without link. Missing ports are among the flows that differ."""
    states = {port.name: port for port in switch.describe(balancer.uplinks.bridge).ports}
    return tuple(name for name in balancer.ports if name in states and states[name].link_up is False)


def _reports(
    balancer: Balancer, switch: Switch, *, interval_s: float
) -> Iterator[tuple[TrafficReport, TrafficReport | None]]:
    from xenoovs.compile.program import compile_onto
    from xenoovs.verify.traffic import traffic_report

    bridge = balancer.uplinks.bridge
    observed = switch.dump_flows(bridge)
    program = compile_onto(balancer, observed)
    before = traffic_report(program, observed)
    if interval_s == 0:
        yield before, None
        return
    while True:
        time.sleep(interval_s)
        observed = switch.dump_flows(bridge)
        if before.drains or any(service.drain.mode is DrainMode.PIN for service in balancer.services):
            program = compile_onto(balancer, observed)
        now = traffic_report(program, observed)
        yield now, before
        before = now


def _show(
    report: TrafficReport, before: TrafficReport | None, options: StatusOptions, *, dead: tuple[str, ...]
) -> None:
    from xenoovs.cli.plan import drain_document, drain_line

    earlier: tuple[BackendTraffic | None, ...] = before.backends if before else (None,) * len(report.backends)
    rows = [_document(now, then, options.interval_s) for now, then in zip(report.backends, earlier, strict=True)]
    if options.output is OutputFormat.JSON:
        drains = [drain_document(drain) for drain in report.drains]
        counts = {"missing_flows": report.missing, "foreign_flows": report.foreign}
        print_json({"from": "bridge", **counts, "ports_without_link": list(dead), "backends": rows, "drains": drains})
        return
    shown = ([_CELLS.get(name, str)(value) for name, value in row.items()] for row in rows)
    print_table(_HEADERS, shown, right=range(2, 10), spare=_SPARE)
    for drain in report.drains:
        echo(f"\n{drain_line(drain)} ({drain.connections} so far)")
    for name in dead:
        echo(click.style(f"\nport {name} has no link", fg="red"))
    if not report.is_as_configured:
        missing = counted(report.missing, "flow")
        text = f"the bridge differs from the config: {missing} missing or changed, {report.foreign} unexpected"
        echo(click.style(f"\n{text}; see `xenoovs plan`", fg="yellow"))


_CELLS: dict[str, Callable[[Any], str]] = {
    "target_share": percent,
    "share": percent,
    "traffic_share": percent,
    "rate_pps": quantity,
    "rate_bps": quantity,
}


def _document(now: BackendTraffic, then: BackendTraffic | None, interval_s: float) -> dict[str, object]:
    # Without an earlier read there are no rates, nor when the flows were replaced in between.
    since = then if then is not None and now.packets >= then.packets else None
    return {
        "service": now.service,
        "backend": now.backend,
        "target_share": float(now.target_share),
        "share": float(now.share),
        "blocks": now.blocks,
        "packets": now.packets,
        "traffic_share": None if now.traffic_share is None else float(now.traffic_share),
        "bytes": now.bytes,
        "rate_pps": None if since is None else (now.packets - since.packets) / interval_s,
        "rate_bps": None if since is None else (now.bytes - since.bytes) * 8 / interval_s,
    }
