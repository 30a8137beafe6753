"""The status page and the metrics of a fleet, served beside its controller."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from aiohttp import web

from xenoovs.agent.control.app import bare_app
from xenoovs.agent.control.limits import ConnectionLimit
from xenoovs.agent.control.serve import ApiListener, serve_app
from xenoovs.agent.tasks import kept_running
from xenoovs.agent.telemetry import exposition, mount_metrics
from xenoovs.agent.web.page import mount_page
from xenoovs.errors import XenoovsError
from xenoovs.fleet.controller import no_controller
from xenoovs.fleet.rollout import FleetProgress
from xenoovs.fleet.snapshot import FLEET_TABLES, FleetSnapshot, UnwrittenVotes, fleet_page, fleet_snapshot
from xenoovs.store.client import DpuStatusReader, StoreClient
from xenoovs.store.servers import ServerFacts, host_facts
from xenoovs.store.view import DpuStatus, FleetView

_SERVERS_S = 5.0
"""How old the facts about servers may be: they take four processes."""
_FILES_S = 60.0
"""How old may be what is known of their files: it takes 0.02 s of processor time for each MB."""


class FleetWatch:
    """Makes snapshots of a fleet, from any thread."""

    def __init__(self, store: StoreClient, states: DpuStatusReader, directory: Path | None) -> None:
        self._store, self._states, self._directory = store, states, directory
        self._lock = threading.Lock()
        self._servers = tuple[ServerFacts, ...]()
        self._servers_problem = ""
        self._servers_due_s = self._files_due_s = 0.0
        self._progress = FleetProgress()
        self._unwritten = UnwrittenVotes()

    def snapshot(self) -> FleetSnapshot:
        with self._lock:
            return self._snapshot()

    def _snapshot(self) -> FleetSnapshot:
        connection, problems = self._store.connection, list[str]()
        is_leader = connection.is_connected and connection.is_leader
        view = self._store.view()
        statuses = self._states.statuses()
        self._read_servers()
        if view is None or not connection.is_connected:
            reason = connection.reason or "not connected"
            problems.append(f"the store does not answer: {reason}; what is shown is old")
        elif connection.problem:
            problems.append(f"{connection.problem}; what is shown is old")
        problems += [self._servers_problem] if self._servers_problem else []
        problems += no_controller(self._directory, is_leader=is_leader)
        stall, late = "", frozenset[str]()
        if view is not None:
            late = self._unwritten.late(view, statuses, now_s=time.monotonic())
            try:
                stall = self._stall(view, statuses)
            except XenoovsError as problem:
                problems.append(f"no controller can decide: {problem}")
        return fleet_snapshot(
            view,
            statuses,
            self._servers,
            is_active=is_leader,
            now_s=time.time(),
            change=self._progress.change,
            stall=stall,
            unwritten=late,
            problems=problems,
            memo=self._progress.memo,
        )

    def _stall(self, view: FleetView, statuses: Mapping[str, DpuStatus] | None) -> str:
        if not self._store.connection.is_connected:
            # The controller of a store that is back watches the wave from its beginning.
            self._progress = FleetProgress()
            return ""
        return self._progress.stall(view, statuses, now_s=time.monotonic())

    def _read_servers(self) -> None:
        now_s = time.monotonic()
        if now_s < self._servers_due_s:
            return
        reads_files = now_s >= self._files_due_s
        try:
            found = host_facts(self._directory, reads_files=reads_files)
            if reads_files:
                self._files_due_s = time.monotonic() + _FILES_S
            else:
                before = {each.database: each for each in self._servers}
                found = tuple(
                    replace(each, gap=old.gap, certificate_left_s=old.certificate_left_s)
                    if (old := before.get(each.database))
                    else each
                    for each in found
                )
            self._servers, self._servers_problem = found, ""
        except XenoovsError as problem:
            self._servers_problem = str(problem)
        self._servers_due_s = time.monotonic() + _SERVERS_S


def fleet_app(watch: FleetWatch, listener: ApiListener, limit: ConnectionLimit) -> web.Application:
    """Return the application with `/`, `/now` and `/metrics`."""
    app = bare_app(listener.auth, limit=limit)
    mount_page("fleet.js", lambda: lambda: json.dumps(fleet_page(watch.snapshot())))(app)
    mount_metrics(lambda: lambda: exposition(FLEET_TABLES, watch.snapshot()))(app)
    return app


@contextmanager
def served_beside(watch: FleetWatch, listener: ApiListener) -> Iterator[None]:
    """Serve a fleet's page and metrics in a thread, for the time of a `with`."""
    loop = asyncio.new_event_loop()
    app = lambda limit: fleet_app(watch, listener, limit)  # noqa: E731
    task = loop.create_task(kept_running(lambda: serve_app(app, listener)))

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
