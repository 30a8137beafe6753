"""How many are out at once."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from xenoovs.agent.panic import taken_out
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
