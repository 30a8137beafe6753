"""Law 4: shares within tolerance; blocks that are disjoint and cover; as few flows as the shares have 1 bits."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import combinations

from hypothesis import given

from tests.strategies import balancers
from xenoovs.compile.assign import ServiceAssignment
from xenoovs.compile.movement import pieces
from xenoovs.compile.program import ServiceProgram, compile_program
from xenoovs.model.balancer import Balancer
from xenoovs.model.next_hop import NextHop


@given(balancers())
def test_every_share_is_within_the_tolerance(balancer: Balancer) -> None:
    for program in compile_program(balancer).services:
        weights = program.service.weights
        for weight, share in zip(weights, program.assignment.shares, strict=True):
            wanted = weight / sum(weights)
            assert abs(share - wanted) <= program.service.tolerance * wanted


@given(balancers())
def test_blocks_are_disjoint_and_cover_the_space(balancer: Balancer) -> None:
    for program in compile_program(balancer).services:
        rules = program.assignment.rules
        assert sum(Fraction(1, 1 << rule.mask.bit_count()) for rule in rules) == 1
        assert all((a.value ^ b.value) & a.mask & b.mask for a, b in combinations(rules, 2))


@given(balancers())
def test_the_flows_of_a_service_are_as_many_as_its_shares_have_bits(balancer: Balancer) -> None:
    for program in compile_program(balancer).services:
        least = sum(units.bit_count() for units in program.assignment.units) * families(program)
        assert len(program.blocks) == least


@given(balancers())
def test_the_flows_give_each_backend_the_units_of_the_assignment(balancer: Balancer) -> None:
    for program in compile_program(balancer).services:
        found = Counter[NextHop]()
        for piece in pieces(block.flow for block in program.blocks):
            assert piece.hop is not None
            found[piece.hop] += int(piece.size * (1 << program.assignment.width))
        assert found == wanted_units(program, program.assignment)


def wanted_units(program: ServiceProgram, assignment: ServiceAssignment) -> Counter[NextHop]:
    pairs = zip(program.service.backends, assignment.units, strict=True)
    return Counter({backend.next_hop: units for backend, units in pairs if units})


def families(program: ServiceProgram) -> int:
    return len(program.service.claim.served_families)
