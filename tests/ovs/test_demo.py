"""`make demo` and `make demo-fleet`: they end with what is true, and leave nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.demo_fleet.place import BASE, MARK
from tests.patience import PATIENCE_S, eventually
from xenoovs.lab.host import marked_processes

SCRIPTS = Path(__file__).parents[2] / "scripts"
_LAB = re.compile(r"lab (demo-\d+) is up")
_ROW = re.compile(r"(.{24}) *(\d+) +(\d+) +[\d.]+ s +(\d+) +(\d+) +(\d+) +\d+")


def demo(*words: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*map(str, words)],
        env={**os.environ, "XENOOVS_PROGRAMS": str(Path(sys.executable).parent)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def demo_fleet() -> subprocess.Popen[str]:
    return demo(sys.executable, "-u", SCRIPTS / "demo_fleet")


def read_until(process: subprocess.Popen[str], is_said: Callable[[str], object]) -> str:
    assert process.stdout is not None
    said = ""
    while not is_said(said):
        line = process.stdout.readline()
        assert line, said
        said += line
    return said


def rest_after(number: signal.Signals, process: subprocess.Popen[str]) -> str:
    """What it prints and leaves to its end when it gets a signal."""
    assert process.stdout is not None
    os.killpg(process.pid, number)
    rest = process.stdout.read()
    assert process.wait(PATIENCE_S) == 128 + number, rest
    return rest


def namespaces(lab: str) -> list[Path]:
    return list(Path("/run/netns").glob(f"xo-{lab}-*"))


def remains(pid: int) -> list[object]:
    """What a demo of a fleet left on this machine."""
    directory = BASE / f"d{pid}"
    processes = marked_processes(MARK, str(directory))
    return [*namespaces(f"d{pid}"), *processes, *([directory] if directory.exists() else [])]


def test_it_ends_with_a_summary_of_three_lines() -> None:
    said, _ = (process := demo(SCRIPTS / "demo")).communicate(timeout=3 * PATIENCE_S)
    assert process.returncode == 0, said
    title, *summary = said.splitlines()[-4:]
    assert "Summary" in title
    assert [line.split()[0] for line in summary] == ["balanced:", "offloaded:", "next:"]
    assert "20000 answered, 0 lost: fips2 48.4%, fips3 30.4%, fips4 21.2%" in summary[0]
    assert "no, 7 blocks are SW" in summary[1]
    assert "make demo-nic" in summary[2]
    lab = _LAB.search(said)
    assert lab is not None
    assert namespaces(lab[1]) == []


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_interrupted_it_removes_the_lab(number: signal.Signals) -> None:
    process = demo(SCRIPTS / "demo")
    lab = _LAB.search(read_until(process, _LAB.search))
    assert lab is not None
    assert "Summary" not in rest_after(number, process)
    eventually(lambda: namespaces(lab[1]) == [], "the lab is gone")


@pytest.mark.long
def test_only_clients_that_had_to_move_get_another_server() -> None:
    said, _ = (process := demo_fleet()).communicate(timeout=4 * PATIENCE_S)
    assert process.returncode == 0, said
    assert remains(process.pid) == []

    met = re.search(r"(\d+) clients meet two or three DPUs; (\d+) clients have more than one server", said)
    assert met is not None, said
    assert int(met[1]) > 32
    assert int(met[2]) == 0
    assert "Clients that had two servers after an event, by different DPUs: 0." in said
    assert [line for line in said.splitlines() if len(re.sub(r"\033\[\d?m", "", line)) > 80] == []

    table = {name.split()[0]: [*map(int, numbers)] for name, *numbers in _ROW.findall(said)}
    lost = {name: row[1] for name, row in table.items()}
    rerouted, had_to, moved = ({name: row[at] for name, row in table.items()} for at in (2, 3, 4))
    assert [*table] == ["web4", "web2", "leader", "dpu3", "the"], said
    assert had_to == {**dict.fromkeys(("web4", "web2", "leader"), 16), "dpu3": 0, "the": had_to["the"]}, said
    assert moved == {**dict.fromkeys(("web4", "web2", "leader"), 16), "dpu3": 0, "the": 0}, said
    assert (lost["web4"], lost["leader"], lost["the"]) == (0, 0, 0), said
    assert 0 < lost["web2"] < table["web2"][0], said
    assert rerouted["dpu3"] > rerouted["the"] == 0, said


def test_an_interrupted_demo_of_a_fleet_removes_everything_also_of_one_that_was_killed() -> None:
    killed = demo_fleet()
    read_until(killed, lambda said: "Building" in said)
    eventually(lambda: remains(killed.pid) != [], "parts of the demo")
    killed.kill()
    killed.communicate()
    process = demo_fleet()
    read_until(process, lambda said: "Building" in said)
    assert "Traceback" not in rest_after(signal.SIGINT, process)
    assert remains(killed.pid) == remains(process.pid) == []
