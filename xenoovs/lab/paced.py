"""Traffic at a steady rate for some time, beside whatever else happens in a lab."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from queue import Queue
from subprocess import Popen
from threading import Thread
from types import FrameType

from xenoovs.errors import LabError
from xenoovs.lab.client import AnswerCounts, Flight, Pace, parse_counts, render_round
from xenoovs.lab.host import Progress
from xenoovs.lab.lab import Lab
from xenoovs.switch.process import open_conversation

_Program = Popen[bytes]


def exchange_paced(lab: Lab, flights: Sequence[Flight], pace: Pace, progress: Progress) -> AnswerCounts:
    """Send at a pace, one program for each protocol, until the time is over or SIGINT or SIGTERM comes.

    Raises:
        LabError: A program ends by itself, as when the lab is removed.
        KeyboardInterrupt: A second signal comes before the last answers.
    """
    counts, begun_s = AnswerCounts([0] * len(flights)), time.monotonic()
    packets = sum(len(flight.sources) for flight in flights)
    total_s = packets / pace.rate if pace.for_s is None else pace.for_s
    lines: Queue[bytes | None] = Queue()
    with ExitStack() as stack:
        programs: list[_Program] = []
        stopped = stack.enter_context(_stopping(programs))
        for part, size in _by_protocol(flights):
            program = stack.enter_context(_program(lab, part, replace(pace, rate=pace.rate * size / packets)))
            programs.append(program)
            if stopped:
                program.send_signal(signal.SIGINT)
            Thread(target=_read_lines, args=(program, lines), daemon=True).start()
        running = len(programs)
        while running:
            line = lines.get()
            if line is None:
                running -= 1
                continue
            counts.add(parse_counts(line.decode()))
            text = f"{sum(counts.sent)} sent, {counts.answers.total()} answered"
            progress(text, min(round(time.monotonic() - begun_s), round(total_s)), round(total_s))
        for program in programs:
            if program.wait() != 0 and not stopped:
                raise LabError(f"traffic ended early in lab {lab.name}: {_last_words(program)}")
    return counts


def _by_protocol(flights: Sequence[Flight]) -> Iterator[tuple[list[Flight], int]]:
    """Yield the flights once for each protocol, those of others without packets, and the number of packets."""
    for protocol in dict.fromkeys(flight.protocol for flight in flights):
        part = [flight if flight.protocol == protocol else replace(flight, sources=()) for flight in flights]
        yield part, sum(len(flight.sources) for flight in part)


@contextmanager
def _program(lab: Lab, flights: Sequence[Flight], pace: Pace) -> Iterator[_Program]:
    inside = ["ip", "netns", "exec", lab.topology.clients.namespace]
    argv = [*inside, sys.executable, "-P", "-m", "xenoovs.lab.client"]
    with open_conversation(argv, stdin=render_round(flights, lost=0, pace=pace), env=lab.marks) as program:
        yield program


@contextmanager
def _stopping(programs: Sequence[_Program]) -> Iterator[list[int]]:
    """Let the first SIGINT or SIGTERM end the programs, which then count their last answers. Yields the signals."""
    stopped: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        stopped.append(number)
        if len(stopped) > 1:
            raise KeyboardInterrupt
        for program in programs:
            program.send_signal(signal.SIGINT)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _read_lines(program: _Program, lines: Queue[bytes | None]) -> None:
    if program.stdout is not None:
        for line in program.stdout:
            lines.put(line)
    lines.put(None)


def _last_words(program: _Program) -> str:
    message = b"" if program.stderr is None else program.stderr.read()
    return message.decode(errors="replace").strip() or f"its program ended with status {program.returncode}"
