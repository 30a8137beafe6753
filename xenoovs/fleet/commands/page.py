"""The status page and the metrics of a fleet, served beside its controller."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from aiohttp import web

from xenoovs.agent.control.app import bare_app
from xenoovs.agent.control.limits import ConnectionLimit
from xenoovs.agent.control.serve import ApiListener, serve_app
from xenoovs.agent.tasks import kept_running
from xenoovs.agent.telemetry import exposition, metrics_routes
from xenoovs.agent.web.page import page_routes
from xenoovs.fleet.snapshot import (
    DPUS,
    FLEET_TABLES,
    SERVER_LIST,
    SERVERS,
    WORST_FIRST,
    DpuState,
    FleetSnapshot,
    TargetState,
    notices,
)
from xenoovs.fleet.watch import FleetWatch
from xenoovs.show.column import Row, page_table


def fleet_page(snapshot: FleetSnapshot) -> dict[str, object]:
    """Return the contents of the page as JSON values."""
    view, newest, counts, rows = snapshot.view, snapshot.newest, snapshot.counts(), snapshot.rows
    passive = "controller passive: its server does not lead", "warn"
    refused = []
    if newest is not None and snapshot.is_refused:
        refused = [(f"config {newest.number} was refused: {newest.comment}", "bad")]
    up = sum(row.state is not TargetState.DOWN for row in snapshot.targets)
    served = sum(server.is_connected for server in snapshot.servers)
    return {
        "name": "" if view is None else view.name,
        "badges": [snapshot.headline, ("controller active", "good") if snapshot.is_active else passive],
        "notices": [*refused, *notices(snapshot)],
        "facts": [
            ("generation", "-" if view is None else str(view.generation), "of all blocks"),
            ("config", "-" if view is None else str(view.intent or "-"), "entry of the history"),
            ("services", "-" if view is None else str(len(view.service_names)), "in the store"),
            ("DPUs", f"{counts[DpuState.APPLIED]} of {len(rows)}", "have the newest generation"),
            ("health", f"{up} of {len(snapshot.targets)}", "probed targets are up"),
            ("drift", str(sum(len(row.status.drift) for row in rows)), "services differ on bridges"),
            ("databases", f"{served} of {len(snapshot.servers)}", "served by this host"),
        ],
        "states": [("all", len(rows)), *((state.value, counts[state]) for state in WORST_FIRST)],
        "dpus": page_table(DPUS.columns, (Row(row, None, snapshot.now_s) for row in snapshot.worst_first())),
        "servers": page_table(SERVERS.columns, SERVER_LIST.shown(snapshot)),
    }


def fleet_app(watch: FleetWatch, listener: ApiListener, limit: ConnectionLimit) -> web.Application:
    """Return the application with `/`, `/now` and `/metrics`."""
    app = bare_app(listener.auth, limit=limit)
    app.add_routes(page_routes("fleet.js", lambda: lambda: json.dumps(fleet_page(watch.snapshot()))))
    app.add_routes(metrics_routes(lambda: lambda: exposition(FLEET_TABLES, watch.snapshot())))
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
