"""The cables of a lab: which veth pair connects what, and which bridge its ends are plugged into. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from xenoovs.lab.machines import Machine
from xenoovs.lab.names import RESERVED_PREFIX


@dataclass(frozen=True, slots=True)
class End:
    """One end of a veth pair (veth(4)). `mac` None: the kernel chooses. `bridge` None: not a port of a bridge."""

    namespace: str
    interface: str
    mac: str | None = None
    bridge: str | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """A veth pair; `near` is in the switch's namespace."""

    near: End
    far: End


@dataclass(frozen=True, slots=True)
class Site:
    """Where the cables run. `fabrics`: port towards backends -> the bridge that stands for the switch behind it."""

    switch: str
    clients: str
    bridge: str
    fabrics: Mapping[str, str]


def port_links(site: Site, ports: Iterable[str], *, ingress_macs: Mapping[str, str]) -> Iterator[Link]:
    """Each port of the bridge leads to a fabric, to the clients, to both, or to a dead end."""
    for i, port in enumerate(ports, start=1):
        inner = End(site.switch, port, bridge=site.bridge)
        fabric = site.fabrics.get(port)
        if fabric is not None:
            yield Link(inner, End(site.switch, f"{RESERVED_PREFIX}up{i}", bridge=fabric))
            inner = End(site.switch, f"{RESERVED_PREFIX}cl{i}", bridge=fabric)
        if port in ingress_macs:
            yield Link(inner, End(site.clients, f"cl{i}", ingress_macs[port]))
        elif fabric is None:
            yield Link(inner, End(site.switch, f"{RESERVED_PREFIX}idle{i}"))


def return_links(site: Site, *, macs: Mapping[str, str]) -> Iterator[Link]:
    """From each fabric straight to the clients: the way of answers where the bridge lets nothing back."""
    for i, (port, fabric) in enumerate(site.fabrics.items(), start=1):
        near = End(site.switch, f"{RESERVED_PREFIX}ret{i}", bridge=fabric)
        yield Link(near, End(site.clients, f"ret{i}", macs[port]))


def machine_links(site: Site, machines: Iterable[Machine]) -> Iterator[Link]:
    """Each machine is plugged into the fabric behind its port."""
    for machine in machines:
        near = End(site.switch, machine.switch_interface, bridge=site.fabrics[machine.egress])
        yield Link(near, End(machine.namespace, "eth0", machine.mac))


def ports_of(bridge: str, links: Iterable[Link]) -> tuple[str, ...]:
    """The devices plugged into `bridge`, in the order of the links."""
    return tuple(end.interface for link in links for end in (link.near, link.far) if end.bridge == bridge)
