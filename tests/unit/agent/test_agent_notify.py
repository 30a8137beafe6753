"""Notifications to systemd about start and reload."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from xenoovs.agent.systemd import Readiness, notify


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield sock


def received(systemd: socket.socket) -> list[str]:
    messages = []
    while True:
        try:
            messages.append(systemd.recv(4096).decode().partition("\n")[0])
        except BlockingIOError:
            return messages


def test_ready_is_sent_once_and_after_each_reload(systemd: socket.socket) -> None:
    readiness = Readiness()
    readiness.idle()
    assert received(systemd) == []
    for _ in range(2):
        readiness.ready()
        readiness.idle()
    assert received(systemd) == ["READY=1"]
    readiness.reloading()
    readiness.idle()
    readiness.idle()
    assert received(systemd) == ["RELOADING=1", "READY=1"]


def test_a_reload_while_it_starts_does_not_make_it_ready(systemd: socket.socket) -> None:
    readiness = Readiness()
    readiness.reloading()
    readiness.idle()
    assert received(systemd) == []


def test_ready_is_sent_again_when_it_was_lost(systemd: socket.socket) -> None:
    """A manager that does not read for a while: its queue is full (unix(7), max_dgram_qlen)."""
    while notify("STATUS=much to say"):
        pass
    readiness = Readiness()
    readiness.ready()
    readiness.idle()
    assert "READY=1" not in received(systemd)
    readiness.idle()
    assert received(systemd) == ["READY=1"]
