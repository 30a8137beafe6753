"""`make demo-fleet`: it ends with a table that is true, and leaves nothing behind."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from scripts.demo_fleet.place import BASE, MARK
from tests.patience import PATIENCE_S, eventually
from xenoovs.lab.host import marked_processes

ROOT = Path(__file__).parents[2]
_ROW = re.compile(r"(.{24}) *(\d+) +(\d+) +([\d.]+) s +(\d+) +(\d+) +(\d+) +(\d+)")


@dataclass(frozen=True)
class Printed:
    """A row of the table."""

    sent: int
    lost: int
    rerouted: int
    had_to: int
    moved: int


def demo() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-u", str(ROOT / "scripts" / "demo_fleet")],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def read_until(process: subprocess.Popen[str], text: str) -> str:
    assert process.stdout is not None
    said = ""
    while text not in said:
        line = process.stdout.readline()
        assert line, said
        said += line
    return said


def remains(pid: int) -> list[object]:
    """What a demo left on this machine."""
    directory = BASE / f"d{pid}"
    namespaces = list(Path("/run/netns").glob(f"xo-d{pid}-*"))
    return [*namespaces, *marked_processes(MARK, str(directory)), *([directory] if directory.exists() else [])]


def rows(said: str) -> dict[str, Printed]:
    found = {}
    for name, sent, lost, _, rerouted, had_to, moved, _ in _ROW.findall(said):
        found[name.strip()] = Printed(*map(int, (sent, lost, rerouted, had_to, moved)))
    return found


@pytest.mark.long
def test_only_clients_that_had_to_move_get_another_server() -> None:
    said, _ = (process := demo()).communicate(timeout=4 * PATIENCE_S)
    assert process.returncode == 0, said
    assert remains(process.pid) == []

    met = re.search(r"(\d+) clients meet two or three DPUs; (\d+) clients have more than one server", said)
    assert met is not None, said
    assert int(met[1]) > 32
    assert int(met[2]) == 0
    assert "Clients that had two servers after an event, by different DPUs: 0." in said
    assert [line for line in said.splitlines() if len(re.sub(r"\033\[\d?m", "", line)) > 80] == []

    table = rows(said)
    joins, server, leader, dpu, store = table.values()
    assert [name.split()[0] for name in table] == ["web4", "web2", "leader", "dpu3", "the"], said
    assert (joins.had_to, joins.moved, joins.lost) == (16, 16, 0), said
    assert (server.had_to, server.moved) == (16, 16), said
    assert 0 < server.lost < server.sent, said
    assert (leader.had_to, leader.moved, leader.lost) == (16, 16, 0), said
    assert (dpu.had_to, dpu.moved) == (0, 0), said
    assert dpu.rerouted > 0, said
    assert (store.moved, store.rerouted, store.lost) == (0, 0, 0), said


def test_interrupted_it_removes_everything_also_of_one_that_was_killed() -> None:
    killed = demo()
    read_until(killed, "Building")
    eventually(lambda: remains(killed.pid) != [], "parts of the demo")
    killed.kill()
    killed.communicate()

    process = demo()
    said = read_until(process, "Building")
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None
    said += process.stdout.read()
    assert process.wait(PATIENCE_S) == 128 + signal.SIGINT, said
    assert "Traceback" not in said
    assert remains(killed.pid) == remains(process.pid) == []
