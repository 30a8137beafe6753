"""`make demo-nic`, whose parts `test_lab.py` has too, and echoes after restarts of Open vSwitch, which take minutes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.machines import prepare
from tests.nic.ending import scratch_directory
from tests.nic.test_lab import ONCE, UP, Lab, end_it

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


def test_echoes_with_offload_are_forwarded_by_the_nic_and_those_without_are_not() -> None:
    prepare()
    with scratch_directory() as directory:
        lab = Lab(directory)
        try:
            lab.say(*UP)
            lab.say("apply", "my.yaml", "--yes")
            echoes = lab.say("measure", "echo", "my.yaml", *ONCE, "--offload", "both", "--yes")
        finally:
            end_it(lab)
    samples = json.loads(echoes)["samples"]
    assert sorted(sample["point"]["offload"] for sample in samples) == ["off", "on"]
    for sample in samples:
        values = sample["values"]
        assert min(min(values["rtt_us"]), values["matched"]) > 0
        assert (values["offloaded_packets"] > 0) == (sample["point"]["offload"] == "on")
