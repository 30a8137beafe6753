"""The spread of real clients over blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from tests.unit.balancer import claim, program, service
from xenoovs.compile.spread import Spread, check_spread
from xenoovs.model.address import Family
from xenoovs.model.balancer import BlockKey, Service

THREE = service(claim(), 2, 1, 1)


def spread_of(made: Service, family: Family, load: Mapping[int, int]) -> Spread:
    (only,) = program(made).services
    return check_spread(only, family, load)


def test_clients_that_cover_the_space_get_the_shares_of_the_space() -> None:
    spread = spread_of(THREE, Family.IPV4, dict.fromkeys(range(1 << 16), 3))
    assert [backend.load for backend in spread.backends] == [backend.space for backend in spread.backends]
    assert spread.load == 3 << 16
    assert spread.is_by_chance


def test_one_client_is_on_one_backend() -> None:
    spread = spread_of(THREE, Family.IPV4, {0x0A000001: 7})
    assert sorted(backend.load for backend in spread.backends) == [0, 0, 1]


def test_the_target_share_is_by_weight() -> None:
    spread = spread_of(THREE, Family.IPV4, {1: 1})
    assert [backend.wanted for backend in spread.backends] == [Fraction(1, 2), Fraction(1, 4), Fraction(1, 4)]


def test_the_bits_of_the_config_are_judged() -> None:
    chosen = replace(THREE, key=BlockKey(positions=(8, 9, 10)))
    spread = spread_of(chosen, Family.IPV4, {n << 8: 1 for n in range(8)})
    assert spread.positions == (8, 9)
    assert spread.bits.depths[-1].selected == 0


def test_better_bits_are_suggested_and_never_ones_that_no_flow_can_match() -> None:
    gateways = {n << 112 | 1 << 64 | (n % 64) << 16: 1 for n in range(4096)}
    spread = spread_of(THREE, Family.IPV6, gateways)
    assert spread.suggestion is not None
    assert all(position < 112 for position in spread.suggestion.positions)
