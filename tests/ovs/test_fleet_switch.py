"""DPUs switch to a planned change at the time that is written with it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.command_line import SMALL_CONFIG, CommandLine, finish, running, start
from tests.ovs.dummy import DummyBridge
from tests.ovs.fleets import FleetDpu, FleetServers, running_fleet
from tests.patience import eventually
from xenoovs.errors import BundleRejected
from xenoovs.openflow.flow import Bundle, Command, FlowMod
from xenoovs.openflow.text import parse_flow
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.management import ManagementSwitch

ADDED = Bundle((FlowMod(Command.ADD, parse_flow(" cookie=0x7, table=77, priority=7,ip actions=drop")),))


def switch_of(bridge: DummyBridge) -> ManagementSwitch:
    return ManagementSwitch(Endpoint(bridge.ovs.db, bridge.ovs.directory))


def test_a_prepared_bundle_changes_nothing_until_it_is_committed(bridge: DummyBridge) -> None:
    with switch_of(bridge).prepared(bridge.name, ADDED):
        pass
    with switch_of(bridge).prepared(bridge.name, ADDED) as commit:
        assert bridge.dump_flows() == []
        commit()
        assert len(bridge.dump_flows()) == 1


def test_open_vswitch_refuses_what_it_has_dropped_as_too_old(bridge: DummyBridge) -> None:
    bridge.ovs.vsctl("set", "Open_vSwitch", ".", "other_config:bundle-idle-timeout=1")
    try:
        with switch_of(bridge).prepared(bridge.name, ADDED) as commit:
            time.sleep(3)
            with pytest.raises(BundleRejected, match=r"OFPBFC_TIMEOUT|OFPBFC_BAD_ID"):
                commit()
    finally:
        bridge.ovs.vsctl("remove", "Open_vSwitch", ".", "other_config", "bundle-idle-timeout")
    assert bridge.dump_flows() == []


def test_a_process_that_is_killed_with_a_prepared_bundle_changes_nothing(bridge: DummyBridge) -> None:
    program = (
        "import sys, time; from tests.ovs import test_fleet_switch as t; from xenoovs.switch.endpoint import Endpoint\n"
        "from pathlib import Path; from xenoovs.switch.management import ManagementSwitch\n"
        "with ManagementSwitch(Endpoint(sys.argv[1], Path(sys.argv[2]))).prepared(sys.argv[3], t.ADDED) as commit:\n"
        "    print('prepared', flush=True); time.sleep(600)\n"
    )
    argv = [sys.executable, "-c", program, bridge.ovs.db, str(bridge.ovs.directory), bridge.name]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "prepared\n"
    eventually(lambda: "ofconns:1" in bridge.ovs.appctl("memory/show"), "the connection")
    process.kill()
    process.communicate()
    eventually(lambda: "ofconns" not in bridge.ovs.appctl("memory/show"), "the end of the connection")
    assert bridge.dump_flows() == []


# A fleet. An agent waits 5 s at most, so its controller writes as late a time as there is.


@pytest.fixture
def store(tmp_path: Path, xenoovs: CommandLine) -> Iterator[FleetServers]:
    """A fleet of two DPUs."""
    with running_fleet(tmp_path, xenoovs, switch_after="5s", text=SMALL_CONFIG) as made:
        yield made


def switch_at_ms(store: FleetServers) -> int:
    found: int = store.select("Fleet")[0]["switch_at_ms"]
    return found


@contextmanager
def overriding(store: FleetServers, command: str) -> Iterator[subprocess.Popen[str]]:
    """`fleet drain` or `reset`, once the store has the time at which DPUs switch."""
    before = switch_at_ms(store)
    sure = ("--yes",) if command == "drain" else ()
    with running("fleet", command, "dns", "fips2", *sure, "--directory", store.directory) as process:
        eventually(lambda: switch_at_ms(store) not in (0, before), "the time")
        yield process


def holds(dpu: FleetDpu) -> bool:
    """Whether something is connected with the bridge, as a prepared bundle is."""
    return "ofconns" in dpu.bridge.ovs.appctl("memory/show")


def test_dpus_switch_when_the_time_has_come_and_not_before(store: FleetServers) -> None:
    before = [dpu.blocks() for dpu in store.dpus]
    assert switch_at_ms(store) == 0
    with overriding(store, "drain") as process:
        at_ms = switch_at_ms(store)

        def have_switched() -> bool:
            others = [dpu.blocks() for dpu in store.dpus]
            assert others == before or time.time() * 1000 >= at_ms
            return all(was != now for was, now in zip(before, others, strict=True))

        eventually(have_switched, "the switch")
        assert "applied by 2 of 2 DPUs" in finish(process).out
    assert store.dpus[0].blocks() == store.dpus[1].blocks()
    eventually(store.is_well, "the fleet")


def test_whatever_happens_while_a_dpu_waits_its_flows_are_whole_and_end_right(store: FleetServers) -> None:
    one, two = store.dpus
    given = one.blocks()

    # Killed.
    with overriding(store, "drain"):
        eventually(lambda: holds(one) or one.blocks() != given, "the bundle")
        one.kill()
        left = one.blocks()
        eventually(lambda: two.blocks() != given, "the switch of the other one")
        drained = two.blocks()
        # Where this was too slow, it has switched.
        assert left in (given, drained)
        assert one.blocks() == left
    one.start()
    eventually(lambda: one.blocks() == drained, "the flows")
    eventually(store.is_well, "the fleet")

    # Another program deletes flows.
    with overriding(store, "reset"):
        eventually(lambda: holds(one) or one.blocks() != drained, "the bundle")
        one.bridge.ofctl("del-flows", "table=1")
        eventually(lambda: one.blocks() == two.blocks() != drained, "the switch of both")
    eventually(store.is_well, "the fleet")
    given = one.blocks()

    # The view comes after its time.
    assert one.process is not None
    one.process.send_signal(signal.SIGSTOP)
    with overriding(store, "drain"):
        at_ms = switch_at_ms(store)
        eventually(lambda: two.blocks() == drained and time.time() * 1000 > at_ms, "the switch of the other one")
        assert one.blocks() == given
        one.process.send_signal(signal.SIGCONT)
        eventually(lambda: one.blocks() == drained, "the same blocks")
    eventually(store.is_well, "the fleet")


def test_an_agent_that_is_the_controller_of_its_bridge_switches_at_the_time(store: FleetServers) -> None:
    one, two = store.dpus
    given = two.blocks()
    two.stop()
    two.process = start("controller", *two.argv()[2:], "--attach")
    # Open vSwitch deletes all flows of a bridge that gets its first controller.
    assert two.process.stderr is not None
    assert any("flows changed" in line for line in two.process.stderr)
    eventually(lambda: store.is_well() and two.blocks() == given, "its flows")
    with overriding(store, "drain") as process:
        at_ms = switch_at_ms(store)

        def has_switched() -> bool:
            blocks = two.blocks()
            assert blocks == given or time.time() * 1000 >= at_ms
            return blocks != given

        eventually(has_switched, "the switch")
        assert "applied by 2 of 2 DPUs" in finish(process).out
    assert two.blocks() == one.blocks()
