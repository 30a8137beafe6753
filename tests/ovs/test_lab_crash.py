"""`up` is killed in the middle, at each of its steps and at moments of chance; `down` removes everything."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.ovs.lab_support import lab_name, links, remains
from tests.ovs.test_lab_up_down import DNS, NOTHING
from tests.patience import eventually
from xenoovs.errors import LabError
from xenoovs.lab.lab import open_lab
from xenoovs.lab.lifecycle import down, up

pytestmark = pytest.mark.ovs

STEPS = ("Open vSwitch", "backend odd")
LONG_STEPS = ("namespaces", "links", "clients", "backend even", "ready")

_PROGRAM = """
import os, signal, sys
from contextlib import suppress
from pathlib import Path
from tests.ovs.test_lab_up_down import DNS
from xenoovs.lab.lifecycle import up

def die(what, done, total):
    print(what, flush=True)
    if what == sys.argv[3]:
        os.kill(os.getpid(), signal.SIGKILL)

up(sys.argv[1], DNS, directory=Path(sys.argv[2]), progress=die)
"""


def _begin(name: str, directory: Path, *, die_at: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", _PROGRAM, name, str(directory), die_at]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def name(tmp_path: Path) -> Iterator[str]:
    yield lab_name("crash")
    down(lab_name("crash"), directory=tmp_path)


@pytest.mark.parametrize("step", [*STEPS, *(pytest.param(step, marks=pytest.mark.long) for step in LONG_STEPS)])
def test_killed_at_a_step(step: str, name: str, tmp_path: Path) -> None:
    before = links()
    with _begin(name, tmp_path, die_at=step) as victim:
        assert victim.wait() == -signal.SIGKILL
    with pytest.raises(LabError, match="never completed"):
        open_lab(name, directory=tmp_path)
    with pytest.raises(LabError, match="lab down"):
        up(name, DNS, directory=tmp_path)
    assert down(name, directory=tmp_path).anything
    assert remains(name, tmp_path) == NOTHING
    assert links() == before


# 3 and 4 once met a child between fork and exec that held the lock.
@pytest.mark.parametrize("seed", [3, *(pytest.param(seed, marks=pytest.mark.long) for seed in (0, 1, 2, 4, 5))])
def test_killed_at_a_moment_of_chance(seed: int, name: str, tmp_path: Path) -> None:
    with _begin(name, tmp_path, die_at="never") as victim:
        assert victim.stdout is not None
        assert victim.stdout.readline() == "namespaces\n"
        time.sleep(random.Random(seed).uniform(0, 0.3))
        victim.kill()
    assert down(name, directory=tmp_path).anything
    assert remains(name, tmp_path) == NOTHING
    up(name, DNS, directory=tmp_path)
    assert down(name, directory=tmp_path).processes == 4


_WAITING = """
import sys
from contextlib import suppress
from pathlib import Path
from xenoovs.lab.lab import open_lab

open_lab(sys.argv[1], directory=Path(sys.argv[2])).ovs.vsctl("add-br", "more")
"""


def test_killed_while_it_waits_for_ovs_vswitchd(name: str, tmp_path: Path) -> None:
    """ovs-vsctl waited on, for ever, and `down` did not know it."""
    lab = up(name, DNS, directory=tmp_path)
    os.kill(lab.ovs.pids()[0], signal.SIGSTOP)
    with subprocess.Popen([sys.executable, "-c", _WAITING, name, str(tmp_path)]) as victim:
        eventually(lambda: _waiting(lab.ovs.db) != [], "somebody who waits")
        victim.kill()
    assert _waiting(lab.ovs.db) != []
    assert down(name, directory=tmp_path).anything
    assert _waiting(lab.ovs.db) == []


def _waiting(db: str) -> list[str]:
    """The command lines of ovs-vsctl at a database."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = entry.read_bytes().decode().split("\0")
            found += [" ".join(words)] if words[0] == "ovs-vsctl" and f"--db={db}" in words else []
    return found
