"""Rolls back a change of `xenoovs apply` that is not confirmed in time, or whose blocks are not in hardware."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from socket import socket
from types import FrameType

from xenoovs.diagnosis.offload import BlockChecker, block_checker
from xenoovs.display import span
from xenoovs.engine.engine import DrainRounds
from xenoovs.errors import NotConfirmed, NotOffloaded, RolledBack, SwitchError, counted
from xenoovs.evidence.collector import Collector
from xenoovs.judge.findings import Conclusion, OffloadFindings, carry_over
from xenoovs.model.balancer import Balancer
from xenoovs.switch.management import ManagementSwitch
from xenoovs.switch.watchdog import RollbackWatchdog
from xenoovs.terminal.defaults import option
from xenoovs.terminal.output import echo
from xenoovs.terminal.reach import target_options

_SAMPLE_INTERVAL_S = 1.0
_REQUEST_TIMEOUT_S = 2.0
_MAX_REQUEST_BYTES = 65_536
_SLACK_S = 65.0
"""More than a dump of the datapath may take. The guard waits that much longer, so that this process decides."""


class Interrupted(KeyboardInterrupt):
    """A signal was received. Not an Exception: click.echo suppresses those, and the change would stay."""


@contextmanager
def rolled_back_on_error(guard: RollbackWatchdog) -> Iterator[None]:
    """Roll back if the `with` ends by an exception or a signal. Raises RolledBack after a signal."""

    def interrupted(number: int, _frame: FrameType | None) -> None:
        raise Interrupted(signal.Signals(number).name)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, interrupted) for number in numbers]
    try:
        yield
    except BaseException as error:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        guard.undo()
        if isinstance(error, Interrupted):
            raise RolledBack(reason=f"interrupted by {error}") from None
        raise
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def require_offload(balancer: Balancer, switch: ManagementSwitch, guard: RollbackWatchdog, *, within_s: float) -> str:
    """Sample the datapath until all blocks are in hardware, or time is up; return the result as a sentence. Raises
    NotOffloaded if a block with traffic is not in hardware at the end, or the datapath could not be read."""
    guard.limit(within_s + _SLACK_S)
    deadline = time.monotonic() + within_s
    try:
        checker = block_checker(balancer, Collector(switch))
        found = _checked(checker, deadline)
        while time.monotonic() < deadline and (found.absent or found.conclusion is not Conclusion.IN_HARDWARE):
            time.sleep(min(_SAMPLE_INTERVAL_S, max(0.0, deadline - time.monotonic())))
            found = carry_over(found, _checked(checker, deadline))
    except SwitchError as error:
        raise NotOffloaded(reason=f"the datapath could not be read: {error}") from None
    seen = len(found.blocks) - found.absent
    if found.conclusion is Conclusion.NOTHING_SEEN:
        return "no block has had traffic, so the change stays; check later with `xenoovs verify-offload`"
    if found.is_overridden:
        names = ", ".join(dict.fromkeys(override.service for override in found.overrides if not override.is_drop))
        raise NotOffloaded(reason=f"flows of other owners override blocks of {names}; see `xenoovs verify-offload`")
    if found.conclusion is not Conclusion.IN_HARDWARE:
        wrong = [block for block in found.blocks if block.megaflows and block.verdict.value != "HW"]
        raise NotOffloaded(
            reason=f"{len(wrong)} of {counted(seen, 'block')} with traffic not in hardware after {span(within_s)}"
            if wrong
            else "the datapath could not be judged"
        )
    return f"{counted(seen, 'block')} with traffic, all in hardware"


def _checked(checker: BlockChecker, deadline: float) -> OffloadFindings:
    """Check the datapath; while it cannot be read, retry until the deadline. Raises SwitchError."""
    while True:
        try:
            return checker.check()
        except SwitchError as error:
            if not error.retryable or time.monotonic() >= deadline:
                raise
            time.sleep(_SAMPLE_INTERVAL_S)


def wait_for_confirmation(guard: RollbackWatchdog, sock: socket, rounds: DrainRounds, *, within_s: float) -> None:
    """Wait for ENTER, or `xenoovs confirm` on this machine; drains continue meanwhile.

    The guard keeps the time, also while this process is stopped (Ctrl-Z).

    Raises NotConfirmed if time is up, RolledBack if the terminal was closed.
    """
    guard.limit(within_s)
    has_terminal = sys.stdin.isatty()
    if has_terminal:
        # A line that was typed before the question is no answer to it.
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
    options = target_options(option("db"), option("lab"))
    how = f"{'press ENTER to keep it, or run' if has_terminal else 'keep it with'} `xenoovs confirm{options}`"
    echo(f"applied; rollback in {span(within_s)} unless confirmed: {how}", err=True)
    watched: list[int] = [sock.fileno(), guard.ended, *([sys.stdin.fileno()] if has_terminal else [])]
    while True:
        ready, _, _ = select.select(watched, [], [], rounds.next_s)
        if guard.ended in ready:
            raise NotConfirmed(after_s=within_s)
        if not ready:
            rounds.run_next()
            continue
        if sock.fileno() in ready and not _answer(sock, guard):
            continue
        if has_terminal and sys.stdin.fileno() in ready and not os.read(sys.stdin.fileno(), 1024):
            raise RolledBack(reason="the terminal was closed")
        if not guard.keep():
            raise NotConfirmed(after_s=within_s)
        return


def _answer(sock: socket, guard: RollbackWatchdog) -> bool:
    """Answer one request as an agent does; return whether it was `POST /v1/confirm`."""
    paths: list[str] = []

    class ConfirmHandler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            # The body may come after the head; a close before it would look to the client like a missing server.
            length = self.headers.get("Content-Length", "0")
            self.rfile.read(min(int(length), _MAX_REQUEST_BYTES) if length.isdecimal() else 0)
            is_kept = self.path == "/v1/confirm" and guard.keep()
            paths.append(self.path)
            message = "confirmed: the change stays" if is_kept else "too late: the change was rolled back"
            error = {"error": {"code": "too_late", "message": message}}
            body = json.dumps({"message": message, "is_applied": True} if is_kept else error).encode()
            self.send_response(200 if is_kept else 409)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing, as this process has a terminal."""

    with suppress(OSError):
        connection, _ = sock.accept()
        with connection:
            connection.settimeout(_REQUEST_TIMEOUT_S)
            ConfirmHandler(connection, ("", 0), None)  # type: ignore[arg-type]
    return "/v1/confirm" in paths
