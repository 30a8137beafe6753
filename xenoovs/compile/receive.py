"""What the bridge at the other end of a tunnel needs, where a backend is behind a DPU: its port and its flows.

The source of the tunnel is always matched: otherwise any host that reaches the UDP port could send packets to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address

from xenoovs.compile.encoding import deliver, destination_is, family_is, source_is
from xenoovs.compile.pipeline import OTHER_PRIORITY, TUNNEL_RETURN_PRIORITY, Stage, below, cookie_of
from xenoovs.compile.tunnel_ports import WantedPort, port_of
from xenoovs.dataclass import dataclass, replace
from xenoovs.errors import CompileError
from xenoovs.model.address import Family, Vip
from xenoovs.model.balancer import Balancer, Returns, Service
from xenoovs.model.next_hop import Tunneled
from xenoovs.model.tunnel import RemoteEnd, TunnelPorts, remote_end_of
from xenoovs.openflow.flow import Action, Field, Flow, FlowKey, Output, SetField, exact, match_of


@dataclass(frozen=True, slots=True)
class Receiver:
    """The receiving end of a tunnel.

    Attributes:
        authenticates_by: The option of the ports by which this end knows the balancer. No config of the balancer says
            its value; None: without IPsec.
    """

    address: IPv4Address
    ports: tuple[WantedPort, ...]
    flows: tuple[Flow, ...]
    authenticates_by: str | None = None


def receiver_of(balancer: Balancer, backend: str, *, host_port: str, uplink: str) -> Receiver | None:
    """Return what the bridge of a backend needs; None: no backend of this name is behind a tunnel.

    Args:
        backend: Its name; services may share it.
        uplink: The port by which direct answers leave.

    Raises:
        CompileError: Services that share the backend and a VIP have different ways back, or the name stands for two
            servers.
    """
    served = [
        (service, end)
        for service in balancer.services
        for one in service.backends
        if one.name == backend and (end := remote_end_of(one.next_hop, balancer.switch_tunnels)) is not None
    ]
    if not served:
        return None
    named, first = served[0]
    tunnel = first.tunnel
    for service, end in served:
        if (end.tunnel, end.remote) != (tunnel, first.remote):
            raise CompileError(
                service=service.name,
                reason=f"its backend {backend} is at {end.remote} of {end.tunnel.name}, but that of {named.name} at "
                f"{first.remote} of {tunnel.name}: these are two servers, so give one of them another name",
            )
    # What it says of the server's certificate does not hold of ours.
    here = replace(tunnel, local=first.remote, ipsec=None)
    ports, flows = dict[str, WantedPort](), dict[FlowKey, Flow]()
    ways = dict[Vip | None, Service]()
    for service, end in served:
        remote = None if here.ports is TunnelPorts.SHARED else tunnel.local
        port = port_of(here, remote)
        ports[port.name] = port
        back = Tunneled(end.mac, port.name, tunnel.local, end.key)
        for family in service.claim.served_families:
            vips: tuple[Vip | None, ...] = service.claim.vips_of(family) or (None,)
            for vip in vips:
                if ways.setdefault(vip, service).returns is not service.returns:
                    raise CompileError(
                        service=service.name,
                        reason=f"answers from {vip} have another `return` than those of {ways[vip].name}, which has "
                        f"{backend} and this VIP too; nothing tells them apart there, so write the same in both",
                    )
                answers = _answers(back) if service.returns is Returns.SWITCH else (Output(uplink),)
                flows |= _by_key(_arriving(end, port.name, family, vip, host_port))
                flows |= _by_key(_leaving(family, vip, host_port, answers))
    for name in ports:
        drop = FlowKey(Stage.CLASSIFY.table, OTHER_PRIORITY, match_of((), in_port=name))
        flows[drop] = Flow(drop, cookie_of(Stage.CLASSIFY), ())
    known_by = None if tunnel.ipsec is None else tunnel.ipsec.option
    return Receiver(first.remote, tuple(ports.values()), tuple(flows.values()), known_by)


def _by_key(flows: Iterator[Flow]) -> dict[FlowKey, Flow]:
    return {flow.key: flow for flow in flows}


def _answers(back: Tunneled) -> tuple[Action, ...]:
    """Return the actions that send a packet back; the server has written the MAC that it shall have there."""
    return tuple(action for action in deliver(back, None) if not _writes_mac(action))


def _writes_mac(action: Action) -> bool:
    return isinstance(action, SetField) and action.field is Field.DL_DST


def _arriving(end: RemoteEnd, port: str, family: Family, vip: Vip | None, host_port: str) -> Iterator[Flow]:
    conditions = (
        exact(Field.TUN_ID, end.key),
        exact(Field.TUN_SRC, int(end.tunnel.local)),
        family_is(family),
        *(() if vip is None else (destination_is(vip),)),
    )
    key = FlowKey(Stage.CLASSIFY.table, TUNNEL_RETURN_PRIORITY, match_of(conditions, in_port=port))
    yield Flow(key, cookie_of(Stage.CLASSIFY), (Output(host_port),))


def _leaving(family: Family, vip: Vip | None, host_port: str, answers: tuple[Action, ...]) -> Iterator[Flow]:
    if vip is None:
        return
    conditions = (family_is(family), source_is(vip))
    key = FlowKey(Stage.CLASSIFY.table, below(TUNNEL_RETURN_PRIORITY, vip), match_of(conditions, in_port=host_port))
    yield Flow(key, cookie_of(Stage.CLASSIFY), answers)
