"""Work in a second process that outlives the first one, and a rollback that comes after every change."""

from __future__ import annotations

import os
import select
import signal
import sys
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from xenoovs.errors import SwitchError
from xenoovs.switch.watchdog import RollbackWatchdog, run_detached

KILLED = """
import os, time
from pathlib import Path
from xenoovs.switch.watchdog import run_detached

def work():
    print("begun", flush=True)
    time.sleep(0.5)
    print("done", flush=True)

run_detached(work)
"""


def test_a_result_comes_back() -> None:
    assert run_detached(lambda: {"pid": os.getpid()})["pid"] != os.getpid()


def test_an_error_comes_back_with_its_hint_and_commands() -> None:
    def fail() -> None:
        error = SwitchError("no such bridge")
        error.hint, error.commands = "try another", ("ovs-vsctl show",)
        raise error

    with pytest.raises(SwitchError, match="no such bridge") as raised:
        run_detached(fail)
    assert (raised.value.hint, raised.value.commands) == ("try another", ("ovs-vsctl show",))


def test_an_error_of_the_system_comes_back() -> None:
    with pytest.raises(SwitchError, match="No such file or directory: '/nowhere/file'"):
        run_detached(lambda: Path("/nowhere/file").write_text(""))


def test_the_end_of_the_second_process_is_an_error() -> None:
    with pytest.raises(SwitchError, match="was killed"):
        run_detached(lambda: os.kill(os.getpid(), signal.SIGKILL))


def test_work_goes_on_when_the_first_process_is_killed() -> None:
    with Popen([sys.executable, "-c", KILLED], stdout=PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.kill()
        assert process.stdout.read() == "done\n"


def test_a_change_beside_the_rollback_of_the_watchdog_is_rolled_back_too(tmp_path: Path) -> None:
    """A drain round of the first process may end after the rollback by the second process."""
    flows = tmp_path / "flows"
    flows.write_text("before")
    watchdog = RollbackWatchdog(lambda: flows.write_text("before"))
    flows.write_text("change")
    watchdog.limit(0.01)
    select.select([watchdog.ended], [], [])
    flows.write_text("a round that had begun")
    watchdog.undo()
    assert flows.read_text() == "before"


def test_a_confirmed_change_is_not_rolled_back(tmp_path: Path) -> None:
    flows = tmp_path / "flows"
    watchdog = RollbackWatchdog(lambda: flows.write_text("before"))
    flows.write_text("change")
    assert watchdog.keep()
    watchdog.undo()
    assert flows.read_text() == "change"
