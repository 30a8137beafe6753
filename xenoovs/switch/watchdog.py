"""A second process that rolls a change back unless the first process confirms it, also when the first is killed.

It is a fork, so it has all that it needs in memory, and is in a session of its own: neither Ctrl-C, nor the loss of the
terminal, nor kill -9 of the first process reaches it. The first process writes to it by a pipe, whose end
shows that it is gone.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn, TypeVar, cast

from xenoovs.errors import SwitchError, XenoovsError

_KEPT, _FAILED, _UNDONE = 0, 1, 3
_RETRY_S, _PATIENCE_S = 0.5, 60.0
_KEEP = b"keep\n"

Result = TypeVar("Result")


def run_detached(work: Callable[[], Result]) -> Result:
    """Run `work` to its end in a second process, also when this one is interrupted or killed; return its result.

    Call it in a process without other threads. The result has to be picklable. Raises SwitchError: with the text, hint
    and commands of the XenoovsError or OSError that `work` raised.
    """
    read_end, write_end = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.close(read_end)
        _work_detached(write_end, work)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        outcome = pipe.read()
    os.waitpid(pid, 0)
    if not outcome:
        raise SwitchError("the process that did the work was killed")
    result, failure = pickle.loads(outcome)  # noqa: S301 - from our own fork
    if failure is not None:
        error = SwitchError(failure[0])
        error.hint, error.commands = failure[1:]
        raise error
    return cast(Result, result)


def _work_detached(pipe: int, work: Callable[[], object]) -> NoReturn:
    try:
        _detach()
        try:
            outcome: tuple[object, object] = work(), None
        except XenoovsError as error:
            outcome = None, (str(error), error.hint, error.commands)
        except OSError as error:
            outcome = None, (str(error), "", ())
        with suppress(BrokenPipeError), os.fdopen(pipe, "wb") as stream:
            stream.write(pickle.dumps(outcome))
    finally:
        os._exit(0)


def _detach() -> None:
    """Leave the session, so that neither Ctrl-C nor the end of the terminal reaches this process."""
    os.setsid()
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        # Not SIG_IGN: programs inherit it, and an ovs-vswitchd that was started so would not end by SIGTERM.
        signal.signal(number, lambda *_: None)


class RollbackWatchdog:
    """Rolls one change back. Start it before the change is made, in a process without other threads."""

    def __init__(self, undo: Callable[[], object]) -> None:
        """`undo`: raises XenoovsError where it did not succeed; it is tried again then, for a minute."""
        self._undo = undo
        read_end, self._pipe = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._pipe)
            _watch(read_end, undo)
        os.close(read_end)
        self._status: int | None = None
        self.ended = os.pidfd_open(self._pid)
        """Becomes readable when the watchdog has ended (pidfd_open(2)), because time was up."""

    def limit(self, seconds: float) -> None:
        """Undo after this time, from now on, unless `keep` comes."""
        with suppress(BrokenPipeError):
            os.write(self._pipe, f"{seconds!r}\n".encode())

    def keep(self) -> bool:
        """Keep the change. Return False where it was too late."""
        if self._status is None:
            with suppress(BrokenPipeError):
                os.write(self._pipe, _KEEP)
        return self._end() == _KEPT

    def undo(self) -> None:
        """Roll the change back now, unless it was confirmed. Raises XenoovsError."""
        if self._status != _KEPT:
            self._end()
            # Also where the watchdog has done it: this process may have changed flows at the same time.
            self._undo()

    def _end(self) -> int:
        if self._status is None:
            os.close(self._pipe)
            _, status = os.waitpid(self._pid, 0)
            os.close(self.ended)
            self._status = os.waitstatus_to_exitcode(status)
        return self._status


def _watch(pipe: int, undo: Callable[[], object]) -> NoReturn:
    status = _FAILED
    try:
        _detach()
        status = _KEPT if _is_kept(pipe) else _undone(undo)
    finally:
        # Without what the first process has to do at its end.
        os._exit(status)


def _is_kept(pipe: int) -> bool:
    deadline: float | None = None
    heard = b""
    while True:
        left_s = None if deadline is None else deadline - time.monotonic()
        if left_s is not None and left_s <= 0:
            return False
        ready, _, _ = select.select([pipe], [], [], left_s)
        data = os.read(pipe, 256) if ready else b""
        if ready and not data:
            return False
        *lines, heard = (heard + data).split(b"\n")
        if _KEEP.strip() in lines:
            return True
        if lines:
            deadline = time.monotonic() + float(lines[-1])


def _undone(undo: Callable[[], object]) -> int:
    with suppress(XenoovsError):
        retry(undo, deadline=time.monotonic() + _PATIENCE_S, pause_s=_RETRY_S)
        return _UNDONE
    return _FAILED


def retry(action: Callable[[], object], *, deadline: float, pause_s: float) -> None:
    """Repeat `action` until it raises no XenoovsError, for the last time at the `deadline` (time.monotonic())."""
    while time.monotonic() < deadline:
        with suppress(XenoovsError):
            action()
            return
        time.sleep(pause_s)
    action()
