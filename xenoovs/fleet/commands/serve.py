"""`xenoovs fleet serve`: the controller of a fleet."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from pathlib import Path
from threading import Event

import click

from xenoovs.agent import log as events
from xenoovs.agent.control.serve import Listen, open_port
from xenoovs.agent.fleet_watch import FleetWatch, served_beside
from xenoovs.agent.log import LogForm, start_logging
from xenoovs.agent.systemd import notify
from xenoovs.fleet.active import ActiveSign
from xenoovs.fleet.commands.client import directory_option, fleet_store
from xenoovs.fleet.controller import FleetController
from xenoovs.fleet.switch_time import MAX_WAIT_S, SWITCH_AFTER_S
from xenoovs.store.client import DpuStatusReader, StoreClient
from xenoovs.store.rows import StoreDatabase
from xenoovs.store.servers import files_of
from xenoovs.terminal.options import duration_or_zero, listen_address

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command("serve")
@directory_option()
@click.option(
    "--log", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Format of the log."
)
@click.option(
    "--switch-after",
    "switch_after_s",
    type=duration_or_zero,
    metavar="TIME",
    default=f"{SWITCH_AFTER_S:g}s",
    show_default=True,
    help="From a planned change until the DPUs switch to it, at the same moment; at most 5s. 0: each switches when it "
    "learns of the change.",
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
    switch_after_s: float,
    web: str | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    token_file: Path | None,
) -> None:
    """Run as controller: decide which backend has which blocks, and write them to the store.

    One runs beside each server of the store. It is active while its server leads the cluster; a server without a
    cluster always leads. It has no state: it compares what operators want with what the store has, and writes the
    difference in one transaction, which fails if another controller was first. SIGTERM ends it.

    DPUs switch to a planned change (an `apply`, a drain, a weight, a wave) at one moment, by their clocks: keep them
    right by NTP or PTP. --switch-after is the time that they have to prepare.

    With --web, `/` shows the fleet and the servers of this host, and `/metrics` is for Prometheus; also where the
    controller is passive.
    """
    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("--tls-cert and --tls-key go together.")
    if switch_after_s > MAX_WAIT_S:
        raise click.UsageError(f"--switch-after {switch_after_s:g}s is more than the {MAX_WAIT_S:g}s that DPUs wait.")
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
        changed = Event()
        fleet, states = (files_of(directory, each).remote for each in (StoreDatabase.FLEET, StoreDatabase.STATES))
        store = stack.enter_context(StoreClient(fleet, with_intents=True, on_change=changed.set))
        reader = stack.enter_context(DpuStatusReader(states, on_change=changed.set))
        notify("READY=1")
        controller = FleetController(
            store, reader, sign=ActiveSign(directory), changed=changed, log=events, switch_after_s=switch_after_s
        )
        controller.run(lambda: is_ending)
    events.info("stopping; the fleet stays as it is")
