"""Checked parts of a config to the model."""

from __future__ import annotations

from collections.abc import Iterable

from xenoovs.config.drain import drain_of
from xenoovs.config.drain_schema import DrainConfig
from xenoovs.config.fields import MatchField
from xenoovs.config.health import health_of
from xenoovs.config.health_schema import HealthConfig
from xenoovs.config.schema import BackendConfig, ServiceConfig, SwitchConfig
from xenoovs.model.address import Family, Mac, family_of
from xenoovs.model.backend import Backend
from xenoovs.model.balancer import Balancer, Uplinks
from xenoovs.model.block_key import BlockKey
from xenoovs.model.next_hop import UNKNOWN_MAC, Direct
from xenoovs.model.service import Claim, Service, usual_positions


def families_of(service: ServiceConfig) -> frozenset[Family]:
    """The IP versions whose clients the service splits."""
    match service.match.field:
        case MatchField.IPV4_SOURCE:
            return frozenset({Family.IPV4})
        case MatchField.IPV6_SOURCE:
            return frozenset({Family.IPV6})
        case _:
            return frozenset(map(family_of, service.vip)) or frozenset({Family.IPV4})


def claim_of(service: ServiceConfig) -> Claim:
    return Claim(families_of(service), tuple(service.vip), service.protocol, tuple(service.ports))


def build_balancer(
    switch: SwitchConfig, services: Iterable[tuple[int, ServiceConfig]], *, health: HealthConfig, drain: DrainConfig
) -> Balancer:
    """`services`: with their index in the file, in its order. `health`, `drain`: what the file says for all of them."""
    ports = tuple(switch.ingress), switch.egress
    uplinks = Uplinks(switch.bridge, *ports, switch.other_traffic, switch.datapath_id)
    return Balancer(uplinks, tuple(_service(service, switch.egress, health, drain) for _, service in services))


def _service(service: ServiceConfig, default_egress: str, health: HealthConfig, drain: DrainConfig) -> Service:
    return Service(
        name=service.name,
        claim=claim_of(service),
        backends=tuple(_backend(backend, default_egress) for backend in service.backends),
        key=key_of(service),
        tolerance=service.tolerance,
        max_flows=service.max_flows,
        vip_mac=service.vip_mac,
        source_mac=_source_mac(service),
        churn=service.churn,
        health=health_of(service, health),
        drain=drain_of(service, drain),
    )


def _backend(backend: BackendConfig, default_egress: str) -> Backend:
    return Backend(
        backend.name,
        Direct(backend.mac or UNKNOWN_MAC, backend.egress or default_egress),
        backend.weight,
        backend.address,
        follows=backend.mac is None,
    )


def key_of(service: ServiceConfig) -> BlockKey:
    """The bits that split the clients."""
    field, bits = service.match.field.key, service.match.bits
    if isinstance(bits, tuple):
        return BlockKey(field, bits)
    return BlockKey(field, usual_positions(field, service.protocol), bits if isinstance(bits, int) else None)


def _source_mac(service: ServiceConfig) -> Mac | None:
    if isinstance(service.rewrite_source_mac, bool):
        return service.vip_mac if service.rewrite_source_mac else None
    return service.rewrite_source_mac
