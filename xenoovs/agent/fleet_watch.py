"""The status page and the metrics of a fleet, served beside its controller."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from aiohttp import web

from xenoovs.agent.control.app import bare_app
from xenoovs.agent.control.limits import ConnectionLimit
from xenoovs.agent.control.serve import ApiListener, serve_app
from xenoovs.agent.metrics.fleet import mount_fleet_metrics
from xenoovs.agent.web.fleet import mount_fleet_page
from xenoovs.errors import XenoovsError
from xenoovs.fleet.dpus import dpu_rows, fleet_problems, roll_out_lines
from xenoovs.fleet.snapshot import FleetSnapshot
from xenoovs.fleet.targets import target_problems, target_rows
from xenoovs.store.client import DpuStatusReader, StoreClient
from xenoovs.store.cluster import ServerFacts, all_problems, host_facts
from xenoovs.store.view import FleetView

_SERVERS_S = 5.0
"""How old the facts about servers may be: they take four processes."""


class FleetWatch:
    """Makes snapshots of a fleet, from any thread."""

    def __init__(self, store: StoreClient, states: DpuStatusReader, directory: Path) -> None:
        self._store, self._states, self._directory = store, states, directory
        self._lock = threading.Lock()
        self._servers = tuple[ServerFacts, ...]()
        self._servers_problem = ""
        self._servers_due_s = 0.0
        self._decided: tuple[FleetView, bool] | None = None
        self._problems = list[str]()

    def snapshot(self) -> FleetSnapshot:
        """Return the newest one."""
        with self._lock:
            return self._snapshot()

    def _snapshot(self) -> FleetSnapshot:
        now_s, connection = time.time(), self._store.connection
        view = self._store.view()
        statuses = self._states.statuses() if self._states.connection.is_connected else None
        self._read_servers()
        problems = all_problems(self._servers) + ([self._servers_problem] if self._servers_problem else [])
        if view is None or not connection.is_connected:
            problems.insert(
                0, f"the store does not answer: {connection.reason or 'not connected'}; what is shown is old"
            )
        if view is not None:
            if self._decided is None or self._decided[0] is not view or self._decided[1] is not (statuses is None):
                # What a controller would write takes long to compute, and changes with the view alone.
                self._decided, self._problems = (view, statuses is None), fleet_problems(view, statuses)
            problems += self._problems
        targets = [] if view is None else target_rows(view, statuses, now_s=now_s)
        problems += target_problems(targets)
        return FleetSnapshot(
            view=view,
            rows=() if view is None or statuses is None else tuple(dpu_rows(view, statuses, now_s=now_s)),
            servers=self._servers,
            is_active=connection.is_connected and connection.is_leader,
            problems=tuple(problems),
            now_s=now_s,
            targets=tuple(targets),
            roll_out=() if view is None else tuple(roll_out_lines(view, statuses)),
        )

    def _read_servers(self) -> None:
        if time.monotonic() < self._servers_due_s:
            return
        try:
            self._servers, self._servers_problem = host_facts(self._directory), ""
        except XenoovsError as problem:
            self._servers_problem = str(problem)
        self._servers_due_s = time.monotonic() + _SERVERS_S


def fleet_app(watch: FleetWatch, listener: ApiListener, limit: ConnectionLimit) -> web.Application:
    """Return the application with `/`, `/now` and `/metrics`."""
    app = bare_app(listener.auth, limit=limit)
    for mount in (mount_fleet_page(watch.snapshot), mount_fleet_metrics(watch.snapshot)):
        mount(app)
    return app


@contextmanager
def served_beside(watch: FleetWatch, listener: ApiListener) -> Iterator[None]:
    """Serve a fleet's page and metrics in a thread, for the time of a `with`."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(serve_app(lambda limit: fleet_app(watch, listener, limit), listener))

    def run() -> None:
        with suppress(asyncio.CancelledError):
            loop.run_until_complete(task)
        loop.close()

    thread = threading.Thread(target=run, name="fleet-web", daemon=True)
    thread.start()
    try:
        yield
    finally:
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(task.cancel)
        thread.join()
