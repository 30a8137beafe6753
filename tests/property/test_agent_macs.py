"""A backend found by its address that answers with another MAC keeps every client, whatever else changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from ipaddress import IPv4Address

from hypothesis import given
from hypothesis import strategies as st

from tests.fake_switch import FakeSwitch, fake_bridge
from tests.strategies import balancers, with_backends
from tests.unit import balancer as small
from xenoovs.decision.decision import DesiredState
from xenoovs.decision.ejection import Ejected
from xenoovs.engine.engine import Engine
from xenoovs.model.address import Mac
from xenoovs.model.balancer import Backend, Balancer, Service
from xenoovs.model.next_hop import with_mac
from xenoovs.openflow.flow import Flow

NAMES, POOL = [f"b{i}" for i in range(5)], [Mac(0x0A0000000000 + i) for i in range(9)]
PORTS = ["p0", "p1", "p2", "p3", "pf0hpf", "en3f0pf0sf0"]

Macs = Mapping[str, Mac]
Step = tuple[Macs | None, frozenset[str], int]
"""Other MACs of the backends; the ejected ones; which one gets a weight of 7 instead of its own (5: none)."""


def by_address(balancer: Balancer) -> Balancer:
    """The same with backends that are given by their address alone."""
    return with_backends(balancer, lambda _, b: replace(b, address=IPv4Address("192.0.2.1"), follows=True))


def with_weight(balancer: Balancer, number: int) -> Balancer:
    return with_backends(balancer, lambda _, b: replace(b, weight=Fraction(7)) if b.name == f"b{number}" else b)


class World:
    """An agent's rounds on a switch in memory."""

    def __init__(self) -> None:
        self.macs: Macs = dict(zip(NAMES, POOL, strict=False))
        self.switch = FakeSwitch(fake_bridge("ovsbr1", PORTS))
        self.engine = Engine(self.switch, resolve=lambda balancer: with_backends(balancer, self._with_mac))
        self.now_s = 0.0

    def _with_mac(self, _: Service, backend: Backend) -> Backend:
        return replace(backend, next_hop=with_mac(backend.next_hop, self.macs[backend.name]))

    def round(self, balancer: Balancer, out: Ejected) -> None:
        self.now_s += 1
        self.engine.round(DesiredState(balancer, out), now_s=self.now_s)

    def flows(self) -> set[Flow]:
        return {seen.flow for seen in self.switch.dump_flows("ovsbr1")}

    def clients(self) -> list[object]:
        """Who has which clients, by the numbers of the backends, and which blocks are in a drain."""
        program = self.engine.program
        assert program is not None
        assert set(program.flows) == self.flows()
        return [(s.decision, tuple(move.block for move in s.moves)) for s in program.services]


ORDERS = st.lists(st.sampled_from(POOL), min_size=5, max_size=5, unique=True)
MACS = ORDERS.map(lambda order: dict(zip(NAMES, order, strict=True)))
OUT = st.frozensets(st.sampled_from(NAMES), max_size=3)


@given(balancers(most=2), st.lists(st.tuples(st.none() | MACS, OUT, st.integers(0, 5)), min_size=1, max_size=4))
def test_clients_are_where_they_would_be_if_no_mac_had_changed(balancer: Balancer, history: list[Step]) -> None:
    asked = by_address(balancer)
    one, twin = World(), World()
    for other, out, heavy in [(None, frozenset[str](), 5), *history]:
        one.macs = other or one.macs
        for world in (one, twin):
            world.round(with_weight(asked, heavy), {service.name: out for service in asked.services})
        assert one.clients() == twin.clients()


def test_two_addresses_on_one_machine_for_a_while() -> None:
    """As when one of two machines that stand in for each other is away."""
    asked = by_address(small.balancer(small.service(small.claim(), 1, 1)))
    world = World()
    world.round(asked, {})
    before, macs = world.flows(), world.macs
    world.macs = {**macs, "b0": macs["b1"]}
    world.round(asked, {})
    assert world.flows() != before
    world.macs = macs
    world.round(asked, {})
    assert world.flows() == before
