"""`make demo` on a real Open vSwitch: it ends with three lines, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S, eventually

ROOT = Path(__file__).parents[2]
_LAB = re.compile(r"lab (demo-\d+) is up")


def demo() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(ROOT / "scripts" / "demo")],
        env={**os.environ, "XENOOVS_PROGRAMS": str(Path(sys.executable).parent)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def namespaces(lab: str) -> list[Path]:
    return list(Path("/run/netns").glob(f"xo-{lab}-*"))


def test_it_ends_with_a_summary_of_three_lines() -> None:
    said, _ = (process := demo()).communicate(timeout=3 * PATIENCE_S)
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
    process = demo()
    assert process.stdout is not None
    said = ""
    while (lab := _LAB.search(said)) is None:
        said += process.stdout.readline()
    os.killpg(process.pid, number)
    rest = process.stdout.read()
    assert process.wait(PATIENCE_S) == 128 + number, said + rest
    eventually(lambda: namespaces(lab[1]) == [], "the lab is gone")
    assert "Summary" not in rest
