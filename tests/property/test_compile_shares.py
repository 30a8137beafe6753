"""Law 4: shares within tolerance; blocks that are disjoint and cover; as few flows as the shares have 1 bits."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import combinations

from hypothesis import given

from tests.compiled import compiled
from tests.flow_oracle import pieces
from tests.strategies import balancers
from xenoovs.compile.program import ServiceProgram
from xenoovs.model.balancer import Balancer
from xenoovs.model.next_hop import NextHop


@given(balancers())
def test_every_share_is_within_the_tolerance(balancer: Balancer) -> None:
    for program in compiled(balancer).services:
        weights = program.service.weights
        for weight, share in zip(weights, program.shares, strict=True):
            wanted = weight / sum(weights)
            assert abs(share - wanted) <= program.service.tolerance * wanted


@given(balancers())
def test_blocks_are_disjoint_and_cover_the_space(balancer: Balancer) -> None:
    for program in compiled(balancer).services:
        rules = {block.rule for block in program.blocks}
        assert sum(Fraction(1, 1 << rule.mask.bit_count()) for rule in rules) == 1
        assert all((a.value ^ b.value) & a.mask & b.mask for a, b in combinations(rules, 2))


@given(balancers())
def test_the_flows_of_a_service_are_as_many_as_its_shares_have_bits(balancer: Balancer) -> None:
    for program in compiled(balancer).services:
        least = sum(units.bit_count() for units in units_of(program)) * families(program)
        assert len(program.blocks) == least


@given(balancers())
def test_the_flows_give_each_backend_the_units_of_the_assignment(balancer: Balancer) -> None:
    for program in compiled(balancer).services:
        found = Counter[NextHop]()
        for piece in pieces(block.flow for block in program.blocks):
            assert piece.hop is not None
            found[piece.hop] += int(piece.size * (1 << program.decision.active.depth))
        assert found == target_units(program)


def units_of(program: ServiceProgram) -> list[int]:
    """Each backend's share in units of the smallest block."""
    return [int(share * (1 << program.decision.active.depth)) for share in program.shares]


def target_units(program: ServiceProgram) -> Counter[NextHop]:
    pairs = zip(program.service.backends, units_of(program), strict=True)
    return Counter({backend.next_hop: units for backend, units in pairs if units})


def families(program: ServiceProgram) -> int:
    return len(program.service.claim.served_families)
