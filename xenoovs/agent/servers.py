"""Finds the backends of a request: by service and name, or one server in all services. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from ipaddress import ip_address
from typing import Protocol, TypeVar

from xenoovs.decision.decision import BackendName
from xenoovs.errors import RequestRefused, first_names
from xenoovs.model.address import parse_mac
from xenoovs.model.balancer import Backend, Balancer, Service
from xenoovs.model.next_hop import mac_of

_MAX_NAMED = 8


class Named(Protocol):
    """What requests name: a service, a backend or a path, of the config or of a snapshot."""

    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=Named)


def find_named(kind: str, items: Sequence[N], name: str, where: str) -> N:
    """Return the item of this name. Raises RequestRefused, which lists the nearest names."""
    found = named(items, name)
    if found is None:
        raise unknown(kind, name, (each.name for each in items), where)
    return found


def find_service(balancer: Balancer, name: str) -> Service:
    """Return a service of the config. Raises RequestRefused."""
    return find_named("service", balancer.services, name, "the config")


def find_backend(balancer: Balancer, name: BackendName) -> Backend:
    """Return a backend of the config. Raises RequestRefused."""
    return find_named("backend", find_service(balancer, name[0]).backends, name[1], f"service {name[0]}")


def backends_of(balancer: Balancer) -> dict[BackendName, Backend]:
    return {(service.name, backend.name): backend for service in balancer.services for backend in service.backends}


def find_server(everything: Mapping[BackendName, Backend], text: str) -> tuple[BackendName, ...]:
    """Return the backends, of all services, that are one server.

    Args:
        everything: All backends, with resolved MACs.
        text: The name of a backend, or the MAC or the address of the server. By a name, the same server is found in
            other services too, where it may have another name.

    Raises:
        RequestRefused: No backend has it, or several servers have this name.
    """
    found = [name for name in everything if name[1] == text]
    if not found:
        found = [name for name, backend in everything.items() if _is_at(backend, text)]
        if not found:
            raise unknown("backend", text, dict.fromkeys(name for _, name in everything), "the config")
        return tuple(found)
    first = everything[found[0]]
    if not all(_is_same(first, everything[name]) for name in found):
        choices = ", ".join(f"{'/'.join(name)} ({_address(everything[name])})" for name in found)
        raise RequestRefused(
            f"{text} is the name of several servers: {choices}; write SERVICE/{text}, or the MAC or address of one",
            status=409,
            code="ambiguous_backend",
        )
    return tuple(name for name, backend in everything.items() if _is_same(first, backend))


def named(items: Iterable[N], name: str) -> N | None:
    return next((item for item in items if item.name == name), None)


def location(backend: Backend) -> tuple[object, str]:
    """Return an identity that does not depend on the backend's name: how packets reach it."""
    hop = backend.next_hop
    return (backend.address, hop.port) if backend.follows else (hop, "")


def _is_same(one: Backend, other: Backend) -> bool:
    """Return whether two backends are one server: they have the same address or next hop."""
    if one.address is not None and one.address == other.address:
        return True
    is_known = one.next_hop.is_known and other.next_hop.is_known
    has_two = None not in (one.address, other.address)
    return is_known and one.next_hop == other.next_hop and not has_two


def _is_at(backend: Backend, text: str) -> bool:
    for parse, value in ((parse_mac, mac_of(backend.next_hop)), (ip_address, backend.address)):
        with suppress(ValueError):
            return value is not None and parse(text) == value
    return False


def _address(backend: Backend) -> str:
    return str(backend.next_hop) if backend.address is None else str(backend.address)


def unknown(kind: str, name: str, known: Iterable[str], where: str) -> RequestRefused:
    """Return the error for a name that `where` does not have. It lists the nearest names, or else the known ones."""
    there = list(known)
    near = get_close_matches(name, there, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"it has {first_names(there, most=_MAX_NAMED)}"
    return RequestRefused(f"{where} has no {kind} {name[:63]}; {hint}", status=404, code=f"unknown_{kind}")
