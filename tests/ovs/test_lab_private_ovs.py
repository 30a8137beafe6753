"""A private Open vSwitch starts, stops, and never takes another process for its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from xenoovs.errors import CommandFailed
from xenoovs.lab.host import is_alive
from xenoovs.lab.private_ovs import Datapath, PrivateOvs, start_private_ovs, stop_private_ovs

pytestmark = pytest.mark.ovs


def test_start_and_stop_leave_nothing(tmp_path: Path) -> None:
    ovs = start_private_ovs(tmp_path / "ovs", datapath=Datapath.DUMMY)
    pids = ovs.pids()
    assert len(pids) == 2
    stop_private_ovs(ovs)
    assert not any(is_alive(pid) for pid in pids)
    assert not (tmp_path / "ovs").exists()


def test_a_stale_pid_file_kills_nobody(tmp_path: Path) -> None:
    ovs = PrivateOvs(tmp_path / "ovs")
    ovs.directory.mkdir()
    with subprocess.Popen(["sleep", "600"]) as innocent:
        (ovs.directory / "ovs-vswitchd.pid").write_text(f"{innocent.pid}\n")
        assert ovs.pids() == ()
        stop_private_ovs(ovs)
        assert innocent.poll() is None
        innocent.kill()


def test_a_start_that_fails_leaves_nothing(tmp_path: Path) -> None:
    before = set(os.listdir(tmp_path))  # noqa: PTH208
    with pytest.raises(CommandFailed, match="no-such-namespace"):
        start_private_ovs(tmp_path / "ovs", datapath=Datapath.USERSPACE, netns="no-such-namespace")
    assert set(os.listdir(tmp_path)) == before  # noqa: PTH208
