"""The access of commands to the store of a fleet: connections, the newest view, and changes."""

from __future__ import annotations

import functools
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import click

from xenoovs.dataclass import dataclass, field, replace
from xenoovs.errors import FleetRefused, FleetUndecided, StoreError, StoreRejected, StoreUnreachable, did_you_mean
from xenoovs.fleet.history import freeze_text, with_entry
from xenoovs.fleet.plan import Memo
from xenoovs.fleet.rollout import SETTLE_S, FleetProgress
from xenoovs.fleet.snapshot import clocks_ms
from xenoovs.store.client import CommitOutcome, DpuStatusReader, StoreClient
from xenoovs.store.replica import NO_ANSWER
from xenoovs.store.rows import StoreDatabase
from xenoovs.store.servers import server_of
from xenoovs.store.view import Action, Changes, DpuStatus, FleetView, Freeze, lacks
from xenoovs.switch.certificates import Certificates, common_name
from xenoovs.terminal.command import EXIT_DIFFERS, user_name
from xenoovs.terminal.options import time_option
from xenoovs.terminal.output import echo

DIRECTORY = Path("/var/lib/xenoovs/fleet")
CONNECT_S = 5.0
END_FREEZE = "freeze --end"
"""The action in the history."""
_POLL_S, _LOOK_S = 0.05, 0.005
_ATTEMPTS = 10

Command = TypeVar("Command", bound=Callable[..., object])
T = TypeVar("T")


yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Show what changes, and change nothing.")
timeout_option = time_option("--timeout", "30s", help="How long to wait for the DPUs.")


def _answer(
    client: StoreClient | DpuStatusReader, read: Callable[[], T | None], patience_s: float = CONNECT_S
) -> T | None:
    """Return what a client reads, once it is connected; None if it does not answer within `patience_s`. Until a
    connection has failed, the host may be busy, so the limit is three times as long."""
    begun_s = time.monotonic()
    while (found := read() if client.connection.is_connected else None) is None:
        most_s = 3 * patience_s if client.connection.reason == NO_ANSWER else patience_s
        if client.connection.problem or time.monotonic() > begun_s + most_s:
            break
        time.sleep(_LOOK_S)
    return found


def known_dpu(dpus: Mapping[str, T], name: str) -> T:
    """Return what is known of a DPU by its name. Raises FleetRefused, which names the nearest one."""
    if name not in dpus:
        guess = did_you_mean(name, dpus, " (did you mean {}?)")
        raise FleetRefused(f"the fleet has no DPU {name}{guess}; `xenoovs fleet status` shows them all")
    return dpus[name]


@dataclass(frozen=True, slots=True)
class FleetStore:
    """Connections to both databases of a fleet. `states`: reads the reports of DPUs. `directory`: that of this host's
    servers; None if they are on other hosts. `comment`: the operator's, for the history. `certificate`: the CN in the
    certificate of the connection; empty if it has none."""

    fleet: StoreClient
    states: DpuStatusReader
    directory: Path | None
    memo: Memo = field(default_factory=Memo)
    comment: str = ""
    certificate: str = ""

    def view(self, patience_s: float = CONNECT_S) -> FleetView:
        """Return the newest view. Raises StoreUnreachable, and StoreError for rows that cannot be read."""
        view, connection = _answer(self.fleet, self.fleet.view, patience_s), self.fleet.connection
        if connection.is_connected and connection.problem:
            raise StoreError(connection.problem)
        if view is None or not connection.is_connected:
            raise StoreUnreachable(remotes=self.remote, reason=connection.reason or "no answer")
        return view

    @property
    def remote(self) -> str:
        return self.fleet.connection.remote or "the host's socket (--directory names another one)"

    def statuses(self) -> Mapping[str, DpuStatus] | None:
        """Return the reports of DPUs; None if the database of states does not answer."""
        return _answer(self.states, self.states.statuses)

    def clocks_ms(self, view: FleetView) -> tuple[int, ...]:
        """Return the time by the clock of this host, and that of most DPUs if they differ by minutes."""
        return clocks_ms(view, self.statuses(), now_ms=int(time.time() * 1000))

    def require_clock(self, view: FleetView, for_s: float | None) -> None:
        """Raise FleetRefused if a duration from now would end at a wrong time, because clocks differ."""
        if for_s is not None and len(self.clocks_ms(view)) > 1:
            raise FleetRefused(
                "the clocks of this host and of most DPUs differ by minutes, so --for would end too early or too late: "
                "set the clock (NTP)"
            )

    def changeable(self) -> FleetView:
        """Return the newest view. Raises FleetRefused while the fleet is frozen."""
        view = self.view()
        if view.freezes and (frozen := freeze_text(view, now_ms=self.clocks_ms(view)[-1])):
            raise FleetRefused(f"{frozen}; `xenoovs fleet freeze --end` ends it")
        return view

    def change(
        self, action: str, compute: Callable[[FleetView], Changes], *, changed: str = "", in_freeze: bool = False
    ) -> FleetView:
        """Write what a function computes from the newest view. Retry if others write first. Return the view after it.
        `action`: for the history. `changed`: that of `with_entry`. `in_freeze`: whether to write also in a freeze.
        Raises StoreUnreachable, StoreRejected, FleetRefused, and what the function raises."""
        for _ in range(_ATTEMPTS):
            view = self.view() if in_freeze else self.changeable()
            changes, now_ms = compute(view), int(time.time() * 1000)
            entry = Action(0, now_ms, user_name(), action, socket.gethostname(), self.certificate, self.comment)
            written, freezes = with_entry(view, changes, entry, changed=changed), None if in_freeze else view.freezes
            match self._commit(view, written, freezes):
                case CommitOutcome.COMMITTED:
                    return self.written()
                case CommitOutcome.UNKNOWN:
                    raise StoreUnreachable(
                        remotes=self.remote,
                        reason="the connection was lost before the answer, so the change may be written or not; look "
                        "with `xenoovs fleet status`",
                    )
                case CommitOutcome.REFUSED:
                    time.sleep(_POLL_S)
        raise FleetRefused("others change the fleet all the time; nothing was written: try again")

    def _commit(self, view: FleetView, changes: Changes, freezes: Mapping[str, Freeze] | None) -> CommitOutcome:
        """Write changes. After a freeze, retry until a controller has restored the permissions of operators."""
        end_s, newest = time.monotonic() + CONNECT_S, view.actions[max(view.actions)].text if view.actions else ""
        while True:
            try:
                return self.fleet.commit(view.generation, changes, freezes=freezes)
            except StoreRejected as problem:
                is_over = time.monotonic() > end_s or not (view.freezes or newest == END_FREEZE)
                if is_over or not _is_forbidden(problem):
                    raise
                time.sleep(_POLL_S)

    def written(self) -> FleetView:
        """Return the newest view after a change. Raises FleetUndecided if the store does not answer for long."""
        try:
            return self.view(SETTLE_S)
        except StoreUnreachable as problem:
            raise FleetUndecided(
                f"the change is written, but what a controller has decided about it is not known: {problem}; then look "
                "with `xenoovs fleet status`"
            ) from None

    def settled(self) -> FleetView:
        """Wait until a controller has decided about the view. Raises FleetUndecided if none has, or it is not known."""
        progress = FleetProgress(self.memo)
        while True:
            view = self.written()
            stall = progress.stall(view, None, now_s=time.monotonic())
            if not progress.is_due:
                return view
            if stall:
                hint = "start one with `xenoovs fleet serve`; DPUs keep what they have until then"
                raise FleetUndecided(f"the change is in the store, but {stall}: {hint}")
            self.fleet.wait_changed(view, timeout_s=1)

    def lacking(self, view: FleetView, *, timeout_s: float) -> dict[str, str]:
        """Wait until all DPUs have applied a generation. Return those that lack it, each with a reason."""
        end_s = time.monotonic() + timeout_s
        while True:
            statuses, newest = self.statuses(), self.fleet.view() or view
            lacking = dict[str, str]()
            for name in sorted(view.dpus):
                status = (statuses or {}).get(name)
                if statuses is None:
                    lacking[name] = "what it has is not known, as the database of states does not answer"
                elif status is None:
                    lacking[name] = "has not reported yet"
                elif lack := lacks(newest, status, least=view.generation):
                    lacking[name] = status.error or lack
            if not lacking or time.monotonic() > end_s:
                return lacking
            time.sleep(_POLL_S)


class FleetPlace(NamedTuple):
    """Where the store is, by the options of `xenoovs fleet`: its remotes on other hosts, or the servers of this host,
    with their files in `directory`; None if it was not given."""

    directory: Path | None = None
    fleet: str = ""
    states: str = ""
    tls: Certificates | None = None


def _place() -> FleetPlace:
    return click.get_current_context().find_object(FleetPlace) or FleetPlace()


def own_directory(default: Path = DIRECTORY) -> Path:
    """Return the directory of the files on this host."""
    return _place().directory or default


@contextmanager
def fleet_store(place: FleetPlace) -> Iterator[FleetStore]:
    """Connect to both databases, for the time of a `with`."""
    directory = place.directory or DIRECTORY
    own, own_states = (server_of(directory, each).remote for each in StoreDatabase)
    tls, name = place.tls, "" if place.tls is None else common_name(place.tls.certificate)
    with (
        StoreClient(place.fleet or own, with_intents=True, tls=tls) as fleet,
        DpuStatusReader(place.states or own_states, tls=tls) as states,
    ):
        yield FleetStore(fleet, states, None if place.fleet else directory, certificate=name)


def changes_fleet(command: Command) -> Command:
    """Do what `on_fleet` does, and add --comment, for the entry of the history."""

    @functools.wraps(command)
    def run(*arguments: Any, store: FleetStore, comment: str, **options: Any) -> object:
        return command(*arguments, store=replace(store, comment=comment), **options)

    made = on_fleet(cast(Command, run))
    return click.option("--comment", default="", metavar="TEXT", help="Why; `xenoovs fleet history` shows it.")(made)


def _is_forbidden(problem: StoreRejected) -> bool:
    """Return whether the role of this connection (ovsdb(7), "RBAC") refuses a change, not a constraint on rows."""
    return "RBAC" in problem.reason


def on_fleet(command: Command) -> Command:
    """Call a command with the `store` of the fleet. If no controller decides, it exits with 2."""

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> object:
        with fleet_store(_place()) as store:
            try:
                return command(*arguments, store=store, **options)
            except FleetUndecided as problem:
                echo(str(problem), err=True)
                return EXIT_DIFFERS
            except StoreRejected as problem:
                if not _is_forbidden(problem):
                    raise
                raise FleetRefused(
                    f"{problem}; readers change nothing, and operators no DPUs and no store: run it on a host of the "
                    "store (the table in SECURITY.md)"
                ) from None

    return cast(Command, run)
