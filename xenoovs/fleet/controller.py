"""The controller of a fleet: reconciles its store with intents and reports of DPUs while its server leads."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Event

from xenoovs.errors import StoreRejected, StoreUnreachable, XenoovsError, first_names, problem_of
from xenoovs.fleet.health import FleetHealth, changed_health
from xenoovs.fleet.history import freeze_text, oldest_entries, with_entry
from xenoovs.fleet.plan import (
    SWITCH_AFTER_S,
    Availability,
    FleetChange,
    Memo,
    is_awaited,
    newest_intent,
    next_change,
    refusal,
    rolling_intent,
    switch_time_ms,
)
from xenoovs.fleet.rollout import WaveWatch, with_baseline
from xenoovs.fleet.snapshot import clocks_ms
from xenoovs.log import info, warn
from xenoovs.store.client import CommitOutcome, DpuStatusReader, StoreClient
from xenoovs.store.view import Action, Changes, DpuStatus, FleetView, IntentState

# The sign of an active controller on this host: a lock on the directory of its store.
#
# The kernel releases the lock when the process exits, and no file is left. It is a read lock, because a second
# controller on a host does no harm. It belongs to the open file (fcntl(2), "Open file description locks"): the status
# page tests it in the controller's process, and a lock of the process would end when the page closes the directory.


_FLOCK = "hhqqi0q"
"""`struct flock` of fcntl(2), in the native layout: type, whence, start, length, process."""


class ActiveSign:
    """The lock by which one controller shows that it is active."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptor: int | None = None

    def show(self, *, is_active: bool) -> None:
        """Take or release the lock. The directory is opened each time, as a restored store has another one."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        if is_active:
            with suppress(OSError):
                self._descriptor = _opened(self._directory)
                fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLK, _whole_file(fcntl.F_RDLCK))


def is_shown(directory: Path) -> bool:
    """Return whether a controller with this directory is active. It tests the lock without taking one."""
    with suppress(OSError):
        descriptor = _opened(directory)
        try:
            # The kernel answers with the lock that prevents a write lock, or F_UNLCK.
            answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _whole_file(fcntl.F_WRLCK))
        finally:
            os.close(descriptor)
        return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)
    return False


def _opened(directory: Path) -> int:
    return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _whole_file(kind: int) -> bytes:
    return struct.pack(_FLOCK, kind, os.SEEK_SET, 0, 0, 0)


# The controller.


_COALESCE_S = 0.05
"""Changes within this time become one transaction."""
_POLL_S = 0.2
_RETRY_S = 1.0


class FleetController:
    """Reconciles the store with the newest intent, the overrides and the reports of DPUs."""

    def __init__(
        self,
        store: StoreClient,
        states: DpuStatusReader,
        *,
        sign: ActiveSign,
        bind_operators: Callable[[bool], None],
        changed: Event,
        switch_after_s: float = SWITCH_AFTER_S,
    ) -> None:
        """`bind_operators`: sets what operators may change, in a freeze (True) or without. `changed`: set by both
        clients on news. `switch_after_s`: from a decision until DPUs switch; 0 if they switch at once."""
        self._store, self._states, self._changed = store, states, changed
        self._sign, self._bind_operators = sign, bind_operators
        self._is_frozen: bool | None = None
        self._switch_after_s = switch_after_s
        self._is_active: bool | None = None
        self._memo = Memo()
        self._health = FleetHealth(self._memo)
        self._watch = WaveWatch()
        self._shown = ""
        self._reported: FleetView | None = None

    def run(self, is_ending: Callable[[], bool]) -> None:
        """Decide after each change until `is_ending`."""
        while not is_ending():
            is_news = self._changed.wait(_POLL_S)
            self._changed.clear()
            self._watch_connection()
            self._report_entries()
            if not self._is_active:
                continue
            if problem := self._store.connection.problem:
                # The view is outdated, and nothing can be written until it is current.
                self._warn_once(problem)
                continue
            if is_news:
                time.sleep(_COALESCE_S)
            try:
                self._decide()
                self._follow_freeze()
            except Exception as error:  # noqa: BLE001 - a fault in one decision ends no later ones.
                # Such as a lost store, or an intent in use that a newer version cannot decide.
                self._warn_once(problem_of(error))
                time.sleep(_RETRY_S)

    def _decide(self) -> None:
        """Write what the store lacks, or the next step of a roll-out. Raises XenoovsError."""
        view = self._store.view()
        if view is None:
            return
        statuses = self._states.statuses()
        now_ms = clocks_ms(view, statuses, now_ms=time_ms())[-1]
        if over := [name for name, each in sorted(view.overrides.items()) if 0 < each.until_ms <= now_ms]:
            text = f"the time of {first_names(['/'.join(name) for name in over])} is over"
            self._commit(view, self._with_entry(view, Changes(overrides=dict.fromkeys(over)), text))
            return
        health, availability = Changes(), None
        # `next_change` refuses a config that cannot be read.
        with suppress(XenoovsError):
            health, availability = self._health.step(view, statuses, now_s=time.monotonic(), now_ms=time_ms())
        change = self._change_of(view, health, availability)
        if not change.is_empty:
            if self._timed(view, change.changes).switch_at_ms and is_awaited(view, now_ms=time_ms()):
                return
            self._write_change(view, change)
            return
        self._shown = ""
        if oldest := oldest_entries(view):
            self._commit(view, Changes(actions=oldest))
            return
        self._roll_out(view, statuses)

    def _follow_freeze(self) -> None:
        """Make the database refuse changes by operators in a freeze, whatever their program. Raises XenoovsError."""
        view = self._store.view()
        is_frozen = False
        if view is not None and view.freezes:
            is_frozen = bool(freeze_text(view, now_ms=clocks_ms(view, self._states.statuses(), now_ms=time_ms())[-1]))
        if is_frozen is not self._is_frozen:
            self._bind_operators(is_frozen)
            self._is_frozen = is_frozen

    def _change_of(
        self, view: FleetView, health: Changes, availability: Mapping[str, Availability] | None
    ) -> FleetChange:
        """Return what the store lacks. Raises XenoovsError."""
        (change,) = self._memo.each(next_change, {"": (view, availability, self._memo)}).values()
        changes = replace(change.changes, watches=health.watches, dpus=health.dpus, silent=health.silent)
        if changes.services and changed_health(view, health.watches):
            # Clients of a dead backend must not wait.
            changes = replace(changes, switch_at_ms=0)
        return replace(change, changes=changes)

    def _roll_out(self, view: FleetView, statuses: Mapping[str, DpuStatus] | None) -> None:
        """Write the next step of a roll-out once its wave has passed or failed. Raises XenoovsError."""
        step = self._watch.step(view, statuses, now_s=time.monotonic())
        if step.changes is None or not self._commit(view, step.changes):
            return
        if step.silent:
            warn("wave passed without some DPUs", wave=view.wave, dpus=first_names(step.silent))
        if not step.reason:
            info("wave passed", generation=view.generation + 1, wave=view.wave)

    def _write_change(self, view: FleetView, change: FleetChange) -> None:
        """Write one change. Raises XenoovsError."""
        for unusable in change.unusable:
            self._warn_once(unusable)
        changes = change.changes
        if change.ended:
            names = first_names([f"{each.service}/{each.backend}" for each in change.ended])
            changes = self._with_entry(view, changes, f"config {changes.intent or view.intent} ends {names}")
        try:
            is_written = self._commit(view, changes)
        except StoreRejected as problem:
            self._warn_once(problem)
            newest = rolling_intent(view) or newest_intent(view)
            if newest is None or newest.state is IntentState.CURRENT:
                raise
            self._commit(view, refusal(view, newest, str(problem)))
            return
        if is_written:
            intent = change.changes.intent or view.intent
            info(
                "written",
                generation=view.generation + 1,
                intent=intent,
                services=len({each.name for each in change.steps}),
            )

    def _commit(self, view: FleetView, changes: Changes) -> bool:
        """Write changes. Return whether they were written. Raises XenoovsError."""
        if changes.wave:
            statuses = self._states.statuses()
            if statuses is None:
                reason = f"{self._states.connection.reason or 'no reports yet'}; the wave begins when there are reports"
                raise StoreUnreachable(remotes="the database of states", reason=reason)
            changes = with_baseline(view, changes, statuses)
        changes = self._timed(view, changes)
        outcome = self._store.commit(view.generation, changes)
        if outcome is not CommitOutcome.COMMITTED:
            # The next view shows what another controller, or this transaction, has written.
            info("not written; reading again", generation=view.generation, outcome=outcome.value)
            return False
        if changes.wave:
            info("wave begins", generation=view.generation + 1, wave=changes.wave)
        self._report_health(view, changes)
        for number, intent in changes.intents.items():
            if intent is not None and intent.comment.startswith("refused: "):
                warn("config refused", intent=number, reason=intent.comment.removeprefix("refused: "))
        return True

    def _with_entry(self, view: FleetView, changes: Changes, text: str) -> Changes:
        return with_entry(view, changes, Action(0, time_ms(), "controller", text, socket.gethostname()))

    def _report_entries(self) -> None:
        """Log each new entry of the history, also if another controller is active."""
        view = self._store.view()
        if view is None or view is self._reported:
            return
        known = view.actions if self._reported is None else self._reported.actions
        self._reported = view
        for _, each in sorted(view.actions.items() - known.items()):
            facts = {name: getattr(each, name) for name in ("host", "certificate", "config", "changed", "comment")}
            given = {name: fact for name, fact in facts.items() if fact}
            info("fleet changed", action=each.text, author=each.author, **given)

    def _timed(self, view: FleetView, changes: Changes) -> Changes:
        """Return changes with the time at which DPUs switch to them."""
        at_ms = switch_time_ms(view, changes, now_ms=time_ms(), after_s=self._switch_after_s)
        return replace(changes, switch_at_ms=at_ms)

    def _report_health(self, view: FleetView, changes: Changes) -> None:
        for target, is_down in changed_health(view, changes.watches).items():
            if is_down:
                warn("target down", target=target, generation=view.generation + 1)
            else:
                info("target up", target=target, generation=view.generation + 1)
        if changes.silent is not None and (new := changes.silent - view.silent):
            warn("DPUs are silent", dpus=first_names(sorted(new)))
        for name, dpu in changes.dpus.items():
            if dpu is not None and dpu.is_unfit:
                warn("DPU not fit: it withdraws", dpu=name, generation=view.generation + 1)
            elif dpu is not None:
                info("DPU fit again", dpu=name, generation=view.generation + 1)

    def _watch_connection(self) -> None:
        connection = self._store.connection
        is_active = connection.is_connected and connection.is_leader
        if is_active is not self._is_active:
            self._is_active, self._is_frozen = is_active, None
            # A newly active controller has another clock, so it watches a wave from its beginning.
            self._health, self._watch = FleetHealth(self._memo), WaveWatch()
            self._sign.show(is_active=is_active)
            if is_active:
                info("active: the server leads", remote=connection.remote)
            else:
                info("passive", reason=connection.reason or "another server leads")

    def _warn_once(self, problem: XenoovsError | str) -> None:
        if str(problem) != self._shown:
            self._shown = str(problem)
            warn("cannot decide", reason=self._shown)


def time_ms() -> int:
    """Return the time, in milliseconds since 1970."""
    return int(time.time() * 1000)
