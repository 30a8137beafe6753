"""The backend machines of a lab: one for each MAC behind a port, whichever services it serves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xenoovs.errors import LabError
from xenoovs.lab.addresses import server_net
from xenoovs.lab.names import backend_namespace
from xenoovs.model.balancer import Balancer
from xenoovs.model.next_hop import mac_and_port
from xenoovs.model.service import Claim, PortRange, Protocol, Service

MAX_MACHINES = 100
"""Each is a namespace with a process of its own, of about 10 MB."""

ANY_PORT = 7
"""Where services without ports are tried: echo (RFC 862)."""

_LISTED_PORTS = 16


@dataclass(frozen=True, slots=True)
class Machine:
    """A backend machine. `label`: what its answers begin with; `names`: how services call it; `egress`: port to it.

    addresses:   VIPs on its loopback. nets: where it takes every address (services without VIP).
    listen:      pairs of protocol (`udp`, `tcp`) and port.
    gateway_mac: where its answers go.
    """

    label: str
    namespace: str
    switch_interface: str
    mac: str
    egress: str
    names: tuple[str, ...]
    addresses: tuple[str, ...]
    nets: tuple[str, ...]
    listen: tuple[tuple[str, int], ...]
    gateway_mac: str


def machines_of(name: str, balancer: Balancer, *, gateway_macs: Mapping[str, str]) -> tuple[Machine, ...]:
    """The machines of lab `name` in the order of the config; `gateway_macs`: port towards them -> their next hop.

    Raises LabError when there are more than MAX_MACHINES.
    """
    served: dict[tuple[str, str], list[tuple[str, Service]]] = {}
    for service in balancer.services:
        for backend in service.backends:
            served.setdefault(mac_and_port(backend.next_hop), []).append((backend.name, service))
    if len(served) > MAX_MACHINES:
        raise LabError(
            f"the config has {len(served)} backends with MACs of their own, the lab has room for {MAX_MACHINES}; "
            "try a config with fewer"
        )
    return tuple(
        _machine(name, number, key=key, roles=roles, gateway_mac=gateway_macs[key[1]])
        for number, (key, roles) in enumerate(served.items(), start=1)
    )


def tried_ports(claim: Claim) -> tuple[int, ...]:
    """Destination ports at which a service is tried: all of short ranges, the first and the last of long ones."""
    return tuple(port for ports in claim.ports for port in _tried(ports)) or (ANY_PORT,)


def tried_protocols(claim: Claim) -> tuple[Protocol, ...]:
    """Protocols by which the lab can try a service; none for SCTP, which many kernels lack."""
    possible = (Protocol.UDP, Protocol.TCP, Protocol.ICMP) if not claim.ports else (Protocol.UDP, Protocol.TCP)
    return tuple(protocol for protocol in possible if claim.protocol in (None, protocol))


def _machine(
    name: str, number: int, *, key: tuple[str, str], roles: list[tuple[str, Service]], gateway_mac: str
) -> Machine:
    claims = [service.claim for _, service in roles]
    families = sorted({family for claim in claims if not claim.vips for family in claim.families}, key=lambda f: f.bits)
    listen = {
        (protocol.value, port)
        for claim in claims
        for protocol in tried_protocols(claim)
        if protocol.has_ports
        for port in tried_ports(claim)
    }
    return Machine(
        label=f"b{number}",
        namespace=backend_namespace(name, number),
        switch_interface=f"xo-b{number}",
        mac=key[0],
        egress=key[1],
        names=tuple(dict.fromkeys(role for role, _ in roles)),
        addresses=tuple(dict.fromkeys(str(vip) for claim in claims for vip in claim.vips)),
        nets=tuple(str(server_net(family)) for family in families),
        listen=tuple(sorted(listen)),
        gateway_mac=gateway_mac,
    )


def _tried(ports: PortRange) -> tuple[int, ...]:
    first = max(ports.first, 1)
    if ports.last - first < _LISTED_PORTS:
        return tuple(range(first, ports.last + 1))
    return (first, ports.last)
