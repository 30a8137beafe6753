"""Small balancers for unit tests: one line shows what matters to the test."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from tests.compiled import compiled
from xenoovs.compile.program import Program
from xenoovs.model.address import Family, Mac, Vip, family_of
from xenoovs.model.balancer import Backend, Balancer, Claim, OtherTraffic, PortRange, Protocol, Service, Uplinks
from xenoovs.model.next_hop import Direct
from xenoovs.openflow.text import render_flow

IPV4 = frozenset({Family.IPV4})


def backends(*weights: int, egress: str = "p1") -> tuple[Backend, ...]:
    """Backends b0, b1, ... with the MACs 0a:00:00:00:00:00, ...:01."""
    return tuple(
        Backend(f"b{i}", Direct(Mac(0x0A0000000000 + i), egress), Fraction(weight)) for i, weight in enumerate(weights)
    )


def claim(*vips: Vip, protocol: Protocol | None = None, ports: Sequence[tuple[int, int]] = ()) -> Claim:
    """A claim of IPv4 where there is no VIP."""
    families = frozenset(map(family_of, vips)) or IPV4
    return Claim(families, vips, protocol, tuple(PortRange(*pair) for pair in ports))


def service(claimed: Claim, *weights: int, name: str = "s") -> Service:
    """Weights 1 and 1 where none are given."""
    return Service(name, claimed, backends(*(weights or (1, 1))))


def balancer(
    *services: Service, other: OtherTraffic = OtherTraffic.LEAVE, ingress: tuple[str, ...] = ("p0",)
) -> Balancer:
    return Balancer(Uplinks("ovsbr1", ingress, "p1", other), services)


def program(*services: Service) -> Program:
    return compiled(balancer(*services))


def lines(compiled: Program, *, table: int) -> list[str]:
    """The flows of a table as text from the priority on, in the order of the program."""
    texts = (render_flow(flow) for flow in compiled.flows if flow.table == table)
    return [text[text.index("priority=") :] for text in texts]
