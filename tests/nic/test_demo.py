"""`make demo-nic`: everything about the emulated NIC in one command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.nic

ROOT = Path(__file__).parents[2]
_TIMEOUT_S = 600.0


def test_it_shows_hw_and_ends_with_a_summary() -> None:
    done = subprocess.run(
        [str(ROOT / "scripts" / "demo"), "nic"],
        env={**os.environ, "XENOOVS_PROGRAMS": str(Path(sys.executable).parent)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    summary = done.stdout.splitlines()[-3:]
    assert [line.split()[0] for line in summary] == ["balanced:", "offloaded:", "next:"]
    assert "7 blocks are HW" in summary[1]
