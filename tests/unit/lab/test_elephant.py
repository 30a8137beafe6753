"""The program that sends an elephant: where it cannot send, and without a start time."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = [sys.executable, "-P", "-m", "xenoovs.lab.fabric.elephant"]


def test_an_address_that_cannot_be_sent_to_is_named_without_a_traceback() -> None:
    # A socket without SO_BROADCAST may not send there (ip(7)).
    done = subprocess.run(
        [*PROGRAM, "255.255.255.255", "1000000"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert done.stderr == "the elephant cannot send to 255.255.255.255: Permission denied\n"


def test_without_a_time_it_begins_at_once() -> None:
    done = subprocess.run(
        [*PROGRAM, "127.0.0.1", "100000", "0.1"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ready\n", "")
