"""`xenoovs fleet serve`: the controller of a fleet."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import click

from xenoovs.agent.control.serve import Listen, open_port
from xenoovs.agent.fleet_watch import FleetWatch, served_beside
from xenoovs.agent.log import LogForm, info, start_logging, warn
from xenoovs.agent.systemd import notify
from xenoovs.cli.fleet_client import directory_option, fleet_store
from xenoovs.cli.options import listen_address
from xenoovs.errors import StoreRejected, XenoovsError
from xenoovs.fleet.change import next_change, refused
from xenoovs.store.client import CommitOutcome, StoreClient
from xenoovs.store.rows import StoreDatabase
from xenoovs.store.servers import files_of
from xenoovs.store.view import FleetView

_FILE = click.Path(dir_okay=False, path_type=Path)
_COALESCE_S = 0.05
"""Changes that come within this time are one transaction."""
_POLL_S = 0.2
_RETRY_S = 1.0


@click.command("serve")
@directory_option()
@click.option(
    "--log", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Format of the log."
)
@click.option(
    "--web",
    metavar="ADDRESS:PORT",
    help="Serve the status page and the metrics, such as 127.0.0.1:8080; beyond loopback it needs a token and TLS.",
)
@click.option("--tls-cert", type=_FILE, metavar="FILE", help="Certificate chain of what is served, PEM.")
@click.option("--tls-key", type=_FILE, metavar="FILE", help="Private key of what is served, PEM.")
@click.option("--token-file", type=_FILE, metavar="FILE", help="Ask for this token.")
def serve_command(
    *,
    directory: Path,
    log: str,
    web: str | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    token_file: Path | None,
) -> None:
    """Run as controller: decide which backend has which blocks, and write them to the store.

    One runs beside each server of the store. It is active while its server leads the cluster; a server without a
    cluster always leads. It remembers nothing: it compares what operators want with what the store has, and writes the
    difference in one transaction, which fails if another controller was first. SIGTERM ends it.

    With --web, `/` shows the fleet and the servers of this host, and `/metrics` is for Prometheus; also where the
    controller is passive.
    """
    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("--tls-cert and --tls-key go together.")
    if web is None and (tls_cert or token_file):
        raise click.UsageError("--tls-cert, --tls-key and --token-file go with --web.")
    start_logging(LogForm(log))
    is_ending = False

    def end(_number: int, _frame: object) -> None:
        nonlocal is_ending
        is_ending = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    with ExitStack() as stack:
        if web is not None:
            tls = None if tls_cert is None or tls_key is None else (tls_cert, tls_key)
            listener = open_port(Listen(*listen_address("--web", web), tls, token_file, "--web"))
            seen = stack.enter_context(fleet_store(directory))
            stack.enter_context(served_beside(FleetWatch(seen.fleet, seen.states, directory), listener))
        remote = files_of(directory, StoreDatabase.FLEET).remote
        store = stack.enter_context(StoreClient(remote, with_intents=True))
        FleetController(store).run(lambda: is_ending)
    info("stopping; the fleet stays as it is")


class FleetController:
    """Brings the store to what the newest intent and the overrides say."""

    def __init__(self, store: StoreClient) -> None:
        self._store = store
        self._is_active: bool | None = None
        self._settled: FleetView | None = None
        self._shown = ""

    def run(self, is_ending: Callable[[], bool]) -> None:
        """Act on every view until `is_ending`."""
        notify("READY=1")
        while not is_ending():
            self._watch_connection()
            view = self._store.wait_changed(self._settled, timeout_s=_POLL_S)
            if view is None or view is self._settled or not self._is_active:
                time.sleep(0 if self._is_active else _POLL_S)
                continue
            time.sleep(_COALESCE_S)
            try:
                self.step(self._store.view() or view)
            except XenoovsError as problem:
                # Such as a store that is lost, or an intent in use that a newer version cannot decide.
                self._warn_once(problem)
                time.sleep(_RETRY_S)

    def step(self, view: FleetView) -> None:
        """Write what a view lacks. Raises XenoovsError: it cannot be decided, or written."""
        change = next_change(view)
        if change.is_empty:
            self._settled, self._shown = view, ""
            return
        for unusable in change.unusable:
            self._warn_once(unusable)
        try:
            outcome = self._store.commit(view.generation, change.changes)
        except StoreRejected as problem:
            self._warn_once(problem)
            changes = refused(view, problem)
            if changes is None:
                raise
            self._store.commit(view.generation, changes)
            return
        if outcome is not CommitOutcome.COMMITTED:
            # The next view shows what another controller, or this transaction, has left.
            info("not written; reading again", generation=view.generation, outcome=outcome.value)
            return
        moved = [each.name for each in change.steps]
        info(
            "written", generation=view.generation + 1, intent=change.changes.intent or view.intent, services=len(moved)
        )
        for number, intent in change.changes.intents.items():
            if intent is not None and intent.comment.startswith("refused: "):
                warn("config refused", intent=number, reason=intent.comment.removeprefix("refused: "))

    def _watch_connection(self) -> None:
        connection = self._store.connection
        is_active = connection.is_connected and connection.is_leader
        if is_active is not self._is_active:
            self._is_active, self._settled = is_active, None
            if is_active:
                info("active: the server leads", remote=connection.remote)
            else:
                info("passive", reason=connection.reason or "another server leads")

    def _warn_once(self, problem: XenoovsError) -> None:
        if str(problem) != self._shown:
            self._shown = str(problem)
            warn("cannot decide", reason=self._shown)
