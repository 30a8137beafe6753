"""Which backends have gone down since a roll-out began, so that it is reverted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from functools import cache

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from tests.fleet_support import committed, given
from tests.unit.fleet.test_health import DPUS, Controller, config, running
from xenoovs.fleet.plan import next_change
from xenoovs.fleet.rollout import lost_targets, with_baseline
from xenoovs.store.view import DpuStatus, FleetOverride, FleetView, IntentState

SOAK_S = 60
BACKENDS = ("b1", "b2", "b3", "b4")
HEAVIER = config().replace("address: 192.0.2.4, weight: 1", "address: 192.0.2.4, weight: 2")
FIFTH = config() + "      - {name: b5, mac: 02:00:5e:10:00:05, address: 192.0.2.5, weight: 1}\n"


def begin(fleet: Controller, text: str, down: Iterable[str] = ()) -> None:
    """Begin the first wave of a roll-out, as the controller does."""
    fleet.view = given(fleet.view, text, IntentState.ROLLING, soak_s=SOAK_S)
    found = fleet.votes(down, fleet.view.dpus)
    health, available = fleet.health.step(fleet.view, found, now_s=fleet.now_s, now_ms=int(fleet.now_s * 1000))
    changes = replace(next_change(fleet.view, available).changes, watches=health.watches)
    fleet.view = committed(fleet.view, with_baseline(fleet.view, changes, found))
    assert fleet.view.wave == 1


def test_a_backend_whose_death_begins_the_wave_was_down_before() -> None:
    fleet = running()
    begin(fleet, HEAVIER, ["b2"])
    assert fleet.view.watches["192.0.2.2/tcp/80"].is_down
    assert fleet.view.intents[2].down_before == {"192.0.2.2/tcp/80"}


@pytest.mark.parametrize(("drained", "is_needed"), [("", True), ("east", True), ("west", True), ("east,west", False)])
def test_bug_a_backend_that_is_drained_in_each_group_of_its_site_ended_a_roll_out(
    drained: str, *, is_needed: bool
) -> None:
    """By the store before the controller has divided the site."""
    wave = heavier_wave()
    staged = replace(wave.staged["web"], groups=frozenset({"east", "west"}))
    override = FleetOverride("", "b2", Fraction(0), Fraction(1), "", 0)
    target = "192.0.2.2/tcp/80"
    view = replace(
        wave,
        staged={"web": staged},
        watches={**wave.watches, target: replace(wave.watches[target], is_down=True)},
        overrides={(f"web@{group}", "b2"): override for group in drained.split(",")},
    )
    votes = {name: DpuStatus(name, voted=wave.generation, down=frozenset({target})) for name in DPUS}
    assert (target in lost_targets(view, votes)) is is_needed


def test_witnesses_of_a_new_backend_are_dpus_whose_wave_has_begun() -> None:
    """The other DPUs do not probe it yet, so missing votes must not count as up."""
    fleet = running()
    begin(fleet, FIFTH)
    target = "192.0.2.5/tcp/80"
    assert fleet.view.watches[target].witnesses == {"d0"}
    fleet.view = replace(fleet.view, wave=3)
    fleet.now_s += 10
    fleet.decide()
    assert fleet.view.watches[target].witnesses == {"d0", "d1", "d2"}


def test_a_new_backend_that_begins_as_down_is_judged_by_votes() -> None:
    fleet = running()
    begin(fleet, FIFTH.replace("port: 80", "port: 80, initial: down"))
    new = {target for target, watch in fleet.view.watches.items() if target.startswith("192.0.2.5/") and watch.is_down}
    assert len(new) == 1
    assert lost_targets(fleet.view, {}) == {}
    assert lost_targets(fleet.view, None) == {}
    voted = {"d0": DpuStatus("d0", voted=fleet.view.generation, down=frozenset(new))}
    assert lost_targets(fleet.view, voted).keys() == new


@cache
def heavier_wave() -> FleetView:
    fleet = running()
    begin(fleet, HEAVIER)
    return fleet.view


@drawn(*(st.frozensets(st.sampled_from(BACKENDS)) for _ in range(3)))
def test_exactly_the_needed_backends_that_are_down_and_were_not_are_lost(
    before: frozenset[str], now: frozenset[str], drained: frozenset[str]
) -> None:
    wave = heavier_wave()
    votes = {name: DpuStatus(name, voted=wave.generation) for name in DPUS}
    down = {f"192.0.2.{name[1:]}/tcp/80" for name in now}
    intent = replace(wave.intents[2], down_before=frozenset(f"192.0.2.{name[1:]}/tcp/80" for name in before))
    view = replace(
        wave,
        intents={**wave.intents, 2: intent},
        watches={target: replace(each, is_down=target in down) for target, each in wave.watches.items()},
        overrides={("web", name): FleetOverride("web", name, Fraction(0), Fraction(1), "", 0) for name in drained},
    )
    lost = lost_targets(view, {name: replace(each, down=frozenset(down)) for name, each in votes.items()})
    assert {target.split("/")[0][-1] for target in lost} == {name[1:] for name in now - before - drained}
