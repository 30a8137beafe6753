"""The sign of an active controller."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from xenoovs.fleet.controller import ActiveSign, is_shown, no_controller


def test_the_sign_is_there_while_one_of_two_controllers_is_active(tmp_path: Path) -> None:
    one, two = ActiveSign(tmp_path), ActiveSign(tmp_path)
    assert not is_shown(tmp_path)
    one.show(is_active=True)
    two.show(is_active=True)
    one.show(is_active=False)
    assert is_shown(tmp_path)
    assert no_controller(tmp_path, is_leader=True) == []
    two.show(is_active=False)
    assert not is_shown(tmp_path)
    assert no_controller(tmp_path, is_leader=True) != [] == no_controller(tmp_path, is_leader=False)


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
