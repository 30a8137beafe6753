"""`xenoovs tunnels`: prints the commands that both ends of a tunnel need."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from shlex import join

import click

from xenoovs.compile.program import sorted_flows
from xenoovs.compile.tunnel_ports import Receiver, WantedPort, receiver_of, wanted_ports
from xenoovs.evidence.command_target import THIS_HOST, CommandTarget
from xenoovs.model.balancer import Balancer
from xenoovs.model.next_hop import is_tunneled
from xenoovs.openflow.text import render_flow, render_flow_to_send
from xenoovs.terminal.load import load_resolved
from xenoovs.terminal.options import bridge_command, config_value, given_option
from xenoovs.terminal.output import answer, echo
from xenoovs.terminal.reach import endpoint, where_of

_HOST_PORT, _UPLINK = "pf0hpf", "p0"
_DEVICE = config_value("device")
"""Checks the name of a bridge or a port, which becomes part of a script."""


@bridge_command("tunnels")
@click.option(
    "--far-end", "backend", metavar="BACKEND", help="Print the port and the flows for the DPU that BACKEND is behind."
)
@click.option(
    "--on", "target", metavar="BRIDGE", type=_DEVICE, help="Far end: the bridge of that DPU; default: that of FILE."
)
@click.option(
    "--host-port", type=_DEVICE, help=f"Far end: port of that bridge towards the server.  [default: {_HOST_PORT}]"
)
@click.option(
    "--uplink",
    type=_DEVICE,
    help=f"Far end: port of that bridge by which direct answers leave.  [default: {_UPLINK}]",
)
def tunnels_command(
    config: Path,
    *,
    backend: str | None,
    target: str | None,
    host_port: str | None,
    uplink: str | None,
) -> None:
    """Print the commands that make the tunnel ports of the config FILE; run nothing.

    `xenoovs doctor FILE --fix` runs them where a port is missing, and writes keys of IPsec, which no command shows.
    They delete no port. With --lab or --db they are for that Open vSwitch, which need not run.

    With --far-end, print those for the DPU that BACKEND is behind: its tunnel port and its flows, which accept packets
    of the tunnel from the balancer alone. `xenoovs remove` removes the flows there. A server with its own tunnel device
    needs none of this.

    \b
    Examples:
      xenoovs tunnels my.yaml | sh
      xenoovs tunnels my.yaml --far-end b1 | ssh dpu1 sh
    """
    if backend is None and (given := given_option("target", "host_port", "uplink")):
        raise click.UsageError(f"{given} is about the far end of a tunnel: add --far-end BACKEND.")
    balancer = load_resolved(config, of_dpu=True)
    if backend is not None:
        ends = {"host_port": host_port or _HOST_PORT, "uplink": uplink or _UPLINK}
        _far_end(balancer, backend, target=target, **ends)
        return
    ports, bridge = wanted_ports(balancer), balancer.uplinks.bridge
    there = where_of(endpoint(), config)
    key = f"its pre-shared key: `{there.text('xenoovs doctor FILE --fix')}` writes it"
    lines = (line for port in ports for line in _lines(port, bridge, key if port.psk_file else None, there))
    text = "".join(f"{line}\n" for line in lines) or f"# {config} has no tunnels of Open vSwitch\n"
    answer(
        lambda: {"bridge": bridge, "ports": [_document(port, bridge, there) for port in ports]},
        lambda: echo(text, nl=False),
    )


def _lines(port: WantedPort, bridge: str, needs: str | None, target: CommandTarget = THIS_HOST) -> Iterator[str]:
    """Yield lines of a shell script. `needs`: what the port needs to send encrypted packets; None if nothing."""
    yield target.shell(port.command(bridge))
    if needs is not None:
        yield f"# {port.name} sends unencrypted until it has {needs}"


def _document(port: WantedPort, bridge: str, target: CommandTarget = THIS_HOST) -> dict[str, object]:
    return {
        "name": port.name,
        "type": port.type,
        "options": dict(port.options),
        "bfd": dict(port.bfd),
        "psk_file": port.psk_file,
        "mark": port.digest,
        "commands": [target.shell(port.command(bridge))],
    }


def _far_end(balancer: Balancer, backend: str, *, target: str | None, host_port: str, uplink: str) -> None:
    found = receiver_of(balancer, backend, host_port=host_port, uplink=uplink)
    if found is None:
        raise click.UsageError(_no_receiver(balancer, backend))
    for name, use in (*((port.name, "the tunnel port there") for port in found.ports), (uplink, "the uplink too")):
        if name == host_port:
            # A bridge does not send a packet back where it entered (ovs-actions(7), "output").
            raise click.UsageError(f"--host-port {host_port} is {use}; name the port towards the server.")
    bridge = target or balancer.uplinks.bridge
    answer(
        lambda: {
            "bridge": bridge,
            "address": str(found.address),
            "authenticates_by": found.authenticates_by,
            "ports": [_document(port, bridge) for port in found.ports],
            "flows": [render_flow(flow) for flow in sorted_flows(found.flows)],
        },
        lambda: echo(_script(found, backend, bridge), nl=False),
    )


def _no_receiver(balancer: Balancer, backend: str) -> str:
    every = [each for service in balancer.services for each in service.backends]
    behind = sorted({each.name for each in every if is_tunneled(each.next_hop)})
    there = f"Behind tunnels are {', '.join(behind)}." if behind else "The config has no backend behind a tunnel."
    if any(each.name == backend for each in every):
        return f"Backend {backend} is behind no tunnel. {there}"
    return f"The config has no backend {backend!r}. {there}"


def _script(receiver: Receiver, backend: str, bridge: str) -> str:
    lines = [f"# {backend}: the end of the tunnel that has the address {receiver.address}"]
    known_by = receiver.authenticates_by
    needs = None if known_by is None else f"options:{known_by} of table Interface, {_OF_BALANCER[known_by]}"
    lines += [line for port in receiver.ports for line in _lines(port, bridge, needs)]
    lines.append(f"{join(('ovs-ofctl', '-O', 'OpenFlow14', '--bundle', 'add-flows', bridge, '-'))} <<'flows'")
    lines += [render_flow_to_send(flow) for flow in sorted_flows(receiver.flows)]
    return "\n".join((*lines, "flows", ""))


_OF_BALANCER = {
    "psk": "the pre-shared key",
    "remote_cert": "the file with the certificate of the balancer",
    "remote_name": "the common name in the certificate of the balancer",
}
