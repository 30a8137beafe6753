"""Whether a backend is up, from the results of its probes. Pure: the time is an argument."""

from __future__ import annotations

from dataclasses import dataclass, replace

from xenoovs.model.health import Health, Initial


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known of one backend.

    is_up:    whether it may have clients.
    is_known: False until the first result, where that decides alone.
    against:  results in a row that contradict `is_up`.
    since_s:  when `is_up` became what it is.
    """

    is_up: bool
    is_known: bool
    against: int
    since_s: float


def begin(health: Health, *, known_up: bool | None, now_s: float) -> Standing:
    """Before any result. `known_up`: what the switch says of an earlier time; None: the backend is new to it.

    A backend that the switch knows keeps its state, so that a restart takes nobody out and brings nobody in.
    """
    if known_up is not None:
        return Standing(known_up, is_known=True, against=0, since_s=now_s)
    if health.initial is Initial.CLOSED:
        return Standing(is_up=False, is_known=True, against=0, since_s=now_s)
    return Standing(is_up=True, is_known=False, against=0, since_s=now_s)


def observe(standing: Standing, health: Health, *, ok: bool, now_s: float) -> Standing:
    """After one more result. Only results in a row count: a success forgets all failures before it."""
    if not standing.is_known:
        return Standing(ok, is_known=True, against=0, since_s=now_s)
    if ok == standing.is_up:
        return replace(standing, against=0)
    against = standing.against + 1
    if against >= (health.rise if ok else health.fall):
        return Standing(ok, is_known=True, against=0, since_s=now_s)
    return replace(standing, against=against)


def pause_s(standing: Standing, health: Health, *, first: bool = False, chance: float = 0.0) -> float:
    """From the start of a probe to the start of the next one: short while results contradict the state.

    chance: 0..1, what part of the jitter shortens it. first: the pause after the first probe, which any part of the
    interval may be, so that backends that came together are asked apart from then on.
    """
    if standing.against > 0 or not standing.is_known:
        return health.fast_interval_ms / 1000
    most = 1.0 if first and health.jitter else float(health.jitter)
    return health.interval_ms / 1000 * (1 - most * chance)
