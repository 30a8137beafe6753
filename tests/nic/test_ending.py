"""A recording that is killed leaves neither machines nor files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.nic.guest import nic
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


def test_an_rmmod_that_hangs_ends_the_guest_program_with_the_kernels_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the kernel rmmod waits where no signal ends it; `run` would wait for it as long as the machine lives."""
    for name, script in (("rmmod", "exec sleep 5"), ("dmesg", "echo waiting for p1 to become free")):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(SystemExit, match="rmmod eswitch has not ended within 1 s; dmesg:\nwaiting for p1"):
        nic.remove_module(within_s=1.0)
