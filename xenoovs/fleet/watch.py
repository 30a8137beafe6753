"""Makes the snapshots of a fleet for commands, for its page and for its metrics."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from itertools import chain
from pathlib import Path

from xenoovs.errors import XenoovsError
from xenoovs.fleet.controller import is_shown
from xenoovs.fleet.rollout import FleetProgress
from xenoovs.fleet.snapshot import (
    FleetSnapshot,
    TargetRow,
    clocks_ms,
    dpu_problems,
    dpu_rows,
    roll_out_lines,
    target_problems,
    target_rows,
)
from xenoovs.store.client import DpuStatusReader, StoreClient
from xenoovs.store.servers import ServerFacts, host_facts

_SERVERS_S = 5.0
"""Greatest age of the facts about servers; to read them takes four processes."""
_FILES_S = 60.0
"""Greatest age of the facts about their files; to read them takes 0.02 s of processor time per MB."""
_POLL_S = 0.2


class FleetWatch:
    """Makes snapshots of a fleet, from any thread."""

    def __init__(self, store: StoreClient, states: DpuStatusReader, directory: Path | None) -> None:
        self._store, self._states, self._directory = store, states, directory
        self._lock = threading.Lock()
        self._servers = tuple[ServerFacts, ...]()
        self._servers_problem = ""
        self._servers_due_s = self._files_due_s = 0.0
        self._progress = FleetProgress()

    def snapshot(self) -> FleetSnapshot:
        with self._lock:
            return self._snapshot()

    def settled(self) -> FleetSnapshot:
        """Return a snapshot, once a controller has written what is due, or has had enough time for it."""
        while (found := self.snapshot()) and self._progress.is_due and not found.is_stalled:
            time.sleep(_POLL_S)
        return found

    def _snapshot(self) -> FleetSnapshot:
        connection, problems, now_s = self._store.connection, list[str](), time.time()
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
        rows = () if view is None or statuses is None else tuple(dpu_rows(view, statuses, now_s=now_s))
        targets, roll_out, stall, clock_ms = list[TargetRow](), list[str](), "", int(now_s * 1000)
        if view is not None:
            targets = target_rows(view, statuses, now_s=now_s, memo=self._progress.memo)
            votes = [row.unwritten for row in targets if row.unwritten]
            try:
                if not connection.is_connected:
                    # After a loss of the store, the controller watches the wave again from its beginning.
                    self._progress = FleetProgress()
                elif stall := self._progress.stall(view, statuses, now_s=time.monotonic(), votes=votes):
                    stall = f"{stall}: is `xenoovs fleet serve` running?"
            except XenoovsError as problem:
                problems.append(f"no controller can decide: {problem}")
        if self._directory is not None and is_leader and not is_shown(self._directory):
            stall = "no controller is active on this host, whose server leads: start `xenoovs fleet serve`"
        problems += [stall] if stall else []
        if view is not None:
            if statuses is None:
                problems.append("the database of states does not answer: what DPUs have is not known")
            change = self._progress.change
            problems += [*map(str, change.unusable), *change.contested.values()]
            clock_ms = clocks_ms(view, statuses, now_ms=clock_ms)[-1]
            roll_out = roll_out_lines(view, statuses, now_s=now_s)
        problems += [*dpu_problems(rows), *target_problems(targets)]
        problems += chain.from_iterable(each.problems() for each in self._servers)
        return FleetSnapshot(
            view,
            rows,
            self._servers,
            is_leader,
            tuple(problems),
            now_s,
            is_stalled=bool(stall),
            roll_out=tuple(roll_out),
            targets=tuple(targets),
            clock_ms=clock_ms,
        )

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
                pairs = zip(found, self._servers, strict=True)
                found = tuple(
                    replace(new, gap=old.gap, certificate_left_s=old.certificate_left_s) for new, old in pairs
                )
            self._servers, self._servers_problem = found, ""
        except XenoovsError as problem:
            self._servers_problem = str(problem)
        self._servers_due_s = time.monotonic() + _SERVERS_S
