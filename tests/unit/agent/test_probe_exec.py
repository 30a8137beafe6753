"""Exec probes: off by default; exit status, output, deadline; their child processes end with them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.patience import eventually
from tests.probe_support import ask
from xenoovs.agent.probe.target import ExecTarget, ProbeResult
from xenoovs.display import span


def python(code: str) -> ProbeResult:
    return ask(ExecTarget((sys.executable, "-c", code)), exec_allowed=True)


def test_off_until_allowed(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    result = ask(ExecTarget(("touch", str(mark))))
    assert (result.ok, mark.exists()) == (False, False)
    assert result.reason == "touch was not run: the agent was started without --allow-exec"
    assert ask(ExecTarget(("touch", str(mark))), exec_allowed=True).ok
    assert mark.exists()


def test_status_and_output() -> None:
    assert python("raise SystemExit('no disk')").reason == "ended with status 1: 'no disk'"
    assert python("import os; os.kill(os.getpid(), 9)").reason == "killed by SIGKILL"


def test_much_output_does_not_block() -> None:
    assert python("print('x' * 1_000_000)").ok


def test_absent_program() -> None:
    assert ask(ExecTarget(("/no/such",)), exec_allowed=True).reason == "/no/such: no such file or directory"


def test_deadline_kills_the_children_too(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    target = ExecTarget(("sh", "-c", f"sleep 600 & echo $! > {pid}.new; mv {pid}.new {pid}; wait"))
    # Until the deadline comes after the child, which on a busy machine may take its time.
    for timeout_s in (0.5, 4, 30):
        assert ask(target, timeout_s=timeout_s, exec_allowed=True).reason == f"sh did not end within {span(timeout_s)}"
        if pid.exists():
            break
    child = Path("/proc", pid.read_text().strip())
    eventually(lambda: not child.exists() or state_of(child) == "Z", "the end of the child")


def test_the_group_is_killed_before_its_leader_is_reaped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A number that was reaped may be that of another process group by then."""
    states, kill = [], os.killpg

    def killpg(group: int, number: int) -> None:
        states.append(state_of(Path("/proc", str(group))) if Path("/proc", str(group)).exists() else "reaped")
        kill(group, number)

    monkeypatch.setattr(os, "killpg", killpg)
    assert ask(ExecTarget(("true",)), exec_allowed=True).ok
    assert not ask(ExecTarget(("sleep", "60")), timeout_s=0.2, exec_allowed=True).ok
    assert states[0] == "Z"
    assert "reaped" not in states


def state_of(process: Path) -> str:
    """`Z` for one that has ended (proc(5), /proc/pid/stat); also for one that ends during the read."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


def test_the_program_gets_the_documented_variables_and_no_others_of_our_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SECRET", "s")
    code = "import os; raise SystemExit(' '.join(sorted(k for k in os.environ if k != 'LC_CTYPE')))"
    target = ExecTarget((sys.executable, "-c", code), environment=(("XENOOVS_ADDRESS", "192.0.2.1"),))
    reason = ask(target, exec_allowed=True).reason
    assert reason == "ended with status 1: 'LC_ALL PATH XENOOVS_ADDRESS'"


def test_a_signal_without_a_name_has_its_number() -> None:
    assert python("import os; os.kill(os.getpid(), 40)").reason == "killed by signal 40"
