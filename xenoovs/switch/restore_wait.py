"""`other_config:flow-restore-wait` (ovs-vswitchd.conf.db(5)): a new ovs-vswitchd leaves the datapath's flows alone and
takes no packets from it until the flows are back. The setting must not stay, or Open vSwitch would wait for ever.

Run as a program this is the watchdog: it waits for the end of its stdin, and removes the setting unless it read `done`.
So the setting is removed even if the restarting process is killed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from xenoovs.errors import SwitchError
from xenoovs.switch.process import PYTHON_MODULE, open_pipe_to, run_vsctl

_WAIT = ("set", "Open_vSwitch", ".", "other_config:flow-restore-wait=true")
_FORGET = ("remove", "Open_vSwitch", ".", "other_config", "flow-restore-wait")
_DONE = b"done\n"
_PATIENCE_S = 120.0
_STEP_S = 0.05
_VSCTL_TIMEOUT_S = 10


@contextmanager
def waiting_for_flows(db: str) -> Iterator[None]:
    """Open vSwitch waits for its flows when it starts, until the context ends for any reason.

    After a normal end ovs-vswitchd has read that it need not wait any more. Raises SwitchError; if the setting cannot
    be removed in time, the watchdog goes on trying.
    """
    with open_pipe_to([*PYTHON_MODULE, "xenoovs.switch.restore_wait", db]) as watchdog:
        # From here on the watchdog removes it, also when this process is killed.
        run_vsctl(db, "--no-wait", *_WAIT, timeout_s=_VSCTL_TIMEOUT_S)
        try:
            yield
            with suppress(SwitchError):
                # Without --no-wait: returns when ovs-vswitchd has seen it (ovs-vsctl(8)).
                run_vsctl(db, *_FORGET, timeout_s=_VSCTL_TIMEOUT_S)
        finally:
            forget_wait(db)
            with suppress(OSError):
                watchdog.write(_DONE)
                watchdog.flush()


def forget_wait(db: str) -> None:
    """Remove the setting. Raises SwitchError if the database does not answer for long."""
    deadline = time.monotonic() + _PATIENCE_S
    retry(lambda: run_vsctl(db, "--no-wait", *_FORGET, timeout_s=_VSCTL_TIMEOUT_S), deadline=deadline)


def retry(action: Callable[[], object], *, deadline: float) -> None:
    """Repeat `action` until it raises no SwitchError, for the last time at the `deadline` (time.monotonic())."""
    while time.monotonic() < deadline:
        with suppress(SwitchError):
            action()
            return
        time.sleep(_STEP_S)
    action()


def _watch(db: str) -> None:
    if not sys.stdin.buffer.read().endswith(_DONE):
        forget_wait(db)


if __name__ == "__main__":
    _watch(sys.argv[1])
