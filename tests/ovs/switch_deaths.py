"""kill -9 of ovs-vswitchd, and another one in its place."""

from __future__ import annotations

from tests.patience import eventually
from xenoovs.errors import CommandFailed
from xenoovs.lab.host import kill_and_wait
from xenoovs.lab.private_ovs import Datapath, PrivateOvs, start_vswitchd


def kill_and_start_vswitchd(ovs: PrivateOvs) -> None:
    """The new one has the bridges of the database, and no flows."""
    assert kill_and_wait(ovs.pids()[:1])

    def is_started() -> bool:
        # The last thread of the one that was killed may hold the lock of the pid file for a moment.
        try:
            start_vswitchd(ovs, datapath=Datapath.DUMMY)
        except CommandFailed:
            return False
        return True

    eventually(is_started, "ovs-vswitchd starts")
