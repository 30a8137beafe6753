"""`make demo-nic`. The lab of `test_lab.py` is made of the same parts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.machines import prepare
from tests.nic.ending import scratch_directory

_SCRIPT = Path(__file__).parents[2] / "scripts" / "demo"

pytestmark = [pytest.mark.nic, pytest.mark.long, pytest.mark.timeout(1800)]


def test_it_shows_hw_and_ends_with_a_summary() -> None:
    prepare()
    with scratch_directory():
        done = subprocess.run(
            [_SCRIPT, "nic"],
            env={**os.environ, "XENOOVS_PROGRAMS": str(Path(sys.executable).parent)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    summary = done.stdout.splitlines()[-3:]
    assert [line.split()[0] for line in summary] == ["balanced:", "offloaded:", "next:"]
    assert "7 blocks are HW" in summary[1]
