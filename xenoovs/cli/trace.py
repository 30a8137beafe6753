"""`xenoovs trace`: the way of one client's packet."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xenoovs.cli.options import Output, bridge_command, load_resolved, reach
from xenoovs.cli.output import echo, print_json
from xenoovs.model.address import IPAddress, Mac, family_of
from xenoovs.model.balancer import Balancer, Claim, Protocol, Service
from xenoovs.model.intent import service_of
from xenoovs.model.packet import Packet

if TYPE_CHECKING:
    from xenoovs.datapath.host import BridgeState
    from xenoovs.openflow.flow import ObservedFlow
    from xenoovs.simulate.walk import Outcome
    from xenoovs.switch.live import LiveSwitch


# The packet that `xenoovs trace` asks about, out of what the user said and what the config makes likely.


_SOME_ADDRESSES = {4: ("192.0.2.1", "192.0.2.2"), 6: ("2001:db8::1", "2001:db8::2")}
"""Documentation addresses (RFC 5737, RFC 3849), for services that take any destination, and for no service."""

_ECHO_REQUEST = {4: 8, 6: 128}
"""ICMP types (RFC 792, RFC 4443)."""

_SOME_PORT = 80


def address(text: str) -> IPAddress:
    """An address given as an option. Raises click.BadParameter."""
    try:
        return ip_address(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@dataclass(frozen=True, slots=True)
class Asked:
    """What the user said of the packet; None: nothing, and what is likely is taken."""

    src: IPAddress
    dst: IPAddress | None
    protocol: str | None
    sport: int
    dport: int | None
    in_port: str | None


def packet_of(balancer: Balancer, asked: Asked) -> Packet:
    """The packet. Raises click.UsageError when source and destination are not of one IP version."""
    src, dport, family = asked.src, asked.dport, family_of(asked.src)
    protocol = Protocol(asked.protocol) if asked.protocol else None
    service = _guess_service(_for_addresses(balancer, src, asked.dst), protocol=protocol, dport=dport)
    claim = service.claim if service else None
    kind = protocol or (claim.protocol if claim and claim.protocol else Protocol.UDP)
    vips = claim.vips_of(family) if claim else ()
    destination = asked.dst or (vips[0] if vips else _other_than(src))
    if family_of(destination) is not family:
        raise click.UsageError(f"--src {src} and --dst {destination} are not of one IP version.")
    port = dport if dport is not None else claim.ports[0].first if claim and claim.ports else _SOME_PORT
    return Packet(
        in_port=asked.in_port or balancer.uplinks.ingress[0],
        source=src,
        destination=destination,
        protocol=kind.number(family),
        sport=asked.sport if kind.has_ports else _ECHO_REQUEST[src.version],
        dport=port if kind.has_ports else 0,
        dl_dst=service.vip_mac if service and service.vip_mac else Mac(0x020000000002),
    )


def _other_than(src: IPAddress) -> IPAddress:
    return next(address for text in _SOME_ADDRESSES[src.version] if (address := ip_address(text)) != src)


def _for_addresses(balancer: Balancer, src: IPAddress, dst: IPAddress | None) -> list[Service]:
    family = family_of(src)
    return [s for s in balancer.services if family in s.claim.families and (dst is None or dst in s.claim.vips)]


def _guess_service(services: list[Service], *, protocol: Protocol | None, dport: int | None) -> Service | None:
    """The first that such a packet can be of, else the first, whose packet it is not."""

    def fits(claim: Claim) -> bool:
        speaks = protocol is None or claim.protocol in (None, protocol)
        return speaks and (dport is None or not claim.ports or any(p.first <= dport <= p.last for p in claim.ports))

    return next((service for service in services if fits(service.claim)), services[0] if services else None)


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
def trace_command(
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
    from xenoovs.compile.program import compile_onto
    from xenoovs.simulate.walk import tables_of

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
    from xenoovs.openflow.text import render_flow

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
    echo(f"{packet.source} -> {packet.destination}, IP protocol {packet.protocol}, port {packet.dport}{by_port}")
    echo("".join(f"  {flow}\n" for flow in flows), nl=False)
    leaves = ", ".join(f"{copy['dl_dst']} by {copy['port'] or 'NORMAL'}" for copy in copies) or "dropped"
    if service is None:
        echo(f"no service's packet: {leaves}")
    else:
        chosen = click.style(backend or "none", bold=True, fg="green")
        echo(f"service {click.style(service.name, bold=True)} -> backend {chosen} ({leaves})")
    if check is not None:
        colour = {True: "green", False: "red", None: "yellow"}[check.agrees]
        echo(f"switch: {click.style(check.text, fg=colour)}")


def _backend(balancer: Balancer, packet: Packet, outcome: Outcome) -> str | None:
    from xenoovs.compile.encoding import arrives

    service = service_of(balancer, packet)
    if service is None or not outcome.copies:
        return None
    left, before = outcome.copies[0], packet.dl_dst.value
    backends = service.backends
    found = (b.name for b in backends if arrives(b.next_hop, dl_dst=left.dl_dst, port=left.port, original=before))
    return next(found, None)
