"""The rules of a store of a fleet as functions of views, without a server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TypeVar

from tests.command_line import SMALL_CONFIG
from xenoovs.decision.decision import BackendName
from xenoovs.fleet.plan import next_change, with_override
from xenoovs.store.view import Changes, FleetView, Intent, IntentState

K = TypeVar("K")
V = TypeVar("V")

EMPTY = FleetView("test", 1, 0, 0, 0)
MORE = SMALL_CONFIG + "      - {name: fips4, mac: 02:00:5e:10:00:04, weight: 30}\n"


def committed(view: FleetView, changes: Changes) -> FleetView:
    """The view after a transaction."""
    services = {
        name: None if each is None else replace(each, generation=view.generation + 1)
        for name, each in changes.services.items()
    }
    staged = {
        name: None if each is None else replace(each, generation=view.generation + 1)
        for name, each in changes.staged.items()
    }
    return replace(
        view,
        generation=changes.generation or view.generation + 1,
        ack=view.generation + 1 if changes.ack else view.ack,
        wave=view.wave if changes.wave is None else changes.wave,
        switch_at_ms=view.switch_at_ms if changes.switch_at_ms is None else changes.switch_at_ms,
        removed=view.removed if changes.removed is None else changes.removed,
        silent=view.silent if changes.silent is None else changes.silent,
        staged=_merged(view.staged, staged),
        intent=view.intent if changes.intent is None else changes.intent,
        services=_merged(view.services, services),
        dpus=_merged(view.dpus, changes.dpus),
        overrides=_merged(view.overrides, changes.overrides),
        watches=_merged(view.watches, changes.watches),
        intents=_merged(view.intents, changes.intents),
        actions=_merged(view.actions, changes.actions),
        freezes=_merged(view.freezes, changes.freezes),
    )


def given(view: FleetView, text: str, state: IntentState = IntentState.STAGED, *, soak_s: int = 0) -> FleetView:
    """The view after `fleet apply`, before the controller has read it."""
    number = max(view.intents, default=0) + 1
    intent = Intent(number, text, "", "operator", "", 0, state, soak_s)
    return committed(view, Changes(intents={number: intent}))


def overridden(view: FleetView, name: BackendName, weight: Fraction = Fraction(0)) -> FleetView:
    """The view after `fleet drain`, or `fleet weight`, before the controller has read it. Raises FleetRefused."""
    override = with_override(view, name, weight, author="", now_ms=0)
    return committed(view, Changes(overrides={name: override}))


def settled(view: FleetView) -> FleetView:
    """The view after the controller; it writes once."""
    change = next_change(view)
    after = view if change.is_empty else committed(view, change.changes)
    assert next_change(after).is_empty
    return after


def _merged(old: Mapping[K, V], new: Mapping[K, V | None]) -> dict[K, V]:
    return {key: value for key, value in {**old, **new}.items() if value is not None}
