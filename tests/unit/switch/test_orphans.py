"""Programs that a process has started end with it, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.patience import eventually
from tests.processes import command_line
from xenoovs.switch import orphans

PARENT = """\
import asyncio, sys
from xenoovs.agent.probe.run import Prober
from xenoovs.agent.probe.target import ExecTarget
async def main():
    prober = Prober(exec_allowed=True)
    await asyncio.gather(*(prober.probe(ExecTarget(("sh", "-c", each)), timeout_s=600) for each in sys.argv[1:]))
asyncio.run(main())
"""


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@contextmanager
def parent_of(*scripts: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process with a session of others that runs these scripts as exec probes."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT, *scripts])
    try:
        yield parent
    finally:
        parent.kill()
        parent.wait()


def pids_in(*files: Path) -> list[int]:
    def are_complete() -> bool:
        return all(each.exists() and each.read_text().endswith("\n") for each in files)

    eventually(are_complete, "the numbers of the programs")
    return [int(each.read_text()) for each in files]


def test_programs_and_what_they_started_die_with_a_process_that_is_killed(tmp_path: Path) -> None:
    leader, child, quiet, apart = (tmp_path / name for name in ("leader", "child", "quiet", "apart"))
    script = (
        f"echo $$ > {leader}; sleep 600 & echo $! > {child}; sleep 600 > /dev/null 2>&1 & echo $! > {quiet}; "
        f"setsid sh -c 'echo $$ > {apart}; exec sleep 600' & wait"
    )
    with parent_of(script) as parent:
        pids = pids_in(leader, child, quiet, apart)
        parent.kill()
        parent.wait()
        eventually(lambda: all(map(is_gone, pids)), "the end of all of them")


def test_each_of_several_concurrent_programs_is_killed(tmp_path: Path) -> None:
    files = [tmp_path / str(number) for number in range(8)]
    with parent_of(*(f"echo $$ > {each}; exec sleep 600" for each in files)) as parent:
        pids = pids_in(*files)
        parent.kill()
        parent.wait()
        eventually(lambda: all(map(is_gone, pids)), "the end of all of them")


def guards_of(parent: int) -> list[int]:
    """The processes that kill what `parent` leaves."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(pid) for pid in children if b"orphans.py" in command_line(pid)]


def test_a_killed_guard_is_replaced_by_one_with_all_running_programs(tmp_path: Path) -> None:
    first, second, go = tmp_path / "first", tmp_path / "second", tmp_path / "go"
    begun = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import os, sys, time\n"
            "from xenoovs.switch.process import killed_with_this_process, start\n"
            "entered = []\n"
            "def run(path):\n"
            "    _, out = os.pipe()\n"
            "    entered.append(killed_with_this_process(out))\n"
            "    entered[-1].__enter__()\n"
            "    start(['sh', '-c', f'echo $$ > {path}; exec sleep 600'], output=out, env={'PATH': '/usr/bin:/bin'})\n"
            "run(sys.argv[1])\n"
            "while not os.path.exists(sys.argv[3]): time.sleep(0.01)\n"
            "run(sys.argv[2])\n"
            "time.sleep(600)\n",
            *map(str, (first, second, go)),
        ]
    )
    try:
        pids = pids_in(first)
        (guard,) = guards_of(begun.pid)
        os.kill(guard, signal.SIGKILL)
        eventually(lambda: is_gone(guard), "the end of the guard")
        go.touch()
        pids += pids_in(second)
    finally:
        begun.kill()
        begun.wait()
    eventually(lambda: all(map(is_gone, pids)), "the end of both")


def test_a_process_that_ends_leaves_no_guard(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    with parent_of(f"echo $$ > {pid}; exec sleep 600") as parent:
        pids_in(pid)
        (guard,) = guards_of(parent.pid)
        parent.send_signal(signal.SIGINT)
        parent.wait()
        eventually(lambda: is_gone(guard), "the end of the guard")


def test_no_group_of_the_killed_process_itself_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that has no session of its own yet shares the group with the shell that started the agent."""
    killed: list[tuple[str, int]] = []
    monkeypatch.setattr(os, "killpg", lambda group, _: killed.append(("group", group)))
    monkeypatch.setattr(os, "kill", lambda pid, _: killed.append(("process", pid)))
    reader, writer = os.pipe()
    try:
        orphans.kill_holders({os.fstat(writer).st_ino}, session=os.getsid(0), spared=())
    finally:
        os.close(reader)
        os.close(writer)
    assert killed == [("process", os.getpid())]
