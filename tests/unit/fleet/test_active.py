"""The sign of an active controller, and how long a command waits for the store."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from tests.fleet_support import EMPTY
from xenoovs.errors import StoreUnreachable
from xenoovs.fleet import controller
from xenoovs.fleet.commands import client
from xenoovs.fleet.commands.client import CONNECT_S, FleetStore
from xenoovs.fleet.controller import ActiveSign, FleetController, is_shown
from xenoovs.store.client import StoreConnection
from xenoovs.store.replica import NO_ANSWER
from xenoovs.store.view import FleetView


def test_the_sign_is_there_while_one_of_two_controllers_is_active(tmp_path: Path) -> None:
    one, two = ActiveSign(tmp_path), ActiveSign(tmp_path)
    assert not is_shown(tmp_path)
    one.show(is_active=True)
    two.show(is_active=True)
    one.show(is_active=False)
    assert is_shown(tmp_path)
    two.show(is_active=False)
    assert not is_shown(tmp_path)


def test_a_killed_controller_leaves_no_sign(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    if (victim := os.fork()) == 0:
        try:
            ActiveSign(tmp_path).show(is_active=True)
            os.write(write_end, b"shown")
            signal.pause()
        finally:
            os._exit(1)
    os.close(write_end)
    assert os.read(read_end, 5) == b"shown"
    was_shown = is_shown(tmp_path)
    os.kill(victim, signal.SIGKILL)
    os.waitpid(victim, 0)
    os.close(read_end)
    assert (was_shown, is_shown(tmp_path)) == (True, False)
    assert [*tmp_path.iterdir()] == []


def test_a_directory_that_is_not_there_has_no_sign(tmp_path: Path) -> None:
    sign = ActiveSign(tmp_path / "none")
    sign.show(is_active=True)
    assert not is_shown(tmp_path / "none")
    # That of a restored store is there when its controller becomes active again.
    (tmp_path / "none").mkdir()
    sign.show(is_active=True)
    assert is_shown(tmp_path / "none")


def test_of_many_concurrent_checks_none_reports_a_controller_that_is_not_there(tmp_path: Path) -> None:
    """Each check took an exclusive lock for a moment, which the other checks read as an active controller."""
    sign = ActiveSign(tmp_path)
    with ThreadPoolExecutor(4) as pool:
        assert not any(pool.map(lambda _: is_shown(tmp_path), range(2000)))
        # A controller that starts meanwhile and the checks do not block each other.
        seen = [pool.submit(is_shown, tmp_path) for _ in range(200)]
        sign.show(is_active=True)
        assert is_shown(tmp_path)
        assert all(pool.map(lambda _: is_shown(tmp_path), range(200)))
        assert {each.result() for each in seen} <= {True, False}


class LateStore:
    """A client that has a view from the first, and is connected after `late_s`. Who waits moves its clock."""

    def __init__(self, late_s: float, reason: str) -> None:
        self.now_s, self._late_s = 0.0, late_s
        self._lost = StoreConnection(is_connected=False, remote="", since_s=0, reason=reason)

    @property
    def connection(self) -> StoreConnection:
        return self._lost if self.now_s < self._late_s else replace(self._lost, is_connected=True, reason="")

    def view(self) -> FleetView:
        return EMPTY

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, time_s: float) -> None:
        self.now_s += time_s


GONE = "unix:/run/fleet.sock: No such file or directory"


@pytest.mark.parametrize(
    ("late_s", "reason", "is_answered"),
    [
        # Bug: a command failed that saw the first view before its connection.
        (0.001, NO_ANSWER, True),
        (CONNECT_S - 0.1, GONE, True),
        (CONNECT_S + 0.1, GONE, False),
        (CONNECT_S + 0.1, NO_ANSWER, True),
        (3 * CONNECT_S + 0.1, NO_ANSWER, False),
    ],
)
def test_a_store_that_is_gone_is_waited_for_and_a_busy_one_longer(
    late_s: float, reason: str, *, is_answered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    late: Any = LateStore(late_s, reason)
    monkeypatch.setattr(client, "time", late)
    with nullcontext() if is_answered else pytest.raises(StoreUnreachable, match=reason):
        assert FleetStore(late, late, None).view() is EMPTY


def test_bug_an_internal_error_in_a_decision_ended_the_controller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(controller, "_RETRY_S", 0.0)
    views, ends = Mock(side_effect=[*[ZeroDivisionError("of a test")] * 3, None, None]), iter([False] * 4 + [True])
    connection = StoreConnection(True, "unix:/s", 0.0)
    store: Any = SimpleNamespace(connection=connection, view=views, changed=None)
    run = FleetController(store, store, sign=ActiveSign(tmp_path), bind_operators=lambda _: None, changed=Mock())
    monkeypatch.setattr(run, "_watch_connection", lambda: setattr(run, "_is_active", True))
    monkeypatch.setattr(run, "_report_entries", lambda: None)
    monkeypatch.setattr(controller, "_COALESCE_S", 0.0)
    run.run(lambda: next(ends))
    assert views.call_count == 5
    assert caplog.messages == ["cannot decide"]
