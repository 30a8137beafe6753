"""Clocks that are set during a measurement: the times of samples stay right."""

from __future__ import annotations

import socket
import struct
import time as real_time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.patience import eventually
from tests.unit.measure.test_runs import BED, RUN_OF_FOUR, Counting
from xenoovs.measure import arrival_program, path_program, schedule
from xenoovs.measure.samples import new_run

SOURCE, DESTINATION = bytes([198, 18, 0, 1]), bytes([203, 0, 113, 1])
FRAME = bytes(12) + b"\x08\x00" + bytes(12) + SOURCE + DESTINATION + bytes(40)
JUMPS_S = (0.0, 3600.0, -3600.0, 0.5, -0.5)


class Clock(SimpleNamespace):
    """The module `time`, whose clock of the day is set by `jump_s` when a frame is sent."""

    def __init__(self, jump_s: float) -> None:
        super().__init__(monotonic=real_time.monotonic, sleep=lambda _s: None)
        self.jump_s, self.offset_s = jump_s, 0.0

    def time(self) -> float:
        return real_time.time() + self.offset_s

    def time_ns(self) -> int:
        return real_time.time_ns() + round(self.offset_s * 1e9)


class Wire:
    """A packet socket at which a frame arrives a millisecond after it was sent, stamped by the clock of the day."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.sent = clock, b""

    def send(self, data: bytes) -> None:
        self.sent = data
        self.clock.offset_s += self.clock.jump_s
        real_time.sleep(0.001)

    def settimeout(self, _seconds: float) -> None:
        pass

    def recvmsg(self, _size: int, _ancillary: int) -> tuple[object, ...]:
        seconds, nanoseconds = divmod(self.clock.time_ns(), 10**9)
        stamp = struct.pack("@ll", seconds, nanoseconds)
        return self.sent, [(socket.SOL_SOCKET, 35, stamp)], 0, ("eth0", 0, 0)


def wired(clock: Clock) -> socket.socket:
    return cast(socket.socket, Wire(clock))


@pytest.mark.parametrize("jump_s", JUMPS_S)
def test_a_round_trip_while_the_clock_was_set_is_left_out(jump_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(jump_s)
    monkeypatch.setattr(path_program, "time", clock)
    found = path_program.round_trip_us(wired(clock), DESTINATION, FRAME, 7)
    assert (found is None) == bool(jump_s)
    assert found is None or found >= 1000


@pytest.mark.parametrize("jump_s", JUMPS_S)
def test_a_first_packet_during_which_the_clock_was_set_took_no_longer_than_it_may(
    jump_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(jump_s)
    monkeypatch.setattr(arrival_program, "time", clock)
    monkeypatch.setattr(arrival_program, "select", SimpleNamespace(select=lambda each, *_: (each,)))
    wire = wired(clock)

    def is_as_long_as_it_took() -> bool:
        found = arrival_program.arrival_us(FRAME, wire, [wire])
        return found is not None and 1000 <= found < 0.4e6

    # A moment without a processor is part of the time.
    eventually(is_as_long_as_it_took, "the time of a packet, without the jump of the clock")


def test_samples_of_a_session_are_in_order_whatever_the_wall_clock_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(0.0)

    class Setting(Counting):
        def measure(self, *arguments: object) -> schedule.Measurement:
            clock.offset_s -= 3600
            real_time.sleep(0.002)
            return super().measure(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(schedule, "time", clock)
    with new_run(tmp_path, RUN_OF_FOUR) as writer:
        schedule.carry_out(Setting(), BED, writer, progress=lambda _: None)
        times = [sample.at for sample in writer.samples]
    assert times == sorted(times)
    assert len(set(times)) == 12
