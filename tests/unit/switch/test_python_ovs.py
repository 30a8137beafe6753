"""The `ovs` package must not bring eventlet with it: asyncio could then not end its threads."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

SHOW = "import sys; from xenoovs.switch.python_ovs import import_ovs; import_ovs(); import ovs.db.idl;"


def test_eventlet_stays_out_where_it_is_installed() -> None:
    assert find_spec("eventlet") is not None
    argv = [sys.executable, "-c", f"{SHOW} print([name for name in sys.modules if name.startswith('eventlet')])"]
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_who_wants_eventlet_still_gets_it() -> None:
    argv = [sys.executable, "-W", "ignore", "-c", f"{SHOW} import eventlet; print(eventlet.__name__)"]
    assert subprocess.run(argv, check=True, capture_output=True, text=True).stdout == "eventlet\n"
