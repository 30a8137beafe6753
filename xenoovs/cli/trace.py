"""`xenoovs trace`: the way of one client's packet."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xenoovs.cli.options import Output, bridge_command, load_resolved, reach
from xenoovs.cli.output import print_json
from xenoovs.cli.trace_packet import Asked, address, packet_of
from xenoovs.model.address import Mac
from xenoovs.model.intent import service_of
from xenoovs.model.service import Protocol

if TYPE_CHECKING:
    from xenoovs.model.balancer import Balancer
    from xenoovs.model.packet import Packet
    from xenoovs.openflow.flow import ObservedFlow
    from xenoovs.simulate.walk import Outcome
    from xenoovs.switch.api import BridgeState
    from xenoovs.switch.live import LiveSwitch

_SOURCE_PORT = 40000


@bridge_command("trace")
@click.option("--src", required=True, type=address, help="The client's address.")
@click.option("--dst", type=address, help="Destination. Default: the first VIP of the client's IP version.")
@click.option("--protocol", type=click.Choice([p.value for p in Protocol]), help="Default: that of the service.")
@click.option(
    "--sport",
    type=click.IntRange(0, 65535),
    default=_SOURCE_PORT,
    show_default=True,
    help="The client's port; it chooses the backend where a service has match.field source_port.",
)
@click.option("--dport", type=click.IntRange(0, 65535), help="Default: the first port of the service.")
@click.option("--in-port", help="Where the packet enters. Default: the first ingress port.")
@click.option("--offline", is_flag=True, help="Do not ask a switch.")
@click.pass_context
def command(
    context: click.Context,
    /,
    config: Path,
    *,
    offline: bool,
    output: Output,
    **given: Any,
) -> None:
    """Show which backend and which flows a client's packet meets.

    The answer is computed from the config FILE. Where a switch can be reached, it is asked too (ofproto/trace), and
    exit status 2 says that it answered otherwise.
    """
    from xenoovs.cli.main import EXIT_DIFFERS, EXIT_OK
    from xenoovs.compile.of_config import compile_onto
    from xenoovs.simulate.table import tables_of

    balancer = load_resolved(config)
    db, lab = given.pop("db"), given.pop("lab")
    asked = Asked(**given)
    packet = packet_of(balancer, asked)
    switch = None if offline else _reach(balancer, db=db, lab=lab)
    if isinstance(switch, _Reached) and asked.in_port:
        _check_port(asked.in_port, switch.switch.describe(balancer.uplinks.bridge))
    program = compile_onto(balancer, switch.observed if isinstance(switch, _Reached) else ())
    outcome = tables_of(program.flows).run(packet)
    check = _ask(balancer, packet, outcome, switch) if isinstance(switch, _Reached) else switch
    _show(balancer, packet, outcome, check, output=output)
    context.exit(EXIT_DIFFERS if check is not None and check.agrees is False else EXIT_OK)


@dataclass(frozen=True, slots=True)
class SwitchCheck:
    """What the switch said. `agrees` None: it could not be asked or does not know, and `text` says why."""

    agrees: bool | None
    text: str


@dataclass(frozen=True, slots=True)
class _Reached:
    switch: LiveSwitch
    observed: tuple[ObservedFlow, ...]


def _reach(balancer: Balancer, *, db: str | None, lab: str | None) -> _Reached | SwitchCheck:
    from xenoovs.errors import SwitchError

    try:
        switch = reach(db, lab)
        return _Reached(switch, switch.dump_flows(balancer.uplinks.bridge))
    except SwitchError as error:
        # A switch that was named must answer; the host's own one is only asked where there is one.
        if db or lab:
            raise
        return SwitchCheck(agrees=None, text=f"not asked: {error}")


def _check_port(name: str, bridge: BridgeState) -> None:
    """Raises click.UsageError."""
    names = sorted(port.name for port in bridge.ports)
    if name not in names:
        raise click.UsageError(f"--in-port {name}: bridge {bridge.name} has {', '.join(names) or 'no port'}")


def _ask(balancer: Balancer, packet: Packet, outcome: Outcome, reached: _Reached) -> SwitchCheck:
    from xenoovs.verify.trace import agrees, parse_trace, render_packet

    answer = parse_trace(reached.switch.trace(balancer.uplinks.bridge, render_packet(packet)))
    told = f"{answer.dl_dst or 'the same MAC'} by {', '.join(answer.ports)}" if answer.ports else "drop"
    wanted = [(str(Mac(copy.dl_dst)), copy.port) for copy in outcome.copies]
    verdict = agrees(packet, wanted, answer)
    if verdict is None:
        return SwitchCheck(agrees=None, text=f"MAC learning decides (NORMAL); ofproto/trace says {told}")
    if verdict:
        return SwitchCheck(agrees=True, text=f"ofproto/trace says the same; megaflow: {answer.megaflow}")
    return SwitchCheck(agrees=False, text=f"ofproto/trace says {told}; see `xenoovs plan`")


def _show(balancer: Balancer, packet: Packet, outcome: Outcome, check: SwitchCheck | None, *, output: Output) -> None:
    from xenoovs.openflow.render import render_flow

    service = service_of(balancer, packet)
    backend = _backend(balancer, packet, outcome)
    copies = [{"dl_dst": str(Mac(copy.dl_dst)), "port": copy.port} for copy in outcome.copies]
    flows = [render_flow(flow) for flow in outcome.flows]
    if output is Output.JSON:
        answer = None if check is None else {"agrees": check.agrees, "text": check.text}
        name = service.name if service else None
        print_json({"service": name, "backend": backend, "copies": copies, "flows": flows, "switch": answer})
        return
    by_port = f" from port {packet.sport}" if service is not None and service.key.field.needs_ports else ""
    click.echo(f"{packet.source} -> {packet.destination}, IP protocol {packet.protocol}, port {packet.dport}{by_port}")
    click.echo("".join(f"  {flow}\n" for flow in flows), nl=False)
    leaves = ", ".join(f"{copy['dl_dst']} by {copy['port'] or 'NORMAL'}" for copy in copies) or "dropped"
    if service is None:
        click.echo(f"no service's packet: {leaves}")
    else:
        chosen = click.style(backend or "none", bold=True, fg="green")
        click.echo(f"service {click.style(service.name, bold=True)} -> backend {chosen} ({leaves})")
    if check is not None:
        colour = {True: "green", False: "red", None: "yellow"}[check.agrees]
        click.echo(f"switch: {click.style(check.text, fg=colour)}")


def _backend(balancer: Balancer, packet: Packet, outcome: Outcome) -> str | None:
    from xenoovs.compile.next_hop import arrives

    service = service_of(balancer, packet)
    if service is None or not outcome.copies:
        return None
    left = outcome.copies[0]
    found = (b.name for b in service.backends if arrives(b.next_hop, dl_dst=left.dl_dst, port=left.port))
    return next(found, None)
