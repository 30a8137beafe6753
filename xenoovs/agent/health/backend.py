"""The health of one backend, from the results of its probes. Pure: the time is an argument."""

from __future__ import annotations

from dataclasses import dataclass, field
from zlib import crc32

from xenoovs.agent.probe.result import ProbeResult
from xenoovs.agent.probe.target import Target
from xenoovs.model.health import Health, Initial

SMOOTHING = 1 / 8
"""How much a new latency counts in the smoothed one, as in the round-trip time of TCP (RFC 6298, alpha)."""


@dataclass(frozen=True, slots=True)
class Check:
    """One backend that is probed.

    Attributes:
        target: What is asked.
        health: How results are judged, without what concerns several backends.
        seed: Differs from target to target, and is the same in every run.
    """

    target: Target
    health: Health
    seed: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", crc32(repr(self.target).encode()))

    def __hash__(self) -> int:
        # Each result looks its check up several times; to hash all that is in it takes longer than the rest.
        return self.seed


@dataclass(frozen=True, slots=True)
class Signal:
    """What probes measure of a backend: the input of a weight policy.

    Attributes:
        latency_s: Latency of the last probe that succeeded.
        smoothed_s: Exponentially weighted moving average of these latencies. A new one counts `SMOOTHING`, the average
            before it the rest; the first one is the average.
    """

    latency_s: float
    smoothed_s: float


@dataclass(frozen=True, slots=True)
class BackendHealth:
    """What the results of one check say.

    Attributes:
        is_up: Whether the backend may have clients.
        is_known: False until the first result, where that decides alone.
        against: Results in a row that contradict `is_up`.
        since_s: When `is_up` became what it is.
        due_s: When the next probe is due.
        results: Number of results so far.
        failed_s: When each of the last failed probes in a row was sent; at most `fall` of them.
        transitions: How often `is_up` has changed.
        last: The last result; None before the first one.
        signal: What the probes measured; None until one succeeded.
    """

    is_up: bool
    is_known: bool
    since_s: float
    due_s: float
    against: int = 0
    results: int = 0
    failed_s: tuple[float, ...] = ()
    transitions: int = 0
    last: ProbeResult | None = None
    signal: Signal | None = None

    def failing_s(self, fall: int) -> float | None:
        """Return when the first of the last `fall` probes was sent, if all of them failed."""
        return self.failed_s[0] if len(self.failed_s) >= fall else None


def begin(health: Health, *, known_up: bool | None, due_s: float, now_s: float) -> BackendHealth:
    """Return the health before any result. `known_up`: as the switch remembers it; None: the backend is new to it.

    A backend that the switch knows keeps its state, so that a restart of the agent ejects nobody and returns nobody.
    """
    is_known = known_up is not None or health.initial is Initial.CLOSED
    is_up = health.initial is not Initial.CLOSED if known_up is None else known_up
    return BackendHealth(is_up, is_known, since_s=now_s, due_s=due_s)


def observe(before: BackendHealth, check: Check, result: ProbeResult, *, asked_s: float, now_s: float) -> BackendHealth:
    """Return the health after one more result. Only results in a row count: a success cancels all failures before."""
    health, is_up, against = check.health, before.is_up, 0
    if not before.is_known:
        is_up = result.ok
    elif result.ok != before.is_up:
        against = before.against + 1
        if against >= (health.rise if result.ok else health.fall):
            is_up, against = result.ok, 0
    is_changed = is_up != before.is_up
    return BackendHealth(
        is_up,
        is_known=True,
        since_s=now_s if is_changed or not before.is_known else before.since_s,
        # A clock that jumps ahead, as after a suspend, must not make up for all probes that were missed.
        due_s=max(asked_s + _pause_s(check, before.results, is_contradicted=against > 0), now_s),
        against=against,
        results=before.results + 1,
        failed_s=() if result.ok else (*before.failed_s, asked_s)[-health.fall :],
        transitions=before.transitions + is_changed,
        last=result,
        signal=_signal(before.signal, result.latency_s) if result.ok else before.signal,
    )


def _pause_s(check: Check, results: int, *, is_contradicted: bool) -> float:
    """Return the seconds from the start of a probe, after so many results, to the start of the next one.

    Jitter shortens either by a part that differs from result to result, and is the same in every run. After the
    first probe it may be any part, so that backends that came together are probed at different times from then on.
    """
    health = check.health
    interval_ms = health.fast_interval_ms if is_contradicted else health.interval_ms
    most = 1.0 if health.jitter and not results and not is_contradicted else float(health.jitter)
    chance = crc32(results.to_bytes(8, "big"), check.seed) / (1 << 32) if most else 0.0
    return interval_ms / 1000 * (1 - most * chance)


def _signal(before: Signal | None, latency_s: float) -> Signal:
    smoothed_s = latency_s if before is None else before.smoothed_s + SMOOTHING * (latency_s - before.smoothed_s)
    return Signal(latency_s, smoothed_s)
