"""The flows that make packets of a service's VIP out of what its backends send: the way back of NAT.

They keep no state: whatever a backend sends from the address and port to which the service sends is its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network
from itertools import product

from xenoovs.compile.encoding import PortMask, family_is, port_masks
from xenoovs.compile.pipeline import Stage, cookie_of, return_priority
from xenoovs.errors import CompileError
from xenoovs.model.address import Family
from xenoovs.model.balancer import Nat, Service
from xenoovs.model.next_hop import NextHop, Translated
from xenoovs.openflow.flow import Action, Field, Flow, FlowKey, Masked, Output, SetField, exact, match_of


@dataclass(frozen=True, slots=True)
class ReturnFlow:
    """A flow for packets from one next hop."""

    flow: Flow
    hop: NextHop


def return_flows(service: Service, hops: Iterable[NextHop], *, service_id: int, port: str) -> Iterator[ReturnFlow]:
    """Yield the flows for packets from these next hops to clients, for each of them that NAT was done for.

    Args:
        port: The port by which the packets leave.

    Raises:
        CompileError: The service does not say which address, or port, clients sent to.
    """
    nat = service.nat or Nat()
    clients: tuple[IPv4Network | None, ...] = nat.clients or (None,)
    for hop in hops:
        if isinstance(hop, Translated):
            actions: tuple[Action, ...] = (*_rewrites(service, nat, hop), Output(port))
            for net, ports in product(clients, _ports(service, hop)):
                yield ReturnFlow(_flow(service, hop, net, ports, actions, service_id), hop)


def _flow(
    service: Service,
    hop: Translated,
    net: IPv4Network | None,
    ports: PortMask | None,
    actions: tuple[Action, ...],
    service_id: int,
) -> Flow:
    protocol = service.claim.protocol
    conditions = [family_is(Family.IPV4), exact(Field.NW_SRC, int(hop.address))]
    if protocol is not None:
        conditions.append(exact(Field.NW_PROTO, protocol.number(Family.IPV4)))
    if ports is not None:
        conditions.append(Masked(Field.TP_SRC, ports.value, ports.mask))
    if net is not None:
        conditions.append(Masked(Field.NW_DST, int(net.network_address), int(net.netmask)))
    priority = return_priority(
        has_protocol=protocol is not None,
        port_bits=0 if ports is None else ports.bits,
        client_bits=0 if net is None else net.prefixlen,
    )
    key = FlowKey(Stage.CLASSIFY.table, priority, match_of(conditions, in_port=hop.port))
    return Flow(key, cookie_of(Stage.CLASSIFY, service_id), actions)


def _ports(service: Service, hop: Translated) -> tuple[PortMask | None, ...]:
    """Return the ports from which a server answers; None: from any."""
    own = hop.l4_port
    return (PortMask(own, 16),) if own is not None else port_masks(service.claim.ports) or (None,)


def _rewrites(service: Service, nat: Nat, hop: Translated) -> Iterator[SetField]:
    """Yield what is written into packets: what clients expect as their source."""
    vips, ports = service.claim.vips, service.claim.ports
    if nat.return_mac is not None:
        yield SetField(Field.DL_DST, nat.return_mac.value)
    if len(vips) != 1:
        raise CompileError(service=service.name, reason="NAT needs exactly one VIP, which backends answer as")
    yield SetField(Field.NW_SRC, int(vips[0]))
    if hop.l4_port is None:
        return
    if len(ports) != 1 or len(ports[0]) != 1:
        raise CompileError(service=service.name, reason="a port of a backend needs exactly one port of the service")
    yield SetField(Field.TP_SRC, ports[0].first)
