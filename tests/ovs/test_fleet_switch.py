"""DPUs switch to a planned change at the time that is written with it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.command_line import CommandLine, finish, running, start
from tests.ovs.dummy import DummyBridge
from tests.ovs.fleets import running_fleet
from tests.patience import eventually
from xenoovs.errors import BundleRejected
from xenoovs.openflow.flow import Bundle, Command, FlowMod
from xenoovs.openflow.text import parse_flow
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.management import ManagementSwitch

ADDED = Bundle((FlowMod(Command.ADD, parse_flow(" cookie=0x7, table=77, priority=7,ip actions=drop")),))


def test_open_vswitch_drops_what_was_prepared_when_its_process_is_killed_or_it_is_too_old(bridge: DummyBridge) -> None:
    switch = ManagementSwitch(Endpoint(bridge.ovs.db, bridge.ovs.directory))
    if (pid := os.fork()) == 0:
        with switch.prepared(bridge.name, ADDED):
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    bridge.ovs.vsctl("set", "Open_vSwitch", ".", "other_config:bundle-idle-timeout=1")
    try:
        with switch.prepared(bridge.name, ADDED) as commit:
            time.sleep(3)
            for _ in range(2):
                # Answered between two turns of its main loop, which end old bundles (ofconn_run() of connmgr.c).
                bridge.ovs.appctl("version")
            with pytest.raises(BundleRejected, match=r"OFPBFC_TIMEOUT|OFPBFC_BAD_ID"):
                commit()
    finally:
        bridge.ovs.vsctl("remove", "Open_vSwitch", ".", "other_config", "bundle-idle-timeout")
    assert bridge.dump_flows() == []


def test_an_agent_and_one_that_is_the_controller_of_its_bridge_switch_when_the_time_has_come_and_not_before(
    tmp_path: Path, xenoovs: CommandLine
) -> None:
    # An agent waits 5 s at most, so the controller of the fleet writes as late a time as there is.
    with running_fleet(tmp_path, xenoovs, switch_after="5s") as store:
        one, two = store.dpus
        before = [dpu.blocks() for dpu in store.dpus]

        def switch_at_ms() -> int:
            found: int = store.select("Fleet")[0]["switch_at_ms"]
            return found

        assert switch_at_ms() == 0
        two.stop()
        two.process = start("controller", *two.argv()[2:], "--attach")
        # Open vSwitch deletes all flows of a bridge that gets its first controller.
        assert two.process.stderr is not None
        assert any("flows changed" in line for line in two.process.stderr)
        eventually(lambda: store.is_well() and [dpu.blocks() for dpu in store.dpus] == before, "its flows")
        with running("fleet", "--directory", store.directory, "drain", "dns", "fips2", "--yes") as process:
            eventually(lambda: switch_at_ms() != 0, "the time")
            at_ms = switch_at_ms()

            def have_switched() -> bool:
                others = [dpu.blocks() for dpu in store.dpus]
                assert others == before or time.time() * 1000 >= at_ms
                return all(was != now for was, now in zip(before, others, strict=True))

            eventually(have_switched, "the switch")
            assert "applied by 2 of 2 DPUs" in finish(process).out
        assert one.blocks() == two.blocks()
        eventually(store.is_well, "the fleet")
