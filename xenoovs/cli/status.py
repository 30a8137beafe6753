"""`xenoovs status`: backends with their shares, packets and rates, now."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xenoovs.agent.conditions import troubles
from xenoovs.agent.snapshot import BackendState, BackendView, ServiceView, Snapshot
from xenoovs.cli.agent_client import Where, agent_of, agent_options, find_client
from xenoovs.cli.options import Output, load_resolved, output_option, reach
from xenoovs.cli.output import clear_terminal, echo, print_json, print_table
from xenoovs.display import decimal, duration, latency, percent, printable, quantity
from xenoovs.errors import AgentMissing, counted
from xenoovs.model.balancer import DrainMode

if TYPE_CHECKING:
    from xenoovs.agent.control.client import Client
    from xenoovs.model.balancer import Balancer
    from xenoovs.switch.api import Switch
    from xenoovs.verify.traffic import BackendTraffic, TrafficReport


# What a running agent knows, as a table for people.


_AGENT_HEADERS = [
    "SERVICE",
    "BACKEND",
    "STATE",
    "FOR",
    "WEIGHT",
    "WANTED",
    "SPACE",
    "BLOCKS",
    "PPS",
    "BPS",
    "IN HW",
    "PROBE",
]
_AGENT_SPARE = tuple(_AGENT_HEADERS.index(name) for name in ("BLOCKS", "BPS", "WANTED", "PPS", "IN HW"))
_COLOURS = {BackendState.UP: "green", BackendState.DOWN: "red", BackendState.DRAINED: "yellow"}

_HOW = {"bad": "red", "warn": "yellow"}


def show_snapshot(snapshot: Snapshot) -> None:
    """Backends, and below them all that is not as it should be."""
    age = duration(snapshot.now_s - snapshot.started_s)
    echo(f"agent of bridge {snapshot.bridge}, for {age}: {snapshot.config_path} ({snapshot.config_digest})\n")
    rows = [_agent_row(snapshot, service, backend) for service in snapshot.services for backend in service.backends]
    print_table(_AGENT_HEADERS, rows, right=range(4, 11), spare=_AGENT_SPARE)
    lines = [*_remarks(snapshot)]
    if lines:
        echo()
    for colour, line in lines:
        echo(click.style(line, fg=colour))


def _agent_row(snapshot: Snapshot, service: ServiceView, backend: BackendView) -> list[str]:
    state = backend.state.value + (" (kept)" if backend.state is BackendState.DOWN and not backend.is_out else "")
    rate, traffic = backend.rate, backend.traffic
    packets = 0 if traffic is None else traffic.hw_packets + traffic.sw_packets
    return [
        service.name,
        backend.name,
        click.style(state, fg=_COLOURS.get(backend.state)),
        duration(None if backend.since_s is None else snapshot.now_s - backend.since_s),
        _weight(backend),
        percent(backend.share_wanted),
        percent(backend.share_installed),
        str(backend.flows),
        quantity(None if rate is None else rate.pps),
        quantity(None if rate is None else rate.bps),
        percent(traffic.hw_packets / packets) if traffic is not None and packets else "-",
        _probe(backend),
    ]


def _weight(backend: BackendView) -> str:
    weight = decimal(backend.weight_in_use)
    return weight if backend.ramp is None else f"{weight} ({percent(backend.ramp)})"


def _probe(backend: BackendView) -> str:
    if not backend.reason:
        return "-"
    reason, latency_s = printable(backend.reason), backend.probe_latency_s
    return reason if latency_s is None else f"{reason}, {latency(latency_s)}"


def _remarks(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    """Lines with their colour, the most pressing first."""
    for told, how in troubles(snapshot):
        yield _HOW[how], told
    for override in snapshot.overrides:
        age = duration(snapshot.now_s - override.since_s)
        what = f"weight {decimal(override.weight)}" if override.weight else "drained"
        yield (
            "yellow",
            f"{override.service}/{override.backend}: {what} for {age}, the config says "
            f"{decimal(override.configured)}; `xenoovs undrain {override.service} {override.backend}` goes back",
        )
    for service in snapshot.services:
        if service.draining:
            blocks = "1 block" if service.draining == 1 else f"{service.draining} blocks"
            yield "yellow", f"{service.name}: open connections of {blocks} stay with their old backends"


_HEADERS = ["SERVICE", "BACKEND", "WANTED", "SPACE", "BLOCKS", "PACKETS", "SEEN", "BYTES", "PPS", "BPS"]

_SPARE = tuple(_HEADERS.index(name) for name in ("BLOCKS", "BYTES", "BPS"))


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one call."""

    config: Path | None
    where: Where
    from_bridge: bool
    watch: bool
    interval_s: float
    output: Output


@click.command("status")
@click.argument("config", metavar="[FILE]", required=False, type=click.Path(allow_dash=True, path_type=Path))
@agent_options
@click.option("--from-bridge", is_flag=True, help="Read the bridge although an agent runs; needs FILE.")
@click.option("--watch", is_flag=True, help="Show it again and again until interrupted.")
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Between two looks. Of the bridge, rates are made from two; 0: one look, no rates.",
)
@output_option
@click.pass_context
def status_command(context: click.Context, /, **given: Any) -> None:
    """Show who gets what, and what is wrong: from the agent where one runs, else from the bridge and the config FILE.

    From the agent: state of each backend, and for how long (`kept`: down, but `max_down` leaves it its clients); its
    weight in use; WANTED, its share by weight; SPACE, its share of the clients; rates by the datapath.

    From the bridge: WANTED and SPACE, and SEEN, the share of the packets, from the counters of the flows. Open vSwitch
    brings those up to date about twice a second, those of hardware every 2 s.

    Exit status 0: the newest config is on the bridge, the ports it names have their links, and all clients have
    backends that answer. 2: something of that is not so; the lines below the table say what. A change that waits for
    `xenoovs confirm` is told and is no failure.
    """
    where = Where(**{name: given.pop(name) for name in ("control", "bridge", "db", "lab")})
    options = Options(where=where, **given)
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
        echo("without an agent, `xenoovs status FILE` reads the bridge of a config itself", err=True)
        raise
    if balancer is not None:
        context.exit(_from_bridge(balancer, options))


def _agent(balancer: Balancer | None, options: Options) -> Client | None:
    """Whom to ask; None: the bridge. Raises AgentMissing where only an agent could tell."""
    if balancer is None:
        return find_client(options.where)
    return None if options.from_bridge else agent_of(options.where, balancer.uplinks.label, balancer.uplinks.bridge)


def _from_agent(client: Client, options: Options) -> int:
    from xenoovs.agent.conditions import is_as_desired
    from xenoovs.agent.snapshot import from_document
    from xenoovs.cli.main import EXIT_DIFFERS, EXIT_OK

    while True:
        document = client.ask("status")
        snapshot = from_document(document["snapshot"])
        if options.watch:
            clear_terminal()
        if options.output is Output.JSON:
            print_json({"from": "agent", **document})
        else:
            show_snapshot(snapshot)
        if not options.watch:
            return EXIT_OK if is_as_desired(snapshot) else EXIT_DIFFERS
        time.sleep(options.interval_s)


def _from_bridge(balancer: Balancer, options: Options) -> int:
    from xenoovs.cli.main import EXIT_DIFFERS, EXIT_OK

    switch, bridge = reach(options.where.db, options.where.lab), balancer.uplinks.bridge
    source = f"from the flows of bridge {bridge}" + ("" if options.from_bridge else ", which no agent keeps")
    report: TrafficReport | None = None
    dead: tuple[str, ...] = ()
    for report, before in _looks(balancer, switch, interval_s=options.interval_s):
        if options.watch:
            clear_terminal()
        if options.output is Output.TEXT:
            echo(f"{source}:\n")
        dead = _dead_ports(switch, balancer)
        _show(report, before, options, dead=dead)
        if not options.watch:
            break
    return EXIT_OK if report is not None and report.is_as_configured and not dead else EXIT_DIFFERS


def _dead_ports(switch: Switch, balancer: Balancer) -> tuple[str, ...]:
    """Ports of the config without link. Those that are missing are among the flows that differ."""
    states = {port.name: port for port in switch.describe(balancer.uplinks.bridge).ports}
    return tuple(name for name in balancer.ports if name in states and states[name].link_up is False)


def _looks(
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


def _show(report: TrafficReport, before: TrafficReport | None, options: Options, *, dead: tuple[str, ...]) -> None:
    from xenoovs.cli.plan import drain_document, drain_line

    earlier: tuple[BackendTraffic | None, ...] = before.backends if before else (None,) * len(report.backends)
    pairs = list(zip(report.backends, earlier, strict=True))
    interval_s = options.interval_s
    if options.output is Output.JSON:
        rows = [_document(now, then, interval_s) for now, then in pairs]
        drains = [drain_document(drain) for drain in report.drains]
        counts = {"missing_flows": report.missing, "foreign_flows": report.foreign}
        print_json({"from": "bridge", **counts, "ports_without_link": list(dead), "backends": rows, "drains": drains})
        return
    print_table(_HEADERS, [_row(now, then, interval_s) for now, then in pairs], right=range(2, 10), spare=_SPARE)
    for drain in report.drains:
        echo(f"\n{drain_line(drain)} ({drain.connections} so far)")
    for name in dead:
        echo(click.style(f"\nport {name} has no link", fg="red"))
    if not report.is_as_configured:
        missing = counted(report.missing, "flow")
        told = f"the bridge differs from the config: {missing} missing or changed, {report.foreign} too many"
        echo(click.style(f"\n{told}; see `xenoovs plan`", fg="yellow"))


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
        quantity(pps),
        quantity(bps),
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
