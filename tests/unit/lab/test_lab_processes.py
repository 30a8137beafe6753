"""Processes of a lab: when one counts as ended."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.patience import eventually
from xenoovs.lab.host import is_alive, kill_and_wait

_MAIN_THREAD_ENDS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
ctypes.CDLL(None).syscall(60, 0)  # SYS_exit: of this thread alone
"""


def test_a_process_whose_main_thread_alone_has_ended_is_alive() -> None:
    """Its other threads still hold sockets and locks; `kill_and_wait` returned before they had ended."""
    with subprocess.Popen([sys.executable, "-c", _MAIN_THREAD_ENDS]) as process:
        stat = Path(f"/proc/{process.pid}/stat")
        eventually(lambda: ") Z " in stat.read_text(), "the end of the main thread")
        assert is_alive(process.pid)
        assert kill_and_wait([process.pid])
        assert not is_alive(process.pid)
