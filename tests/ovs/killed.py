"""A `why` that ends while the log levels of ovs-vswitchd are raised."""

from __future__ import annotations

import subprocess
import sys

from xenoovs.lab.private_ovs import PrivateOvs

_PROGRAM = """
import os, signal, sys
from pathlib import Path
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.vlog import OffloadLog

rundir = Path(sys.argv[1])
with OffloadLog(Endpoint(f"unix:{rundir}/db.sock", rundir)).raised():
    os.kill(os.getpid(), getattr(signal, sys.argv[2]))
"""


def kill_listener(ovs: PrivateOvs, name: str) -> int:
    """Raise the levels in a process that sends the signal `name` to itself then; its exit status."""
    argv = [sys.executable, "-c", _PROGRAM, str(ovs.directory), name]
    return subprocess.run(argv, check=False, capture_output=True).returncode
