"""`xenoovs trace`: the flows and the backend of one client's packet."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from ipaddress import IPv4Address
from pathlib import Path

import click

from xenoovs.compile.encoding import arrives
from xenoovs.compile.program import compile_onto
from xenoovs.dataclass import dataclass
from xenoovs.errors import SimulateError, SwitchError, did_you_mean, first_names
from xenoovs.judge.simulate.walk import Copy, Headers, Walk, headers_of, tables_of, walk
from xenoovs.judge.trace import TraceResult, agrees, enters_tunnel, parse_trace, render_packet
from xenoovs.model.address import IPAddress, Mac
from xenoovs.model.balancer import Backend, Balancer, Protocol, Service, service_ids
from xenoovs.model.next_hop import MAX_VLAN, is_tunneled, written_and_port
from xenoovs.model.packet import Packet, likely_packet, service_of
from xenoovs.model.remote import every_service
from xenoovs.model.tunnel import RemoteEnd, remote_end_of
from xenoovs.openflow.flow import TAGGED, Field, ObservedFlow
from xenoovs.openflow.flow import service_of as cookie_service
from xenoovs.openflow.text import render_flow
from xenoovs.switch.management import ManagementSwitch
from xenoovs.switch.tape import is_replaying
from xenoovs.terminal.command import EXIT_DIFFERS, EXIT_OK
from xenoovs.terminal.defaults import option
from xenoovs.terminal.load import load_resolved
from xenoovs.terminal.options import address, bridge_command, record_option
from xenoovs.terminal.output import echo, is_text, print_json
from xenoovs.terminal.reach import reach


@dataclass(frozen=True, slots=True)
class SwitchCheck:
    """The result from the switch. `agrees`: None if unknown; `text` then has the reason."""

    agrees: bool | None
    text: str


@bridge_command("trace")
@record_option("offline")
@click.option("--src", required=True, type=address, help="Address of the client.")
@click.option("--dst", type=address, help="Destination. Default: the first VIP of the client's IP version.")
@click.option("--protocol", type=click.Choice([p.value for p in Protocol]), help="Default: that of the service.")
@click.option(
    "--sport",
    type=click.IntRange(0, 65535),
    default=40000,
    show_default=True,
    help="Port of the client; it selects the backend of services with match.field source_port.",
)
@click.option("--dport", type=click.IntRange(0, 65535), help="Default: the first port of the service.")
@click.option(
    "--vlan", type=click.IntRange(0, MAX_VLAN), help="VLAN of the packet, 0 for none. Default: that of the service."
)
@click.option("--in-port", metavar="PORT", help="Port where the packet enters. Default: the first ingress port.")
@click.option("--offline", is_flag=True, help="Read no switch.")
def trace_command(
    config: Path,
    *,
    src: IPAddress,
    dst: IPAddress | None,
    protocol: str | None,
    sport: int,
    dport: int | None,
    vlan: int | None,
    in_port: str | None,
    offline: bool,
) -> int:
    """Show which backend and which flows a client's packet meets.

    The result is computed from the config FILE. If a switch can be reached, it is compared with ofproto/trace.

    Exit status 2: the switch gives another result.
    """
    balancer = load_resolved(config)
    bridge = balancer.uplinks.bridge
    kind = Protocol(protocol) if protocol else None
    if dst is not None and dst.version != src.version:
        raise click.UsageError(f"--src {src} and --dst {dst} have different IP versions.")
    packet = likely_packet(balancer, src, dst, protocol=kind, sport=sport, dport=dport, vlan=vlan, in_port=in_port)
    switch: ManagementSwitch | None = None
    observed: tuple[ObservedFlow, ...] = ()
    check: SwitchCheck | None = None
    if not offline:
        try:
            switch = reach()
            observed = switch.dump_flows(bridge)
        except SwitchError as error:
            # A switch that the user names must answer; the one of the host may be missing.
            if option("db") or option("lab") or is_replaying():
                raise
            switch, check = None, SwitchCheck(agrees=None, text=f"not asked: {error}")
    if switch is not None and in_port:
        names = sorted(port.name for port in switch.describe(bridge).ports)
        if in_port not in names:
            there = first_names(names) or "no port"
            raise click.UsageError(f"--in-port {in_port}: bridge {bridge} has {there}.{did_you_mean(in_port, names)}")
    live = switch.describe(bridge).live_ports if switch is not None and balancer.uplinks.buckets else None
    outcome = walk(tables_of(compile_onto(balancer, observed).flows), packet, live=live)
    if switch is not None and is_replaying():
        check = _check_recorded(packet, outcome, (*observed, *switch.dump_foreign_flows(bridge)), live=live)
    elif switch is not None:
        answer = parse_trace(switch.trace(bridge, render_packet(packet)))
        backend = _backend(balancer, packet, outcome)
        end = None if backend is None else remote_end_of(backend.next_hop, balancer.switch_tunnels)
        check = _check(packet, outcome, end, answer)
    _show(balancer, packet, outcome, check)
    return EXIT_DIFFERS if check is not None and check.agrees is False else EXIT_OK


def _check(packet: Packet, outcome: Walk, end: RemoteEnd | None, answer: TraceResult) -> SwitchCheck:
    result = f"{answer.dl_dst or 'the same MAC'} by {', '.join(answer.ports)}" if answer.ports else "drop"
    if end is not None:
        verdict: bool | None = enters_tunnel(packet, end, answer)
    else:
        verdict = agrees(packet, [(str(Mac(copy.dl_dst)), copy.vlan, copy.port) for copy in outcome.copies], answer)
    if verdict is None:
        return SwitchCheck(agrees=None, text=f"MAC learning decides (NORMAL); ofproto/trace gives {result}")
    if verdict:
        return SwitchCheck(agrees=True, text=f"ofproto/trace gives the same; megaflow: {answer.megaflow}")
    return SwitchCheck(agrees=False, text=f"ofproto/trace gives {result}; see `xenoovs plan`")


def _check_recorded(
    packet: Packet, outcome: Walk, flows: Iterable[ObservedFlow], *, live: Collection[str] | None
) -> SwitchCheck:
    """Compare with a simulation of all flows of the bridge, as a record has no ofproto/trace."""
    try:
        copies = walk(tables_of(seen.flow for seen in flows), packet, live=live).copies
    except SimulateError as error:
        return SwitchCheck(agrees=None, text=f"the recorded flows were not followed: {error}")
    sent, wanted = ([(Mac(copy.dl_dst), copy.vlan, copy.port) for copy in each] for each in (copies, outcome.copies))
    if sent == wanted:
        return SwitchCheck(agrees=True, text="the recorded flows give the same")
    result = ", ".join(f"{mac} by {port or 'NORMAL'}" for mac, _, port in sent) or "drop"
    return SwitchCheck(agrees=False, text=f"the recorded flows give {result}")


def _show(balancer: Balancer, packet: Packet, outcome: Walk, check: SwitchCheck | None) -> None:
    service = service_of(balancer, packet)
    backend = _backend(balancer, packet, outcome)
    tags = [{"vlan": copy.vlan & ~TAGGED} if copy.vlan else {} for copy in outcome.copies]
    sides = zip(outcome.copies, tags, strict=True)
    copies = [{"dl_dst": str(Mac(copy.dl_dst)), "port": copy.port, **tag} for copy, tag in sides]
    flows = [render_flow(flow) for flow in outcome.flows]
    if not is_text():
        answer = None if check is None else {"agrees": check.agrees, "text": check.text}
        name = service.name if service else None
        shown = None if backend is None else backend.name
        print_json({"service": name, "backend": shown, "copies": copies, "flows": flows, "switch": answer})
        return
    by_port = f" from port {packet.sport}" if service is not None and service.key.field.needs_ports else ""
    tag = f"VLAN {packet.vlan & ~TAGGED}, " if packet.vlan else ""
    echo(f"{packet.source} -> {packet.destination}, {tag}IP protocol {packet.protocol}, port {packet.dport}{by_port}")
    echo("".join(f"  {flow}\n" for flow in flows), nl=False)
    before = headers_of(packet)
    sent = (f"{Mac(copy.dl_dst)}{_translated(copy, before)} by {copy.port or 'NORMAL'}" for copy in outcome.copies)
    leaves = ", ".join(sent) or "dropped"
    if backend is not None and is_tunneled(backend.next_hop):
        leaves = " by ".join(written_and_port(backend.next_hop))
    if service is None:
        whose = _answering(balancer, outcome)
        echo(f"matches no service -> {'other traffic' if whose is None else f'answer of {whose.name}'} ({leaves})")
    else:
        what = "backup" if backend is not None and backend.is_backup else "backend"
        chosen = click.style("none" if backend is None else backend.name, bold=True, fg="green")
        echo(f"service {click.style(service.name, bold=True)} -> {what} {chosen} ({leaves})")
    if check is not None:
        colour = {True: "green", False: "red", None: "yellow"}[check.agrees]
        echo(f"switch: {click.style(check.text, fg=colour)}")


def _answering(balancer: Balancer, outcome: Walk) -> Service | None:
    """Return the service of NAT whose flow translates an answer of its backend; None if there is none."""
    ids = service_ids(service.claim for service in every_service(balancer))
    met = {cookie_service(flow.cookie) for flow in outcome.flows}
    return next((service for service in balancer.services if service.nat and ids[service.claim] in met), None)


def _translated(copy: Copy, before: Headers) -> str:
    """Return the tag, source and destination that were written into a copy, as the middle of a sentence."""
    ends = (("from", Field.NW_SRC, Field.TP_SRC), ("to", Field.NW_DST, Field.TP_DST))
    tag = f" in VLAN {copy.vlan & ~TAGGED}" if copy.vlan else " without a tag"
    return ("" if copy.vlan == before.get(Field.VLAN) else tag) + "".join(
        f" {what} {IPv4Address(copy.headers.get(address))}:{copy.headers.get(port)}"
        for what, address, port in ends
        if copy.headers.get(address) != before.get(address)
    )


def _backend(balancer: Balancer, packet: Packet, outcome: Walk) -> Backend | None:
    service = service_of(balancer, packet)
    if service is None or not outcome.copies:
        return None
    left, before = outcome.copies[0], headers_of(packet)
    sent = left.headers.get
    found = (b for b in service.backends if arrives(b.next_hop, port=left.port, sent=sent, original=before.get))
    return next(found, None)
