"""The `ovs` package must not bring eventlet with it: asyncio could then not end its threads."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

SHOW = "import sys; from xenoovs.switch.live import import_ovs; import_ovs(); import ovs.db.idl;"


def test_eventlet_stays_out_where_it_is_installed() -> None:
    assert find_spec("eventlet") is not None
    argv = [sys.executable, "-c", f"{SHOW} print([name for name in sys.modules if name.startswith('eventlet')])"]
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_who_wants_eventlet_still_gets_it() -> None:
    argv = [sys.executable, "-W", "ignore", "-c", f"{SHOW} import eventlet; print(eventlet.__name__)"]
    assert subprocess.run(argv, check=True, capture_output=True, text=True).stdout == "eventlet\n"


INTERRUPTED = """
import os, signal, sys
from xenoovs.switch.live import import_ovs

class Interrupting:
    def find_spec(self, name, path, target=None):
        if name == "ctypes":
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.modules.pop("ctypes", None)
sys.meta_path.insert(0, Interrupting())
try:
    import_ovs()
except KeyboardInterrupt:
    print("interrupted", "ovs.poller" in sys.modules, signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""


def test_ctrl_c_in_the_middle_is_heeded() -> None:
    """`ovs.timeval` took it for a missing ctypes."""
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("interrupted True True\n", "")
