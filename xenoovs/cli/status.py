"""`xenoovs status`: backends with their shares, packets and rates, now."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from xenoovs.dataclass import replace
from xenoovs.display import duration, percent, quantity
from xenoovs.errors import AgentMissing, counted
from xenoovs.model.balancer import DrainMode
from xenoovs.show.column import Column, Row, Table, columns_of, named, number, text
from xenoovs.show.conditions import addressed, is_as_desired, notices
from xenoovs.show.paths import RemoteView
from xenoovs.show.snapshot import BackendView, Snapshot, SwitchMove, backend_rows, parse_snapshot
from xenoovs.show.terminal import STYLES
from xenoovs.terminal.agent_client import agent_of, agent_options, find_client, find_clients, is_agent_named, options_of
from xenoovs.terminal.command import EXIT_DIFFERS, EXIT_OK
from xenoovs.terminal.defaults import environment_config, find_config, option
from xenoovs.terminal.load import answer_each, load, resolved
from xenoovs.terminal.options import duration_or_zero, optional_config_argument, output_option, time_option
from xenoovs.terminal.output import answer, echo, print_columns, print_text, repeat
from xenoovs.terminal.reach import reach, where_of

if TYPE_CHECKING:
    from xenoovs.agent.control.client import Client
    from xenoovs.compile.program import Program
    from xenoovs.judge.traffic import BackendTraffic, TrafficReport
    from xenoovs.model.balancer import Balancer
    from xenoovs.switch.api import Switch


def show_snapshot(snapshot: Snapshot, *, options: str = "", is_headed: bool = False) -> None:
    """Print the backends, and below them what is wrong or temporary. `options`: those that suggested commands need
    to reach the agent, after a space. `is_headed`: whether a heading has named the bridge."""
    age, bridge = duration(snapshot.now_s - snapshot.started_s), "" if is_headed else f"bridge {snapshot.bridge}: "
    echo(f"{bridge}agent up {age}, config {snapshot.config_path} ({snapshot.config_digest})\n")
    if snapshot.services or not snapshot.remotes:
        print_columns(columns_of(BackendView), backend_rows(snapshot))
    if snapshot.remotes:
        if snapshot.services:
            echo()
        print_columns(columns_of(RemoteView), (Row(each, None, snapshot.now_s) for each in snapshot.remotes))
    for index, (notice, how) in enumerate(notices(snapshot)):
        if index == 0:
            echo()
        print_text(addressed(notice, options), **STYLES[how])


@click.command("status")
@optional_config_argument
@agent_options
@click.option("--from-bridge", is_flag=True, help="Read the bridge although an agent runs; needs FILE.")
@click.option("--watch", is_flag=True, help="Repeat until interrupted.")
@time_option(
    "--interval",
    "1s",
    type=duration_or_zero,
    help="Time between two reads. Rates of a bridge need two reads; 0 for one read without rates.",
)
@output_option
def status_command(config: Path | None, *, from_bridge: bool, watch: bool, interval_s: float) -> int:
    """Show backends with their shares and rates, and what is wrong.

    The data is from the running agent; without one, from the bridge and the config FILE. Of several agents
    each one is shown.

    From the agent: STATE of each backend and SINCE when (`held`: down, but kept in service by `max_down`; `ramp`: in a
    slow start). WEIGHT: in use, and in the config where that differs. TARGET: share of the clients by weight. SHARE:
    share of the clients now. PPS, BPS and IN HW: between the last two samples of the datapath. CHANGES: of state,
    weight or link since the agent started, and LAST CHANGE: when and why.

    From the bridge: TARGET and SHARE, and TRAFFIC, the share of the packets, from the counters of the flows. Open
    vSwitch updates those about twice a second, and counters of hardware every 2 s.

    Exit status 0: the newest config is on the bridge, its ports have links, and the backends of all clients answer. 2:
    one of these does not hold; the lines below the table say which. A change that waits for `xenoovs confirm` is
    shown, and is no failure.
    """
    if watch and interval_s == 0:
        raise click.UsageError("--watch needs an --interval above 0.")
    is_named = is_agent_named()
    config = config or (None if is_named else environment_config())
    if config is None and from_bridge:
        config = find_config()
    try:
        if config is not None:
            return _of_config(config, interval_s)
        if is_named or watch or len(clients := find_clients()) < 2:
            return _from_agent(find_client(), interval_s)
        works = {name: partial(_from_agent, client, interval_s, is_headed=True) for name, client in clients.items()}
        return answer_each(works)
    except AgentMissing as missing:
        config = config_instead(missing, "xenoovs status FILE", config)
    return _of_config(config, interval_s)


def config_instead(missing: AgentMissing, command: str, given: Path | None) -> Path:
    """Return the config of a bridge that a command reads for want of an agent. Raises AgentMissing, which suggests
    `command`, if the user has named an agent or a config, or there is none."""
    missing.hint = f"Without an agent, use `{command}`, which reads the bridge."
    missing.commands = (*missing.commands, command)
    if is_agent_named() or given is not None:
        raise missing
    try:
        return find_config()
    except click.UsageError:
        raise missing from None


def _repeated(show: Callable[[], int], pause_s: float) -> int:
    """Show once, or repeatedly with --watch; return the exit status."""
    return repeat(show, pause_s) if option("watch") else show()


def _of_config(config: Path, interval_s: float) -> int:
    """Show the bridge of a config, from its agent if it has one. Return the exit status."""
    balancer = resolved(load(config, of_dpu=True))
    names = balancer.uplinks.label, balancer.uplinks.bridge
    client = None if option("from_bridge") else agent_of(*names)
    return _from_bridge(balancer, config, interval_s) if client is None else _from_agent(client, interval_s)


def _from_agent(client: Client, interval_s: float, *, is_headed: bool = False) -> int:
    def show() -> int:
        document = client.ask("status")
        snapshot = parse_snapshot(document["snapshot"])
        answer(
            lambda: {"from": "agent", **document},
            lambda: show_snapshot(snapshot, options=options_of(client), is_headed=is_headed),
        )
        return EXIT_OK if is_as_desired(snapshot) else EXIT_DIFFERS

    return _repeated(show, interval_s)


def _from_bridge(balancer: Balancer, config: Path, interval_s: float) -> int:
    switch, bridge = reach(), balancer.uplinks.bridge
    source = f"from the flows of bridge {bridge}" + ("" if option("from_bridge") else ", which has no agent")
    reports = _reports(balancer, switch, interval_s=interval_s)

    def show() -> int:
        report, program = next(reports)
        dead, moved = _dead_ports(switch, balancer, program)
        # Imported after the reads that may fail, as it imports the engine.
        from xenoovs.cli.plan import drain_document

        answer(
            lambda: {
                "from": "bridge",
                "missing_flows": report.missing,
                "foreign_flows": report.foreign,
                "ports_without_link": list(dead),
                "backends": _TRAFFIC.documents(report.backends),
                "drains": [drain_document(drain) for drain in report.drains],
                "moved_by_switch": [asdict(each) for each in moved],
            },
            lambda: show_text(report, (*dead.values(), *(each.text for each in moved))),
        )
        return EXIT_OK if report.is_as_configured and not dead else EXIT_DIFFERS

    def show_text(report: TrafficReport, problems: Iterable[str]) -> None:
        from xenoovs.cli.plan import drain_line

        echo(f"{source}:\n")
        print_columns(_TRAFFIC.columns, _TRAFFIC.shown(report.backends))
        for drain in report.drains:
            echo(f"\n{drain_line(drain)} ({drain.connections} so far)")
        for problem in problems:
            echo(click.style(f"\n{problem}", fg="red"))
        if not report.is_as_configured:
            missing = counted(report.missing, "flow")
            text = f"the bridge differs from the config: {missing} missing or changed, {report.foreign} unexpected"
            target = where_of(switch.endpoint, config)
            see = "its agent installs them" if target.is_of_fleet else f"see `{target.text('xenoovs plan FILE')}`"
            echo()
            print_text(f"{text}; {see}", fg="yellow")

    # The reports wait between two reads.
    return _repeated(show, 0.0)


def _dead_ports(switch: Switch, balancer: Balancer, program: Program) -> tuple[dict[str, str], tuple[SwitchMove, ...]]:
    """Return the ports of the config that carry no packets, with the reasons, and the blocks that groups send elsewhere
    as ports are dead. Missing ports show as flows that differ."""
    from xenoovs.agent.bridge_watch import moved_by_switch, port_views

    state = switch.describe(balancer.uplinks.bridge)
    views = port_views({port.name: port for port in state.ports}, balancer)
    dead = {view.name: view.problem for view in views if view.ofport is not None and view.problem}
    return dead, tuple(moved_by_switch(program, state.live_ports))


def _reports(balancer: Balancer, switch: Switch, *, interval_s: float) -> Iterator[tuple[TrafficReport, Program]]:
    """Yield reports with rates since the read before, and their programs. `interval_s`: between two reads; 0 for one
    read without rates."""
    from xenoovs.compile.program import compile_onto
    from xenoovs.judge.traffic import traffic_report

    is_pinned = any(service.drain.mode is DrainMode.PIN for service in balancer.services)
    before, before_s = None, 0.0
    while True:
        observed, now_s = switch.dump_flows(balancer.uplinks.bridge), time.monotonic()
        if before is None or before.drains or is_pinned:
            program = compile_onto(balancer, observed)
        now = traffic_report(program, observed)
        if before is not None:
            # More than the interval on a slow machine.
            apart_s, pairs = now_s - before_s, zip(now.backends, before.backends, strict=True)
            yield replace(now, backends=tuple(_with_rates(*each, apart_s) for each in pairs)), program
        elif interval_s == 0:
            yield now, program
        before, before_s = now, now_s
        time.sleep(interval_s)


def _with_rates(now: BackendTraffic, before: BackendTraffic, apart_s: float) -> BackendTraffic:
    # The counters start again from 0 when the flows are replaced.
    if now.packets < before.packets:
        return now
    packets_s, bytes_s = (now.packets - before.packets) / apart_s, (now.bytes - before.bytes) / apart_s
    return replace(now, rate_pps=packets_s, rate_bps=bytes_s * 8)


_TRAFFIC = Table(
    lambda backends: (((), each) for each in backends),
    named(
        service=Column(shown=text("SERVICE")),
        backend=Column(shown=text("BACKEND")),
        target_share=Column(json=float, shown=number("TARGET", percent)),
        share=Column(json=float, shown=number("SHARE", percent)),
        blocks=Column(shown=number("BLOCKS", keep=1)),
        packets=Column(shown=number("PACKETS")),
        traffic_share=Column(
            json=lambda share: None if share is None else float(share), shown=number("TRAFFIC", percent)
        ),
        bytes=Column(shown=number("BYTES", keep=2)),
        rate_pps=Column(shown=number("PPS", quantity)),
        rate_bps=Column(shown=number("BPS", quantity, keep=3)),
    ),
)
