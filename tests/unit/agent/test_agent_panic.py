"""How many are out at once."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from xenoovs.agent.panic import Fallen, Places, decide, taken_out
from xenoovs.model.health import AllDown, Health, ProbeKind

HEALTH = Health(ProbeKind.ICMP)
parts = st.fractions(0, 1, max_denominator=100)


@given(st.integers(1, 20), st.integers(0, 20), parts, st.sampled_from(AllDown))
def test_bounds(of: int, down: int, part: Fraction, policy: AllDown) -> None:
    fallen = [f"b{i}" for i in range(min(down, of))]
    out = taken_out(fallen, of=of, health=replace(HEALTH, max_down=part, on_all_down=policy))
    if len(fallen) == of and policy is AllDown.DROP:
        assert out == set(fallen)
    else:
        assert len(out) == min(len(fallen), int(part * of), of - 1)
        assert out == set(fallen[: len(out)])


@given(st.integers(2, 20), parts)
def test_one_more_that_falls_brings_nobody_in(of: int, part: Fraction) -> None:
    health = replace(HEALTH, max_down=part)
    names = [f"b{i}" for i in range(of)]
    sets = [taken_out(names[:down], of=of, health=health) for down in range(of + 1)]
    assert all(one <= other for one, other in itertools.pairwise(sets))


def fallen(name: str, *, sent: int, failures: int, on_way: int = 0, since_s: float = 0.0) -> Fallen:
    return Fallen(name, since_s, sent, failures, on_way)


def test_a_kept_backend_goes_only_for_probes_that_were_sent_after_a_place_got_free() -> None:
    first = fallen("b0", sent=9, failures=9)
    full = decide(Places(), [first, fallen("b1", sent=9, failures=9)], of=2, health=HEALTH)
    assert (sorted(full.out), sorted(full.kept)) == (["b0"], ["b1"])
    # b0 is back while a probe of b1 is on its way; that one does not count.
    free = decide(full, [fallen("b1", sent=21, failures=20, on_way=1)], of=2, health=HEALTH)
    steps = [fallen("b1", sent=24, failures=23, on_way=on_way) for on_way in (1, 0)]
    assert [set(decide(free, [step], of=2, health=HEALTH).out) for step in steps] == [set(), {"b1"}]


def test_an_answer_between_makes_a_kept_backend_begin_anew() -> None:
    free = decide(Places(), [fallen("b0", sent=3, failures=3), fallen("b1", sent=3, failures=3)], of=2, health=HEALTH)
    free = decide(free, [fallen("b1", sent=9, failures=9)], of=2, health=HEALTH)
    assert decide(free, [fallen("b1", sent=15, failures=2)], of=2, health=HEALTH).out == set()
    assert decide(free, [fallen("b1", sent=16, failures=3)], of=2, health=HEALTH).out == {"b1"}


def test_a_kept_backend_that_answers_and_falls_again_goes_at_once_where_a_place_is_free() -> None:
    full = decide(Places(), [fallen("b0", sent=3, failures=3), fallen("b1", sent=3, failures=3)], of=2, health=HEALTH)
    assert decide(full, [fallen("b1", sent=20, failures=3, since_s=7.0)], of=2, health=HEALTH).out == {"b1"}


def test_who_falls_later_may_take_the_place_that_a_kept_backend_waits_for() -> None:
    health = replace(HEALTH, max_down=Fraction(1, 3))
    old = fallen("b1", sent=9, failures=9)
    full = decide(Places(), [fallen("b0", sent=9, failures=9), old], of=3, health=health)
    free = decide(full, [old], of=3, health=health)
    taken = decide(free, [old, fallen("b2", sent=9, failures=3, since_s=1.0)], of=3, health=health)
    assert (sorted(free.out), sorted(taken.out)) == ([], ["b2"])
    # The place is taken: b1 begins anew when it gets free.
    assert taken.kept["b1"].sent is None
