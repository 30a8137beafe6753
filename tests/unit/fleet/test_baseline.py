"""Why a roll-out is reverted: backends that went down and DPUs that became unfit since it began."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cache

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from tests.fleet_support import EMPTY, committed, given, settled
from tests.unit.fleet.test_health import DPUS, Controller, config, running
from xenoovs.fleet.plan import next_change, with_override
from xenoovs.fleet.rollout import WaveStep, lost_targets, next_step, planned_waves, with_baseline
from xenoovs.store.view import Changes, Dpu, DpuStatus, FleetOverride, FleetView, IntentState

SOAK_S = 60
BACKENDS = ("b1", "b2", "b3", "b4")
HEAVIER = config().replace("address: 192.0.2.4, weight: 1", "address: 192.0.2.4, weight: 2")
FIFTH = config() + "      - {name: b5, mac: 02:00:5e:10:00:05, address: 192.0.2.5, weight: 1}\n"
MAIL = """\
  - name: mail
    vip: 203.0.113.2
    backends:
      - {name: m6, mac: 02:00:5e:10:00:06, address: 192.0.2.6, weight: 1}
      - {name: m7, mac: 02:00:5e:10:00:07, address: 192.0.2.7, weight: 1}
"""


def begin(fleet: Controller, text: str, down: Iterable[str] = ()) -> None:
    """Begin the first wave of a roll-out, as the controller does."""
    fleet.view = given(fleet.view, text, IntentState.ROLLING, soak_s=SOAK_S)
    found = fleet.votes(down, fleet.view.dpus)
    health, available = fleet.health.step(fleet.view, found, now_s=fleet.now_s, now_ms=int(fleet.now_s * 1000))
    changes = replace(next_change(fleet.view, available).changes, watches=health.watches)
    fleet.view = committed(fleet.view, with_baseline(fleet.view, changes, found))
    assert fleet.view.wave == 1


def judged(fleet: Controller, down: Iterable[str] = (), *, watched_s: float = SOAK_S) -> WaveStep:
    """What follows from these votes of all DPUs, once the controller has followed them."""
    down = tuple(down)
    fleet.decide(down)
    found = fleet.votes(down, fleet.view.dpus)
    applied = {name: replace(each, applied=fleet.view.generation) for name, each in found.items()}
    return next_step(fleet.view, applied, watched_s=watched_s)


def is_passed(step: WaveStep) -> bool:
    return step.changes is not None and not step.reason


def test_a_backend_that_goes_down_during_the_roll_out_of_its_service_takes_it_back() -> None:
    fleet = running()
    begin(fleet, HEAVIER)
    assert judged(fleet, ["b2"], watched_s=9) == WaveStep()
    step = judged(fleet, ["b2"], watched_s=10)
    assert step.reason == ("web/b2 (192.0.2.2/tcp/80) is down since the roll-out began: of 3 witnesses 3 say down")
    assert step.changes is not None
    after = committed(fleet.view, step.changes)
    assert (after.wave, after.intents[2].state, after.intents[2].down_before) == (0, IntentState.REFUSED, frozenset())
    assert after.intents[2].comment == f"refused: wave 1: {step.reason}"
    assert "and 1 other problem" in judged(fleet, ["b2", "b3"]).reason


def test_a_backend_that_answers_again_in_time_does_not() -> None:
    fleet = running()
    begin(fleet, HEAVIER)
    assert judged(fleet, ["b2"], watched_s=9) == WaveStep()
    assert is_passed(judged(fleet))


def test_a_backend_that_was_down_before_does_not_and_may_come_and_go() -> None:
    fleet = running()
    fleet.decide(["b2"])
    begin(fleet, HEAVIER, ["b2"])
    assert fleet.view.intents[2].down_before == {"192.0.2.2/tcp/80"}
    assert is_passed(judged(fleet, ["b2"]))
    assert is_passed(judged(fleet))
    assert is_passed(judged(fleet, ["b2"]))
    assert judged(fleet, ["b2", "b3"]).reason.startswith("web/b3 ")


def test_a_backend_whose_death_begins_the_wave_was_down_before() -> None:
    fleet = running()
    begin(fleet, HEAVIER, ["b2"])
    assert fleet.view.watches["192.0.2.2/tcp/80"].is_down
    assert is_passed(judged(fleet, ["b2"]))


def test_backends_of_other_services_may_die_meanwhile() -> None:
    fleet = running()
    begin(fleet, config() + MAIL)
    assert fleet.view.staged.keys() == {"mail"}
    assert is_passed(judged(fleet, ["b2"]))
    assert judged(fleet, ["b2", "m6"]).reason.startswith("mail/m6 ")


def test_a_drained_backend_may_die_meanwhile() -> None:
    fleet = running()
    begin(fleet, HEAVIER)
    override = with_override(fleet.view, ("web", "b2"), Fraction(0), author="", now_ms=0)
    fleet.view = committed(fleet.view, Changes(overrides={("web", "b2"): override}))
    assert is_passed(judged(fleet, ["b2"]))


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


def test_a_new_backend_that_is_down_takes_the_roll_out_back_by_the_votes_of_the_canaries_alone() -> None:
    """The other DPUs do not probe it yet, so missing votes must not count as up."""
    fleet = running()
    begin(fleet, FIFTH)
    target = "192.0.2.5/tcp/80"
    assert fleet.view.watches[target].witnesses == {"d0"}
    fleet.decide(["b5"], by=["d0"])
    found = {n: replace(s, applied=fleet.view.generation) for n, s in fleet.votes(["b5"], ["d0"]).items()}
    step = next_step(fleet.view, found, watched_s=SOAK_S)
    assert step.reason == f"web/b5 ({target}) is down since the roll-out began: of 1 witness 1 say down"
    # Witnesses of the next wave are all that have it.
    fleet.decide()
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


# DPUs.


def fleet_of(*waves: int, unfit: Iterable[str] = ()) -> FleetView:
    """The first wave of a roll-out on DPUs of these waves, of which some are unfit before it."""
    dpus = {
        name: Dpu(name, frozenset(), wave=wave, is_unfit=name in unfit)
        for name, wave in ((f"d{n}", wave) for n, wave in enumerate(waves))
    }
    view = given(settled(given(replace(EMPTY, dpus=dpus), config())), HEAVIER, IntentState.ROLLING, soak_s=SOAK_S)
    view = settled(committed(view, with_baseline(view, next_change(view).changes, reports(view))))
    assert view.wave == min(waves)
    return view


def reports(view: FleetView, *unfit: str) -> Mapping[str, DpuStatus]:
    return {name: DpuStatus(name, applied=view.generation, is_fit=name not in unfit) for name in view.dpus}


def test_a_dpu_that_becomes_unfit_during_its_wave_takes_the_roll_out_back() -> None:
    view = fleet_of(1, 3)
    assert next_step(view, reports(view, "d0"), watched_s=9) == WaveStep()
    reason = "d0: has become unfit: it is cut off from most backends, or its bridge is not right"
    assert next_step(view, reports(view, "d0"), watched_s=10).reason == reason
    # The controller confirms it, and then the DPU stops reporting it.
    agreed = committed(view, Changes(dpus={"d0": replace(view.dpus["d0"], is_unfit=True)}))
    assert next_step(agreed, reports(agreed), watched_s=10).reason == reason
    # Those of later waves do not count yet.
    assert is_passed(next_step(view, reports(view, "d1"), watched_s=SOAK_S))


def test_a_dpu_that_was_unfit_before_its_wave_is_not_waited_for() -> None:
    view = fleet_of(1, 1, 3, unfit=["d1"])
    assert view.intents[2].unfit_before == {"d1"}
    found = {**reports(view, "d1"), "d1": DpuStatus("d1", error="no port p9", is_fit=False)}
    assert is_passed(next_step(view, found, watched_s=SOAK_S))
    assert is_passed(next_step(view, {"d0": found["d0"]}, watched_s=SOAK_S))
    # It is fit again: then it counts, and may not become unfit once more.
    well = committed(view, Changes(dpus={"d1": replace(view.dpus["d1"], is_unfit=False)}))
    assert next_step(well, {**reports(well), "d1": DpuStatus("d1")}, watched_s=SOAK_S) == WaveStep()
    assert is_passed(next_step(well, reports(well), watched_s=SOAK_S))


def test_each_wave_has_its_own_unfit_dpus() -> None:
    view = fleet_of(1, 3)
    found = reports(view, "d1")
    changes = next_step(view, found, watched_s=SOAK_S).changes
    assert changes is not None
    later = settled(committed(view, with_baseline(view, changes, found)))
    assert (later.wave, later.intents[2].unfit_before) == (3, frozenset({"d1"}))
    ended = next_step(later, reports(later, "d1"), watched_s=SOAK_S).changes
    assert ended is not None
    assert committed(later, ended).intents[2].unfit_before == frozenset()


def test_a_wave_of_unfit_dpus_alone_shows_nothing() -> None:
    view = fleet_of(1, 3, unfit=["d0"])
    assert "none of its DPUs is in service" in next_step(view, reports(view, "d0"), watched_s=SOAK_S).reason


@pytest.mark.parametrize("is_unfit", [True, False])
def test_canaries_are_chosen_among_fit_dpus(*, is_unfit: bool) -> None:
    dpus = {name: Dpu(name, frozenset(), is_unfit=is_unfit and name == "d1") for name in ("d1", "d2")}
    assert planned_waves(dpus, at_once=9).keys() == {"d2" if is_unfit else "d1"}
