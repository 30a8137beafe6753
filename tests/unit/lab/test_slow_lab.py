"""Labs on a slow machine: late, but not wrong. Time passes only where a test advances it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from xenoovs.lab import host
from xenoovs.lab.nic import call
from xenoovs.lab.nic.call import Call
from xenoovs.lab.nic.frames import FrameKind, FrameReader, parse_command, render_frame
from xenoovs.lab.nic.machine import VirtualMachine
from xenoovs.lab.nic.up import wait_until_ready


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(time, "sleep", self.pass_s)

    def pass_s(self, seconds: float) -> None:
        self.now_s += seconds


def test_down_waits_for_daemons_that_end_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stopped waiting after some seconds, and left a lab that was half removed."""
    clock, signalled = Clock(monkeypatch), list[int]()
    monkeypatch.setattr(os, "kill", lambda pid, _number: signalled.append(pid))
    monkeypatch.setattr(host, "is_alive", lambda _pid: clock.now_s < 25)
    assert host.stop_and_wait([10, 11])
    assert signalled == [10, 11]


class Booting(Call):
    """A conversation with a guest that takes ten minutes to boot, and then answers."""

    BOOT_S = 600.0
    clock: Clock

    def _free_port(self) -> None:  # type: ignore[override]
        self.sent, self.answered = FrameReader(), False

    def _transmit(self) -> None:
        self._sent = [*getattr(self, "_sent", ()), *self.sent.feed(bytes(self._unsent))]
        self._unsent.clear()

    def _receive(self, timeout_s: float) -> bytes:
        self.clock.pass_s(timeout_s)
        if self.clock.now_s < self.BOOT_S or self.answered:
            return b""
        self.answered = True
        (token,) = (parse_command(payload).token for kind, payload in self._sent if kind is FrameKind.CALL)
        return render_frame(FrameKind.BEGIN, token.encode()) + render_frame(FrameKind.EXIT, b"0")


def test_a_guest_that_boots_for_ten_minutes_is_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Booting, "clock", Clock(monkeypatch), raising=False)
    monkeypatch.setattr(call, "Call", Booting)
    wait_until_ready(VirtualMachine(tmp_path))
    assert Booting.clock.now_s >= Booting.BOOT_S
