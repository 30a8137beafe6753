"""Sends probes when they are due, and no more in parallel than this process has descriptors for."""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from collections.abc import Awaitable
from contextlib import suppress
from heapq import heappop, heappush
from typing import Protocol

from xenoovs.agent.probe.check import Check, ProbeResult, ResourceShortage, quoted
from xenoovs.agent.state import AgentState, Probed
from xenoovs.agent.state_store import StateStore
from xenoovs.agent.tasks import BackgroundTasks
from xenoovs.errors import fault_text
from xenoovs.log import info, warn

_LONGEST_PAUSE_S = 60.0
_RETRY_S = 0.2
"""Pause after a probe without a result, as this host had no resources for it."""
_LATE_S, _SUSTAINED_S = 1.0, 2.0
"""If probes are late by the first time for as long as the second, that is reported, and so is its end."""
_RESERVED_DESCRIPTORS = 256
"""Descriptors reserved for connections to the API, the switch and files."""
_MIN_PROBES = 16


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files of this process to the hard one, and return it (getrlimit(2))."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit


def max_probes(descriptors: int) -> int:
    """Return how many probes an agent may run in parallel with this limit of open descriptors."""
    return max(_MIN_PROBES, descriptors - _RESERVED_DESCRIPTORS)


class Probe(Protocol):
    """Probes a backend once. Faults of the backend or the network raise nothing. Ends soon after `timeout_s`."""

    def __call__(self, check: Check, /, *, timeout_s: float) -> Awaitable[ProbeResult]: ...


async def probed(probe: Probe, check: Check, *, timeout_s: float) -> ProbeResult:
    """Probe once. An unexpected exception becomes a failed result. Raises ResourceShortage."""
    begun_s = time.monotonic()
    try:
        return await probe(check, timeout_s=timeout_s)
    except ResourceShortage:
        raise
    except Exception as error:  # noqa: BLE001 - one backend, or one program, must not end the checks of all others.
        reason = f"internal error in the probe: {type(error).__name__}: {quoted(str(error).encode(), most=100)}"
        return ProbeResult(ok=False, latency_s=time.monotonic() - begun_s, reason=reason)


class ProbeQueue:
    """A queue of checks by the time when their next probe is due."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Check]] = []
        self._count = 0

    def push(self, check: Check, due_s: float) -> None:
        # The number keeps the order of checks that are due at the same time.
        self._count += 1
        heappush(self._heap, (due_s, self._count, check))

    def take_due(self, state: AgentState, now_s: float, *, limit: int = sys.maxsize) -> list[Check]:
        """Remove from the queue and return the checks to be probed now, at most `limit`.

        A check that the config no longer has is dropped. If the config has it again, the time in its new state applies.
        """
        due: list[Check] = []
        while len(due) < limit and self._heap and self._heap[0][0] <= now_s:
            due_s, _, check = heappop(self._heap)
            health = state.tracker.health.get(check)
            if health is not None and health.due_s == due_s:
                due.append(check)
        return due

    @property
    def next_due_s(self) -> float | None:
        """Return when the next probe is due; None if the queue is empty."""
        return self._heap[0][0] if self._heap else None


class ProbeScheduler:
    """Sends the probes that the state requests. `late_s`: how late current probes are; 0 if they are on time."""

    def __init__(self, probe: Probe, store: StateStore, tasks: BackgroundTasks, max_running: int = sys.maxsize) -> None:
        """Bind it to the parts of an agent. `max_running`: how many probes may run in parallel."""
        self._max_running, self.late_s = max_running, 0.0
        self._probe, self._store, self._tasks = probe, store, tasks
        self._queue, self._wake, self._next_s, self._running = ProbeQueue(), asyncio.Event(), 0.0, 0
        self._shortage = ""
        self._differs_since_s: float | None = None
        store.subscribe(Check, self._push)

    async def run(self) -> None:
        """Send probes until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            now_s = self._store.now_s()
            self._observe_lateness(now_s)
            free = self._max_running - self._running
            for check in self._queue.take_due(self._store.state, now_s, limit=free):
                self._running += 1
                self._tasks.start(self._run_probe(check))
            self._next_s = now_s + self._pause_s(now_s)
            timer = loop.call_later(self._next_s - now_s, self._wake.set)
            try:
                await self._wake.wait()
            finally:
                timer.cancel()

    def _pause_s(self, now_s: float) -> float:
        due_s = self._queue.next_due_s
        longest_s = _LATE_S if self.late_s else _LONGEST_PAUSE_S
        if due_s is None:
            return longest_s
        # A probe that is due already waits for another probe to end, which wakes this task.
        return min(longest_s, max(0.001, due_s - now_s)) if due_s > now_s else _LATE_S

    async def _run_probe(self, check: Check) -> None:
        try:
            await self._probe_once(check)
        except Exception as error:  # noqa: BLE001 - a check without a result is probed again, whatever the reason is.
            if isinstance(error, ResourceShortage):
                self._shortage = str(error)
            else:
                warn("internal error in a health check; probing again", reason=fault_text(error))
            await asyncio.sleep(_RETRY_S)
            self._push(check)

    async def _probe_once(self, check: Check) -> None:
        started_s = self._store.now_s()
        try:
            result = await probed(self._probe, check, timeout_s=check.health.timeout_ms / 1000)
        finally:
            if self._running >= self._max_running:
                self._wake.set()
            self._running -= 1
        try:
            self._store.dispatch(Probed(check, result, started_s))
        except Exception as error:  # noqa: BLE001 - one answer must not end the checks of its backend.
            failed = ProbeResult(ok=False, latency_s=result.latency_s, reason=f"internal error: {fault_text(error)}")
            self._store.dispatch(Probed(check, failed, started_s))

    def _observe_lateness(self, now_s: float) -> None:
        due_s = self._queue.next_due_s
        if self._running and (due_s is None or due_s > now_s):
            return
        late_s = 0.0 if due_s is None else max(0.0, now_s - due_s)
        if (late_s > _LATE_S) == bool(self.late_s):
            self._differs_since_s, self.late_s = None, late_s if self.late_s else 0.0
        elif self._differs_since_s is None:
            self._differs_since_s = now_s
        elif now_s - self._differs_since_s >= _SUSTAINED_S:
            if self.late_s:
                info("health checks are on time again")
                self.late_s, self._shortage = 0.0, ""
            else:
                facts = {"reason": self._shortage} if self._shortage else {}
                warn("health checks are late", late_s=round(late_s, 1), running=self._running, **facts)
                self.late_s = late_s

    def _push(self, check: Check) -> None:
        if (health := self._store.state.tracker.health.get(check)) is not None:
            self._queue.push(check, health.due_s)
            if health.due_s < self._next_s:
                self._wake.set()
