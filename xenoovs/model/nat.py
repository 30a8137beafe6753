"""Services with destination NAT: what must hold in one of them, and with the switch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from xenoovs.errors import counted
from xenoovs.model.address import IPAddress, IPNetwork
from xenoovs.model.balancer import Nat, ServiceMode, Uplinks
from xenoovs.model.schema import BackendForm, ServiceForm
from xenoovs.model.values import KeyPath, Remark

Numbered = tuple[int, ServiceForm]


def check_nat(service: ServiceForm, path: KeyPath) -> Iterator[Remark]:
    """Check one service."""
    if service.mode is ServiceMode.DSR:
        yield from _check_dsr(service, path)
        return
    yield from _check_vip(service, path)
    first = dict[tuple[IPAddress, int | None, int | None], int]()
    for index, backend in enumerate(service.backends):
        here = (*path, "backends", index)
        yield from _check_backend(service, backend, here)
        if backend.address is None:
            continue
        other = first.setdefault((backend.address, backend.port, backend.vlan), index)
        if other != index:
            yield Remark(
                (*here, "address"),
                f"{_endpoint(backend)} is already backend {service.backends[other].name}; write the address of this "
                "server, or one backend with both weights",
            )


def _check_dsr(service: ServiceForm, path: KeyPath) -> Iterator[Remark]:
    if service.nat not in (None, Nat()):
        yield Remark((*path, "nat"), "the service does no NAT; add `mode: nat`, or leave the key out")
    for index, backend in enumerate(service.backends):
        if backend.port is not None:
            yield Remark(
                (*path, "backends", index, "port"),
                "packets keep their destination port without NAT; add `mode: nat` to the service, or leave the key out",
            )


def _check_vip(service: ServiceForm, path: KeyPath) -> Iterator[Remark]:
    if len(service.vip) != 1:
        listed, here = (counted(len(service.vip), "VIP"), (*path, "vip")) if service.vip else ("none", path)
        yield Remark(
            here,
            f"mode nat writes the VIP into what backends send, so it needs exactly one, not {listed}; write one `vip:` "
            "here, and a service for each other one",
        )
    for index, vip in enumerate(service.vip):
        if vip.version != 4:
            yield Remark((*path, "vip", index), f"{vip} is IPv6, which mode nat cannot write; use `mode: dsr`")
        elif isinstance(vip, IPNetwork):
            yield Remark(
                (*path, "vip", index),
                f"{vip} is {vip.num_addresses} addresses, and nothing in what a backend sends says which of them the "
                "client used; write one address, or use `mode: dsr`",
            )


def _check_backend(service: ServiceForm, backend: BackendForm, here: KeyPath) -> Iterator[Remark]:
    if backend.address is None:
        yield Remark(here, "mode nat sends packets to the server's own address; add `address:`")
    elif backend.address.version != 4:
        yield Remark((*here, "address"), f"{backend.address} is IPv6, and mode nat is for IPv4; write the IPv4 address")
    if backend.mac == "unchanged":
        yield Remark((*here, "mac"), "mode nat needs the MAC of the server or of its router; write it or leave it out")
    if backend.vlan is not None and service.vlan is None:
        yield Remark(
            (*here, "vlan"),
            "what the server sends gets the tag of the clients' frames, which the service does not name; add `vlan:` "
            "or `vlan: untagged` to the service",
        )
    if backend.port is not None and _only_port(service) is None:
        yield Remark(
            (*here, "port"),
            "the way back cannot tell by one port of the server which port of the VIP it is for; write exactly one "
            "port in `ports:` of the service, or leave this key out",
        )


def _only_port(service: ServiceForm) -> int | None:
    """Return the port of a service that has exactly one."""
    ports = service.ports
    return ports[0].first if len(ports) == 1 and ports[0].first == ports[0].last else None


def _endpoint(backend: BackendForm) -> str:
    return f"{backend.address}" if backend.port is None else f"{backend.address}:{backend.port}"


def check_nat_ingress(switch: Uplinks, services: Iterable[Numbered]) -> Iterator[Remark]:
    """Check that it is clear by which port what backends send leaves."""
    if len(switch.ingress) == 1:
        return
    for i, service in services:
        if service.mode is ServiceMode.NAT:
            yield Remark(
                ("services", i, "mode"),
                f"nat with {len(switch.ingress)} ingress ports does not say by which of them an answer leaves; "
                "write one port in `ingress:` of the switch, or `mode: dsr`",
            )
