"""Runs the command of a service when one of its backends, or the service itself, changes its state.

Commands are level-triggered: a command is run while the state of its backend or service differs from that of the last
run. So the last state of a backend that flaps counts, and no change is lost while too many commands run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from xenoovs.agent.health import HealthChange, in_maintenance
from xenoovs.agent.probe.check import Check, ResourceShortage
from xenoovs.agent.scheduler import Probe, probed
from xenoovs.agent.state import AgentState, Tick
from xenoovs.agent.state_store import StateStore
from xenoovs.agent.tasks import BackgroundTasks
from xenoovs.dataclass import dataclass
from xenoovs.decision.ejection import Ejection
from xenoovs.log import warn
from xenoovs.model.balancer import Backend, Health, Notify, ProbeKind, Service
from xenoovs.model.next_hop import mac_of

MAX_RUNNING = 8
"""Commands that run in parallel. Others wait, also for the end of an earlier command of their backend."""
_COALESCE_S = 0.1
"""How long changes are collected, such as those of the backends of one rack."""

UP, DOWN, BACKUP = "UP", "DOWN", "BACKUP"
"""States. A service is BACKUP while only backups serve, and DOWN while no backend does."""

Subject = tuple[str, str]
"""The names of a service and of one of its backends; the latter is empty for the service itself."""


@dataclass(frozen=True, slots=True)
class Notification:
    """A state of a backend, or of a service (`backend` is None). `reason`: of the last probe, or of a dead port."""

    service: Service
    notify: Notify
    state: str
    reason: str = ""
    backend: Backend | None = None

    @property
    def subject(self) -> Subject:
        return self.service.name, "" if self.backend is None else self.backend.name

    def check(self, bridge: str) -> Check:
        """Return the command with its arguments and its environment."""
        kind, name = ("SERVICE" if self.backend is None else "BACKEND"), "/".join(filter(None, self.subject))
        known: dict[str, object] = {
            "XENOOVS_KIND": kind,
            "XENOOVS_STATE": self.state,
            "XENOOVS_BRIDGE": bridge,
            "XENOOVS_SERVICE": self.service.name,
            "XENOOVS_REASON": self.reason,
        }
        if self.backend is not None:
            mac = mac_of(self.backend.next_hop)
            known |= {"XENOOVS_BACKEND": self.backend.name, "XENOOVS_ADDRESS": self.backend.address or ""}
            known |= {"XENOOVS_MAC": "" if mac is None or self.backend.follows else mac}
        environment = tuple((name, str(value)) for name, value in known.items())
        command = (*self.notify.command, kind, name, self.state)
        return Check(Health(ProbeKind.EXEC, command=command), environment=environment)


def notifications(state: AgentState) -> Iterator[Notification]:
    """Yield the states of each service with a command: first of its backends, then of the service. Backends in
    maintenance are left out, because they are not probed."""
    away, stopped = in_maintenance(state.runtime.overrides), state.tracker.advertised_away
    dead = state.dead_ports
    for service in state.judged:
        if (notify := service.notify) is None:
            continue
        down: set[str] = {*state.tracker.ejections.get(service.name, Ejection()).down}
        # Advertised states are ignored if they would leave no backend.
        by_agent = stopped.get(service.name, frozenset()) & state.ejected.get(service.name, frozenset()) - down
        down |= by_agent
        able = []
        for backend in service.backends:
            if backend.name in away.get(service.name, ()):
                continue
            is_dead = (port := backend.next_hop.port) in dead
            is_down = backend.name in down or is_dead
            by_probes = _reason(state, service, backend, is_stopped=backend.name in by_agent)
            reason = state.why_dead(port) if is_dead else by_probes
            yield Notification(service, notify, DOWN if is_down else UP, reason, backend)
            if backend.weight and not is_down:
                able.append(backend.is_backup)
        yield Notification(service, notify, DOWN if not able else BACKUP if all(able) else UP)


def _reason(state: AgentState, service: Service, backend: Backend, *, is_stopped: bool) -> str:
    """Return why a backend has its state, by its probes, or by the agent of its server (`is_stopped`)."""
    name = service.name, backend.name
    advertised = state.tracker.advertised_by(name)
    if is_stopped and advertised is not None:
        return f"the agent of its server says {advertised.state}"
    check = state.tracker.checks.by_backend.get(name)
    last = None if check is None else state.tracker.health[check].last
    return "" if last is None else last.reason


class Notifier:
    """Runs the commands in the event loop of an agent."""

    def __init__(self, store: StateStore, probe: Probe, tasks: BackgroundTasks, decides: Callable[[], bool]) -> None:
        """Bind it to an agent. `decides`: returns whether this agent decides about the bridge, and so runs commands."""
        self._store, self._probe, self._tasks, self._decides = store, probe, tasks, decides
        self._notified: dict[Subject, str] = {}
        self._running: set[Subject] = set()
        self._changed = asyncio.Event()
        store.subscribe(HealthChange, self.wake)
        store.subscribe(Tick, self.wake)

    def begin(self) -> None:
        """Count the current states, which the bridge stores, as notified: a restart of the agent runs no command."""
        self._notified = {each.subject: each.state for each in notifications(self._store.state)}

    def wake(self, _: object = None) -> None:
        """Compare the states soon, and run commands for changes."""
        self._changed.set()

    async def run(self) -> None:
        """Run commands until it is cancelled."""
        while True:
            await self._changed.wait()
            await asyncio.sleep(_COALESCE_S)
            self._changed.clear()
            self._start()

    async def finish(self) -> None:
        """Run the commands for the current states, and wait for their end."""
        self._start()
        while self._running:
            await asyncio.sleep(_COALESCE_S)
            self._start()

    def _start(self) -> None:
        before, now, decides = self._notified, tuple(notifications(self._store.state)), self._decides()
        away = in_maintenance(self._store.state.runtime.overrides)
        self._notified = {subject: state for subject, state in before.items() if subject[1] in away.get(subject[0], ())}
        for each in now:
            subject = each.subject
            # A new backend that is up runs no command.
            was = before.get(subject, UP)
            is_news = each.state != was and decides
            if is_news and (subject in self._running or len(self._running) >= MAX_RUNNING):
                self._notified[subject] = was
                continue
            self._notified[subject] = each.state
            if is_news:
                self._running.add(subject)
                self._tasks.start(self._run_command(each))

    async def _run_command(self, each: Notification) -> None:
        try:
            check = each.check(self._store.state.balancer.uplinks.bridge)
            result = await probed(self._probe, check, timeout_s=each.notify.timeout_ms / 1000)
            failure = "" if result.ok else result.reason
        except ResourceShortage as shortage:
            failure = str(shortage)
        finally:
            self._running.discard(each.subject)
            self.wake()
        if failure:
            service, backend = each.subject
            warn("notify failed", service=service, backend=backend or "-", state=each.state, reason=failure)
