"""Configs that were given for later: which one waits, when it begins, and at what time DPUs switch."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from tests.command_line import SMALL_CONFIG
from tests.fleet_support import EMPTY, committed, given, settled
from xenoovs.fleet.change import next_change, refusal, with_override
from xenoovs.fleet.restore import restoring
from xenoovs.fleet.schedule import LEAD_S, begun, overdue_config, waiting_intent, waiting_lines
from xenoovs.fleet.switch_time import MAX_WAIT_S, seconds_to_wait, switch_time_ms
from xenoovs.store.view import Changes, Dpu, FleetView, IntentState

AT_MS = 1_800_000_000_000
DUE_MS = AT_MS - int(LEAD_S * 1000)
MORE = SMALL_CONFIG + "      - {name: fips4, mac: 02:00:5e:10:00:04, weight: 30}\n"


@pytest.fixture
def view() -> FleetView:
    dpus = {name: Dpu(name, frozenset(), wave=wave) for name, wave in (("dpu1", 1), ("dpu2", 3))}
    return settled(given(replace(EMPTY, dpus=dpus), SMALL_CONFIG))


def waiting(view: FleetView, text: str = MORE, *, in_waves: bool = False) -> FleetView:
    """The view after `fleet apply --at`."""
    later = given(view, text, IntentState.WAITING)
    number = max(later.intents)
    intents = {**later.intents, number: replace(later.intents[number], at_ms=AT_MS, in_waves=in_waves)}
    return replace(later, intents=intents)


def after_begin(view: FleetView, now_ms: int = DUE_MS) -> FleetView:
    changes = begun(view, now_ms=now_ms, after_s=0.0)
    assert changes is not None
    return committed(view, changes)


def time_of(view: FleetView, now_ms: int, after_s: float = 2.0) -> int | None:
    return switch_time_ms(view, next_change(view).changes, now_ms=now_ms, after_s=after_s)


def test_a_config_that_waits_changes_nothing_before_its_time(view: FleetView) -> None:
    later = waiting(view)
    assert next_change(later).is_empty
    assert begun(later, now_ms=DUE_MS - 1, after_s=0.0) is None
    assert waiting_intent(view) is None
    assert (waiting_lines(view), overdue_config(view, now_ms=AT_MS)) == ([], "")
    assert waiting_lines(later)[0].startswith("config 2 waits until 20")


@pytest.mark.parametrize("after_s", [0.0, 2.0])
def test_all_dpus_switch_to_it_at_its_time(view: FleetView, after_s: float) -> None:
    begins = after_begin(waiting(view))
    assert time_of(begins, DUE_MS, after_s) == AT_MS
    assert settled(begins).intent == 2


def test_a_config_that_only_adds_services_has_its_time_too(view: FleetView) -> None:
    more = SMALL_CONFIG + SMALL_CONFIG[SMALL_CONFIG.index("  - name") :].replace("dns", "web").replace(".45", ".46")
    begins = after_begin(waiting(view, more))
    assert next_change(begins).changes.services.keys() == {"web"}
    assert time_of(begins, DUE_MS) == AT_MS


def test_its_first_wave_switches_at_its_time_and_the_next_ones_as_usual(view: FleetView) -> None:
    begins = after_begin(waiting(view, in_waves=True))
    assert time_of(begins, DUE_MS) == AT_MS
    wave = settled(begins)
    assert (wave.wave, wave.intents[2].state) == (1, IntentState.ROLLING)
    assert switch_time_ms(wave, Changes(wave=3), now_ms=AT_MS + 60_000, after_s=2.0) == AT_MS + 62_000
    assert switch_time_ms(wave, refusal(wave, wave.intents[2], ""), now_ms=DUE_MS + 1, after_s=2.0) == 0


def test_no_dpu_waits_longer_than_its_bound_for_a_time_that_was_given(view: FleetView) -> None:
    """A controller whose operator lets DPUs prepare for longer decides earlier, and within the bound of agents."""
    later = waiting(view)
    first_ms = AT_MS - int(MAX_WAIT_S * 1000)
    assert begun(later, now_ms=first_ms - 1, after_s=60.0) is None
    begins = after_begin(later, now_ms=DUE_MS)
    assert begun(later, now_ms=first_ms, after_s=5.0) is not None
    switch_at_ms = time_of(begins, first_ms)
    assert switch_at_ms == AT_MS
    assert seconds_to_wait(switch_at_ms, now_ms=first_ms) == MAX_WAIT_S


def test_a_controller_that_comes_after_the_time_begins_it_at_once(view: FleetView) -> None:
    later = waiting(view)
    late_ms = AT_MS + 3_600_000
    assert time_of(after_begin(later, now_ms=late_ms), late_ms) == late_ms + 2000
    assert overdue_config(later, now_ms=late_ms).startswith("no controller has begun config 2, which waited until 20")
    assert overdue_config(later, now_ms=AT_MS) == ""


def test_overrides_stay_valid_while_it_waits_and_after_it(view: FleetView) -> None:
    later = waiting(view)
    name = ("dns", "fips2")
    override = with_override(later, name, Fraction(0), author="", now_ms=0)
    drained = settled(committed(later, Changes(overrides={name: override})))
    assert waiting_intent(drained) is not None
    after = settled(after_begin(drained))
    assert (after.intent, after.services["dns"].active.owners) == (2, frozenset({"fips3", "fips4"}))


def test_one_that_cannot_be_decided_at_its_time_is_refused_with_the_reason(view: FleetView) -> None:
    only_one = SMALL_CONFIG[: SMALL_CONFIG.index("      - {name: fips3")]
    later = waiting(view, only_one)
    name = ("dns", "fips2")
    override = with_override(later, name, Fraction(0), author="", now_ms=0)
    drained = settled(committed(later, Changes(overrides={name: override})))
    after = settled(after_begin(drained))
    assert (after.intent, after.intents[2].state) == (1, IntentState.REFUSED)
    assert "every backend with a weight would be drained" in after.intents[2].comment


def test_one_that_is_older_than_the_config_in_use_is_refused(view: FleetView) -> None:
    """No command leaves one; another program may."""
    after = after_begin(settled(given(waiting(view), MORE)))
    assert (after.intents[2].state, after.intents[2].comment) == (IntentState.REFUSED, "refused: config 3 is newer")
    assert begun(after, now_ms=AT_MS, after_s=0.0) is None


def test_one_that_is_due_waits_for_the_end_of_a_roll_out(view: FleetView) -> None:
    rolling = waiting(settled(given(view, MORE, IntentState.ROLLING)), SMALL_CONFIG)
    assert begun(rolling, now_ms=AT_MS, after_s=0.0) is None
    stopped = committed(rolling, refusal(rolling, rolling.intents[3], "stopped"))
    assert (stopped.wave, stopped.staged) == (rolling.wave, rolling.staged)


def test_a_restore_does_not_bring_back_what_waited(view: FleetView) -> None:
    restored = committed(EMPTY, restoring(EMPTY, waiting(view), {}, now_ms=0))
    assert (restored.intents[2].state, waiting_intent(restored)) == (IntentState.REFUSED, None)
