"""How many backends are ejected at once."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit import balancer as small
from xenoovs.decision.ejection import Ejection, decide_ejections, select_ejected, with_away, with_dead_ports
from xenoovs.model.address import Mac
from xenoovs.model.balancer import AllDown, Backend, Health, ProbeKind, Service
from xenoovs.model.next_hop import Direct

HEALTH = Health(ProbeKind.ICMP)
parts = st.fractions(0, 1, max_denominator=100)


@given(st.integers(1, 20), st.integers(0, 20), parts, st.sampled_from(AllDown))
def test_bounds(of: int, down: int, part: Fraction, policy: AllDown) -> None:
    fallen = [f"b{i}" for i in range(min(down, of))]
    out = select_ejected(fallen, total=of, health=replace(HEALTH, max_down=part, on_all_down=policy))
    if len(fallen) == of and policy is AllDown.DROP:
        assert out == set(fallen)
    else:
        assert len(out) == min(len(fallen), int(part * of), of - 1)
        assert out == set(fallen[: len(out)])


@given(st.integers(2, 20), parts)
def test_one_more_failure_returns_no_ejected_backend(of: int, part: Fraction) -> None:
    health = replace(HEALTH, max_down=part)
    names = [f"b{i}" for i in range(of)]
    sets = [select_ejected(names[:down], total=of, health=health) for down in range(of + 1)]
    assert all(one <= other for one, other in itertools.pairwise(sets))


def service(backends: int, health: Health = HEALTH) -> Service:
    return replace(small.service(small.claim(), *[1] * backends), health=health)


def step(
    before: Ejection,
    one: Service,
    down: Mapping[str, float],
    *,
    now_s: float,
    failing: Mapping[str, float] | None = None,
) -> Ejection:
    """Decide with these backends down: since when each is down, and since when its probes fail."""
    return decide_ejections(replace(before, down=down), one, failing or {}, now_s=now_s)


def both_down(one: Service) -> Ejection:
    """b0 is ejected, and b1 is held."""
    full = step(Ejection(), one, {"b0": 0.0, "b1": 0.0}, now_s=0.0)
    assert (sorted(full.ejected), sorted(full.held)) == (["b0"], ["b1"])
    return full


def test_a_held_backend_is_ejected_only_for_probes_that_were_sent_after_the_limit_allows_it() -> None:
    two = service(2)
    free = step(both_down(two), two, {"b1": 0.0}, now_s=9.0, failing={"b1": 6.0})
    found = [step(free, two, {"b1": 0.0}, now_s=12.0, failing={"b1": since_s}) for since_s in (8.9, 9.0, 9.1)]
    assert [set(each.ejected) for each in (free, *found)] == [set(), set(), set(), {"b1"}]


def test_an_answer_between_makes_a_held_backend_begin_again() -> None:
    two = service(2)
    free = step(both_down(two), two, {"b1": 0.0}, now_s=9.0)
    assert step(free, two, {"b1": 0.0}, now_s=15.0).ejected == set()
    assert step(free, two, {"b1": 0.0}, now_s=16.0, failing={"b1": 14.0}).ejected == {"b1"}


def test_a_held_backend_that_comes_up_and_goes_down_again_is_ejected_at_once_if_the_limit_allows_it() -> None:
    two = service(2)
    assert step(both_down(two), two, {"b1": 7.0}, now_s=7.0).ejected == {"b1"}


def test_a_backend_that_goes_down_later_may_be_ejected_before_a_held_one() -> None:
    three = service(3, replace(HEALTH, max_down=Fraction(1, 3)))
    free = step(both_down(three), three, {"b1": 0.0}, now_s=1.0)
    taken = step(free, three, {"b1": 0.0, "b2": 1.0}, now_s=2.0)
    assert (sorted(free.ejected), sorted(taken.ejected)) == ([], ["b2"])
    # The limit is reached: b1 begins again when it allows one more.
    assert taken.held["b1"].free_s is None


@pytest.mark.parametrize(
    ("fallen", "down", "ejected"),
    [
        ("", "", ""),
        ("", "p2", "bc"),
        ("", "p1", "a"),
        ("b", "p1", "ab"),
        ("a", "p2", "a"),
        ("", "p1 p2", ""),
        ("abc", "p1", "abc"),
        ("", "p9", ""),
    ],
)
def test_backends_behind_ports_without_link_are_ejected_as_long_as_one_is_left(
    fallen: str, down: str, ejected: str
) -> None:
    named = (("a", 1, "p1"), ("b", 1, "p2"), ("c", 1, "p2"), ("unused", 0, "p1"))
    plain = service(4)
    backends = (
        Backend(name, replace(backend.next_hop, port=egress), Fraction(weight))
        for backend, (name, weight, egress) in zip(plain.backends, named, strict=True)
    )
    one = replace(plain, name="web", backends=tuple[Backend, ...](backends))
    found = with_dead_ports(
        {"web": frozenset(fallen)} if fallen else {}, small.balancer(one).services, frozenset(down.split())
    )
    assert found == ({"web": frozenset(ejected)} if ejected else {})


def with_backups(backends: int, backups: int, health: Health = HEALTH) -> Service:
    """The last ones are backups."""
    made = service(backends + backups, health)
    marked = (replace(b, is_backup=i >= backends) for i, b in enumerate(made.backends))
    return replace(made, backends=tuple(marked))


def ejected(one: Service, *down: str) -> set[str]:
    return set(step(Ejection(), one, dict.fromkeys(down, 0.0), now_s=0.0).ejected)


def test_max_down_holds_no_backend_while_a_backup_is_up() -> None:
    assert ejected(with_backups(2, 1), "b0", "b1") == {"b0", "b1"}
    assert ejected(with_backups(4, 1), "b0", "b1", "b2") == {"b0", "b1", "b2"}


def test_max_down_holds_backends_while_every_backup_is_down() -> None:
    one = with_backups(2, 1)
    assert ejected(one, "b0", "b1", "b2") == {"b0", "b2"}
    drop = with_backups(2, 1, replace(HEALTH, on_all_down=AllDown.DROP))
    assert ejected(drop, "b0", "b1", "b2") == {"b0", "b1", "b2"}


def test_a_backup_that_is_down_gets_no_clients_while_another_is_up() -> None:
    assert ejected(with_backups(1, 2), "b1") == {"b1"}
    assert ejected(with_backups(1, 2), "b0", "b1") == {"b0", "b1"}


def test_what_leaves_a_service_without_any_backend_that_is_up_changes_nothing() -> None:
    """A backup that is down gets no clients."""
    one = with_backups(2, 1)
    down = {"s": frozenset(ejected(one, "b2"))}
    assert with_dead_ports(down, [one], {"p1"}) == down
    assert with_away(down, [one], {"s": frozenset({"b0", "b1"})}) == down


def test_a_held_backend_is_ejected_at_once_when_the_last_other_one_goes_down_and_a_backup_is_up() -> None:
    held = step(Ejection(), with_backups(2, 1), {"b0": 0.0, "b1": 0.0, "b2": 0.0}, now_s=0.0)
    assert set(held.held) == {"b1"}
    assert step(held, with_backups(2, 1), {"b0": 0.0, "b1": 0.0}, now_s=1.0).ejected == {"b0", "b1"}


def test_dead_ports_leave_the_clients_to_a_backup_behind_another_port() -> None:
    made = with_backups(2, 1)
    backends = tuple(
        replace(b, next_hop=Direct(Mac(i), "p2" if b.is_backup else "p1")) for i, b in enumerate(made.backends, 1)
    )
    one = small.balancer(replace(made, backends=backends))
    assert with_dead_ports({}, one.services, {"p1"}) == {"s": {"b0", "b1"}}
    assert with_dead_ports({}, one.services, {"p1", "p2"}) == {}
