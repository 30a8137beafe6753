"""The library `ovs`, which is an extra."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import sys
sys.modules["ovs"] = None
from xenoovs.cli.main import main
main(["fleet", "relay", "--stop", "--directory", "/nonexistent"])
"""


def test_without_the_library_a_fleet_command_says_what_to_install() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "install openvswitch-switch, or with pip `xenoovs[fleet]`" in done.stderr
    assert "Traceback" not in done.stderr
