"""`xenoovs fleet serve`: the controller of a fleet, and beside it the status page and the metrics."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import click
from aiohttp.web import Application

from xenoovs.agent.control.app import bare_app
from xenoovs.agent.control.limits import ConnectionLimit
from xenoovs.agent.control.serve import ApiListener, open_port, serve_app
from xenoovs.agent.tasks import LoopCall, kept_running, run_loop
from xenoovs.agent.telemetry import exposition, metrics_routes
from xenoovs.agent.web.page import page_routes
from xenoovs.fleet.commands.client import own_directory
from xenoovs.fleet.controller import ActiveSign, FleetController
from xenoovs.fleet.health import TargetState
from xenoovs.fleet.plan import MAX_WAIT_S, SWITCH_AFTER_S
from xenoovs.fleet.snapshot import (
    DPUS,
    FLEET_TABLES,
    SERVER_LIST,
    SERVERS,
    FleetSnapshot,
    notices,
)
from xenoovs.fleet.watch import FleetWatch
from xenoovs.log import info, notify, start_logging
from xenoovs.show.column import Row, page_table
from xenoovs.store.client import DpuStatusReader, StoreClient
from xenoovs.store.rows import StoreDatabase, role_operations
from xenoovs.store.servers import server_of, transact
from xenoovs.store.view import DpuState
from xenoovs.terminal.options import duration_or_zero, listen_address, time_option


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
        "states": [("all", len(rows)), *((state.value, counts[state]) for state in DpuState)],
        "dpus": page_table(DPUS.columns, (Row(row, None, snapshot.now_s) for row in snapshot.worst_first())),
        "servers": page_table(SERVERS.columns, SERVER_LIST.shown(snapshot)),
    }


def fleet_app(watch: FleetWatch, listener: ApiListener, limit: ConnectionLimit) -> Application:
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
            run_loop(loop, task)

    thread = threading.Thread(target=run, name="fleet-web", daemon=True)
    thread.start()
    try:
        yield
    finally:
        LoopCall(loop, task.cancel)()
        thread.join()


_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command("serve")
@click.option(
    "--log", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Format of the log."
)
@time_option(
    "--switch-after",
    f"{SWITCH_AFTER_S:g}s",
    type=duration_or_zero,
    help="Time from a planned change until all DPUs switch to it together; at most 5s. With 0 each switches when it "
    "receives the change.",
)
@click.option(
    "--web",
    metavar="ADDRESS:PORT",
    help="Serve the status page and the metrics, such as 127.0.0.1:8080; beyond loopback it needs a token and TLS.",
)
@click.option("--tls-cert", type=_FILE, metavar="FILE", help="Certificate chain for --web, PEM.")
@click.option("--tls-key", type=_FILE, metavar="FILE", help="Private key for --web, PEM.")
@click.option("--token-file", type=_FILE, metavar="FILE", help="Require the token in this file.")
def serve_command(
    *,
    log: str,
    switch_after_s: float,
    web: str | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    token_file: Path | None,
) -> None:
    """Run as controller: decide which backend has which blocks, and write them to the store.

    One runs beside each server of the store. It is active while its server leads the cluster; a server without a
    cluster always leads. It has no state: it compares config and overrides with the services in the store, and writes
    the difference in one transaction, which fails if another controller was first. SIGTERM ends it.

    DPUs switch to a planned change (an `apply`, a drain, a weight, a wave) at one moment, by their clocks: keep them
    right by NTP or PTP. --switch-after is the time that they have to prepare.

    With --web, `/` shows the fleet and the servers of this host, and `/metrics` is for Prometheus; also while the
    controller is passive.
    """
    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("--tls-cert and --tls-key go together.")
    if switch_after_s > MAX_WAIT_S:
        raise click.UsageError(f"--switch-after {switch_after_s:g}s is more than the {MAX_WAIT_S:g}s that DPUs wait.")
    if web is None and (tls_cert or token_file):
        raise click.UsageError("--tls-cert, --tls-key and --token-file go with --web.")
    start_logging(is_json=log == "json")
    directory = own_directory()
    is_ending = False

    def end(_number: int, _frame: object) -> None:
        nonlocal is_ending
        is_ending = True

    with ExitStack() as stack:
        for number in (signal.SIGTERM, signal.SIGINT):
            stack.callback(signal.signal, number, signal.signal(number, end))
        changed = threading.Event()
        fleet, states = (server_of(directory, each) for each in (StoreDatabase.FLEET, StoreDatabase.STATES))
        store = stack.enter_context(StoreClient(fleet.remote, with_intents=True, on_change=changed.set))
        reader = stack.enter_context(DpuStatusReader(states.remote, on_change=changed.set))
        if web is not None:
            tls = None if tls_cert is None or tls_key is None else (tls_cert, tls_key)
            listener = open_port(*listen_address("--web", web), tls=tls, token_file=token_file, option="--web")
            stack.enter_context(served_beside(FleetWatch(store, reader, directory), listener))
        notify("READY=1")
        controller = FleetController(
            store,
            reader,
            sign=ActiveSign(directory),
            bind_operators=lambda frozen: transact(fleet, *role_operations(StoreDatabase.FLEET, is_frozen=frozen)),
            changed=changed,
            switch_after_s=switch_after_s,
        )
        controller.run(lambda: is_ending)
    info("stopping; the fleet stays as it is")
