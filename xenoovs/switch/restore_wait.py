"""`other_config:flow-restore-wait` (ovs-vswitchd.conf.db(5)): a new ovs-vswitchd leaves the datapath's flows alone and
takes no packets from it until the flows are back. The setting must not stay, or Open vSwitch would wait for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from xenoovs.errors import SwitchError
from xenoovs.switch.process import run_vsctl
from xenoovs.switch.watchdog import RollbackWatchdog

_WAIT = ("set", "Open_vSwitch", ".", "other_config:flow-restore-wait=true")
_FORGET = ("remove", "Open_vSwitch", ".", "other_config", "flow-restore-wait")
_TIMEOUT_S = 10


@contextmanager
def waiting_for_flows(db: str) -> Iterator[None]:
    """Open vSwitch waits for its flows when it starts, until the context ends for any reason.

    After a normal end ovs-vswitchd has read that it need not wait any more. Call it in a process without other threads.
    Raises SwitchError, also if the database does not answer for a minute, so that the setting stays.
    """
    # From here on the watchdog removes it, also when this process is killed.
    watchdog = RollbackWatchdog(lambda: run_vsctl(db, "--no-wait", *_FORGET, timeout_s=_TIMEOUT_S))
    try:
        run_vsctl(db, "--no-wait", *_WAIT, timeout_s=_TIMEOUT_S)
        yield
        with suppress(SwitchError):
            # Without --no-wait: returns when ovs-vswitchd has seen it (ovs-vsctl(8)).
            run_vsctl(db, *_FORGET, timeout_s=_TIMEOUT_S)
    finally:
        watchdog.undo()
