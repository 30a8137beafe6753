"""A recording that is killed leaves neither machines nor files."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.patience import eventually
from xenoovs.lab.host import is_alive

_RECORDING = """\
import subprocess, time
from tests.nic.ending import scratch_directory
with scratch_directory() as directory:
    machine = subprocess.Popen(["sleep", "600"], start_new_session=True)
    print(machine.pid, directory, flush=True)
    time.sleep(600)
"""


def test_a_killed_recording_leaves_no_machine_and_no_directory() -> None:
    with subprocess.Popen([sys.executable, "-c", _RECORDING], stdout=subprocess.PIPE, text=True) as recording:
        assert recording.stdout is not None
        pid, _, directory = recording.stdout.readline().strip().partition(" ")
        assert is_alive(int(pid))
        assert Path(directory).exists()
        recording.send_signal(signal.SIGKILL)
    eventually(lambda: not is_alive(int(pid)), "the machine is gone")
    eventually(lambda: not Path(directory).exists(), "the directory is gone")
