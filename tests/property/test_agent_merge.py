"""The three-way merge: a change of the file wins for its backend only; all other overrides stay."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from tests.unit import balancer as small
from xenoovs.agent.overrides import merge
from xenoovs.model.balancer import Balancer
from xenoovs.show.agent import Override

BACKENDS = 4
Weights = st.lists(st.integers(0, 3), min_size=BACKENDS, max_size=BACKENDS)
Chosen = st.dictionaries(st.integers(0, BACKENDS - 1), st.integers(0, 9))


def of(weights: list[int]) -> Balancer:
    return small.balancer(small.service(small.claim(), *weights))


def overrides(weights: list[int], chosen: dict[int, int]) -> tuple[Override, ...]:
    return tuple(
        Override("s", f"b{i}", Fraction(weight), 0.0, Fraction(weights[i])) for i, weight in sorted(chosen.items())
    )


@given(Weights, Weights, Chosen)
def test_exactly_the_changed_keys_end(old: list[int], new: list[int], chosen: dict[int, int]) -> None:
    before = overrides(old, chosen)
    merged = merge(before, of(new), old=of(old))
    assert merged.remaining == tuple(o for o in before if old[int(o.backend[1:])] == new[int(o.backend[1:])])
    assert {ended.override for ended in merged.ended} == set(before) - set(merged.remaining)


@given(Weights, Chosen)
def test_without_a_change_all_stay(weights: list[int], chosen: dict[int, int]) -> None:
    before = overrides(weights, chosen)
    assert merge(before, of(weights)).remaining == before


@given(Weights, Weights, Chosen)
def test_twice_is_once(old: list[int], new: list[int], chosen: dict[int, int]) -> None:
    once = merge(overrides(old, chosen), of(new)).remaining
    assert merge(once, of(new)).remaining == once


@given(Weights, Weights, Chosen)
def test_each_key_for_itself(old: list[int], new: list[int], chosen: dict[int, int]) -> None:
    together = merge(overrides(old, chosen), of(new)).remaining
    alone = [merge((one,), of(new)).remaining for one in overrides(old, chosen)]
    assert together == tuple(one for remaining in alone for one in remaining)


@given(Weights, Chosen, st.permutations(range(BACKENDS)))
def test_order_and_names_are_no_change(weights: list[int], chosen: dict[int, int], order: list[int]) -> None:
    old = of(weights)
    (service,) = old.services
    renamed = tuple(replace(service.backends[i], name=f"new{i}") for i in order)
    new = replace(old, services=(replace(service, name="other", backends=renamed),))
    merged = merge(overrides(weights, chosen), new, old=old)
    assert {(o.service, o.backend, o.weight) for o in merged.remaining} == {
        ("other", f"new{i}", Fraction(weight)) for i, weight in chosen.items()
    }


@given(Weights, Chosen, st.integers(0, BACKENDS - 1))
def test_a_removed_backend_takes_its_override_along(weights: list[int], chosen: dict[int, int], gone: int) -> None:
    old = of(weights)
    (service,) = old.services
    left = tuple(backend for backend in service.backends if backend.name != f"b{gone}")
    new = replace(old, services=(replace(service, backends=left),))
    merged = merge(overrides(weights, chosen), new, old=old)
    assert [ended.override.backend for ended in merged.ended] == ([f"b{gone}"] if gone in chosen else [])
