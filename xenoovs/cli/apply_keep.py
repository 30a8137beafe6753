"""`xenoovs apply` with a way back: what decides whether a change stays."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from socket import socket
from types import FrameType
from typing import TYPE_CHECKING

import click

from xenoovs.errors import NotConfirmed, NotOffloaded, SwitchError, TakenBack
from xenoovs.errors.words import counted

if TYPE_CHECKING:
    from xenoovs.cli.show_drains import Steps
    from xenoovs.model.balancer import Balancer
    from xenoovs.switch.guard import Guard
    from xenoovs.switch.live import LiveSwitch

_LOOK_S = 1.0
"""Between two looks at the hardware."""
_ANSWER_S = 2.0
_MOST_BYTES = 65_536
_SLACK_S = 5.0
"""More than a look takes: until then the guard leaves the decision to us."""


class _Interrupted(BaseException):
    """No Exception: click.echo takes any of those for a stream that it cannot remember, and goes on."""


@contextmanager
def with_way_back(guard: Guard) -> Iterator[None]:
    """A change and the decision to keep it, which ends with `guard.keep`. Any other end takes the change back."""

    def interrupted(number: int, _frame: FrameType | None) -> None:
        raise _Interrupted(signal.Signals(number).name)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, interrupted) for number in numbers]
    try:
        yield
    except BaseException as error:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        guard.undo()
        if isinstance(error, _Interrupted):
            raise TakenBack(reason=f"interrupted by {error}") from None
        raise
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def require_offload(balancer: Balancer, switch: LiveSwitch, guard: Guard, *, within_s: float) -> str:
    """Look until all blocks are seen in hardware, or until time is up; what to tell then.

    Raises NotOffloaded where a block that has traffic is not in hardware at the end, or where nobody could look.
    """
    from xenoovs.cli.offload_look import looker_of
    from xenoovs.verify.findings import Conclusion, carry_over

    guard.limit(within_s + _SLACK_S)
    deadline = time.monotonic() + within_s
    try:
        looker = looker_of(balancer, switch)
        found = looker.look().findings
        while time.monotonic() < deadline and (found.absent or found.conclusion is not Conclusion.IN_HARDWARE):
            time.sleep(min(_LOOK_S, max(0.0, deadline - time.monotonic())))
            found = carry_over(found, looker.look().findings)
    except SwitchError as error:
        raise NotOffloaded(reason=f"nobody could look: {error}") from None
    seen = len(found.blocks) - found.absent
    if found.conclusion is Conclusion.NOTHING_SEEN:
        return "no block has had traffic, which is neither good nor bad: kept; look later with `xenoovs verify-offload`"
    if found.is_diverted:
        names = ", ".join(dict.fromkeys(taking.service for taking in found.taken if not taking.is_drop))
        raise NotOffloaded(reason=f"packets of {names} go elsewhere by flows of others; see `xenoovs verify-offload`")
    if found.conclusion is not Conclusion.IN_HARDWARE:
        wrong = [block for block in found.blocks if block.megaflows and block.verdict.value != "HW"]
        raise NotOffloaded(
            reason=f"{len(wrong)} of {counted(seen, 'block')} with traffic not in hardware after {within_s:g} s"
            if wrong
            else "the datapath could not be judged"
        )
    return f"{counted(seen, 'block')} with traffic, all in hardware"


def wait_for_confirmation(guard: Guard, sock: socket, steps: Steps, *, within_s: float) -> None:
    """Until ENTER, or `xenoovs confirm` from anywhere on this machine. Raises NotConfirmed when time is up.

    Drains go on meanwhile. The guard keeps the time: it goes on when this process is stopped (Ctrl-Z).
    """
    guard.limit(within_s)
    is_asked = sys.stdin.isatty()
    how = "press ENTER to keep it, or run `xenoovs confirm`" if is_asked else "keep it with `xenoovs confirm`"
    click.echo(f"applied; it is taken back in {within_s:g} s: {how}", err=True)
    watched: list[int] = [sock.fileno(), guard.ended, *([sys.stdin.fileno()] if is_asked else [])]
    while True:
        ready, _, _ = select.select(watched, [], [], steps.look_s)
        if guard.ended in ready:
            raise NotConfirmed(after_s=within_s)
        if not ready:
            steps.go_on()
            continue
        if sock.fileno() in ready and not _answer(sock, guard):
            continue
        if is_asked and sys.stdin.fileno() in ready and not os.read(sys.stdin.fileno(), 1024):
            raise TakenBack(reason="the terminal is gone")
        if not guard.keep():
            raise NotConfirmed(after_s=within_s)
        return


def _answer(sock: socket, guard: Guard) -> bool:
    """Answer one request as an agent would (`POST /v1/confirm`). Whether it asked for that."""
    heard: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            # The body may come after the head; an end before it would look to the client as if nobody were here.
            length = self.headers.get("Content-Length", "0")
            self.rfile.read(min(int(length), _MOST_BYTES) if length.isdecimal() else 0)
            is_kept = self.path == "/v1/confirm" and guard.keep()
            heard.append(self.path)
            message = "confirmed: the change stays" if is_kept else "too late: the change was taken back"
            error = {"error": {"code": "too_late", "message": message}}
            body = json.dumps({"message": message, "is_applied": True} if is_kept else error).encode()
            self.send_response(200 if is_kept else 409)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing: a person reads this terminal."""

    with suppress(OSError):
        connection, _ = sock.accept()
        with connection:
            connection.settimeout(_ANSWER_S)
            Handler(connection, ("", 0), None)  # type: ignore[arg-type]
    return "/v1/confirm" in heard
