"""What must hold between the values of one service."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise

from xenoovs.config.build import families_of
from xenoovs.config.claims import family_label
from xenoovs.config.fields import HIGHEST_BIT, MatchField
from xenoovs.config.remark import Remark
from xenoovs.config.salvage import NOTHING_LOST, Lost
from xenoovs.config.schema import ServiceConfig
from xenoovs.config.tree import Path
from xenoovs.model.address import IPAddress, Mac, family_of
from xenoovs.model.block_key import KeyField
from xenoovs.model.service import Protocol

_Check = Callable[[ServiceConfig, Path], Iterator[Remark]]


def check_service(
    service: ServiceConfig, path: Path, *, default_egress: str | None, lost: Lost = NOTHING_LOST
) -> Iterator[Remark]:
    """`default_egress`: the port of backends that name none; None: not known, because `switch` is wrong itself.

    lost: what is not to be judged, nor what stands and falls with it.
    """
    checks: tuple[tuple[_Check, tuple[str, ...]], ...] = (
        (_check_vips, ("vip", "match")),
        (_check_ports, ("ports", "protocol")),
        (_check_key, ("match", "protocol")),
        (_check_bits, ("match", "vip")),
        (_check_vip_mac, ("vip_mac", "vip", "rewrite_source_mac")),
        (_check_backend_names, ()),
        (partial(_check_backend_macs, default_egress=default_egress), ()),
    )
    for check, names in checks:
        if not lost.has(*((name,) for name in names)):
            yield from check(service, path)
    if not lost.has(("backends", None, "weight")):
        yield from _check_weights(service, path)


def _check_vips(service: ServiceConfig, path: Path) -> Iterator[Remark]:
    families, seen = families_of(service), set()
    for index, vip in enumerate(service.vip):
        if family_of(vip) not in families:
            yield Remark(
                (*path, "vip", index),
                f"{vip} is IPv{vip.version}, but match.field is {service.match.field.value}; "
                f"write `field: {MatchField.SOURCE_ADDRESS.value}`",
            )
        if vip in seen:
            yield Remark((*path, "vip", index), f"{vip} is listed twice; list each address once")
        seen.add(vip)


def _check_ports(service: ServiceConfig, path: Path) -> Iterator[Remark]:
    if service.ports and service.protocol is None:
        yield Remark((*path, "ports"), "ports need a protocol; add `protocol: tcp`, udp or sctp")
    if service.ports and service.protocol is Protocol.ICMP:
        yield Remark((*path, "ports"), "icmp has no ports; leave the key out")
    ordered = sorted((ports, index) for index, ports in enumerate(service.ports))
    for (one, _), (other, index) in pairwise(ordered):
        if one.overlaps(other):
            yield Remark((*path, "ports", index), f"{other} overlaps {one}; list each port once")


def _check_key(service: ServiceConfig, path: Path) -> Iterator[Remark]:
    key, protocol = service.match.field.key, service.protocol
    if key.needs_ports and (protocol is None or not protocol.has_ports):
        yield Remark(
            (*path, "match", "field"),
            f"{key.value} needs a protocol with ports{'' if protocol is None else f', and {protocol.value} has none'}; "
            f"write `protocol: udp`, tcp or sctp in the service, or `field: {MatchField.SOURCE_ADDRESS.value}` here",
        )


def _check_bits(service: ServiceConfig, path: Path) -> Iterator[Remark]:
    if not isinstance(service.match.bits, tuple):
        return
    key = service.match.field.key
    family = min(families_of(service), key=key.width)
    highest = min(key.width(family) - 1, HIGHEST_BIT)
    what = f"an {family_label(family)} address" if key is KeyField.SOURCE_ADDRESS else f"the {key.label}"
    for index, position in enumerate(service.match.bits):
        if position >= key.width(family):
            yield Remark((*path, "match", "bits", index), f"bit {position} is outside {what}; write 0 to {highest}")
        elif position > highest:
            yield Remark(
                (*path, "match", "bits", index),
                f"bit {position} is one of the first 16 of an IPv6 address, which ovs-ofctl cannot match under a mask; "
                f"write 0 to {highest}",
            )


def _check_vip_mac(service: ServiceConfig, path: Path) -> Iterator[Remark]:
    if service.vip_mac is not None and not service.vip:
        yield Remark((*path, "vip_mac"), f"{service.vip_mac} has no address to answer for; add `vip:` or leave it out")
    if service.rewrite_source_mac is True and service.vip_mac is None:
        yield Remark((*path, "rewrite_source_mac"), "true means vip_mac, which is missing; add it or write a MAC here")


def _check_backend_names(service: ServiceConfig, path: Path) -> Iterator[Remark]:
    first: dict[str, int] = {}
    for index, backend in enumerate(service.backends):
        other = first.setdefault(backend.name, index)
        if other != index:
            yield Remark(
                (*path, "backends", index, "name"), f"'{backend.name}' is already backends[{other}]; name each once"
            )


def _check_backend_macs(service: ServiceConfig, path: Path, *, default_egress: str | None) -> Iterator[Remark]:
    """On one port a MAC is one server; two backends with it would be one server with two weights."""
    first: dict[tuple[Mac | IPAddress, str | None], int] = {}
    for index, backend in enumerate(service.backends):
        port = backend.egress or default_egress
        key = backend.mac or backend.address
        if key is None:
            yield Remark(
                (*path, "backends", index), "a backend needs `mac:`, or `address:` by which its MAC can be found"
            )
            continue
        other = first.setdefault((key, port), index)
        if other != index:
            name, what = service.backends[other].name, "address" if backend.mac is None else "mac"
            yield Remark(
                (*path, "backends", index, what),
                f"{key} is already backend {name}{f' on port {port}' if port else ''}; "
                f"write the {what if backend.mac is None else 'MAC'} of this server, or one backend with both weights",
            )


def _check_weights(service: ServiceConfig, path: Path) -> Iterator[Remark]:
    active = sum(backend.weight > 0 for backend in service.backends)
    if active == 0:
        yield Remark((*path, "backends"), "every weight is 0; give at least one backend a weight above 0")
    if service.max_flows is not None and service.max_flows < active:
        yield Remark(
            (*path, "max_flows"),
            f"{service.max_flows} cannot serve {active} backends with a weight, of which each needs a flow; "
            f"write at least {active}",
        )
