"""Open vSwitch that is gone, hung, forbidden or killed in the middle: a clear error, and never half a change."""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.ovs.dummy import DummyBridge, DummyOvs
from tests.ovs.ways import live_switch
from tests.patience import PATIENCE_S, eventually
from xenoovs.errors import SwitchError, SwitchUnreachable
from xenoovs.lab.host import kill_and_wait
from xenoovs.lab.private_ovs import Datapath, start_vswitchd
from xenoovs.openflow.flow import Bundle, Command, FlowMod
from xenoovs.openflow.text import parse_flow
from xenoovs.switch import openflow
from xenoovs.switch.endpoint import find_endpoint
from xenoovs.switch.management import ManagementSwitch
from xenoovs.switch.ovsdb import read_bridges

_NOBODY = 65534


def _adds(count: int) -> Bundle:
    blocks = (f"nw_src=0.0.{n >> 8}.{n & 255}/0.0.255.255" for n in range(count))
    texts = (f"cookie=0x786f000000000001, priority=9,ip,{block} actions=output:p1" for block in blocks)
    return Bundle(tuple(FlowMod(Command.ADD, parse_flow(text)) for text in texts))


@pytest.mark.parametrize(
    "moment", [0.0, 0.018, *(pytest.param(i * 0.006, marks=pytest.mark.long) for i in (1, 2, 4, 5, 6, 7))]
)
def test_ovs_vswitchd_killed_while_it_takes_flows(own_ovs: DummyOvs, moment: float) -> None:
    with own_ovs.bridge() as bridge:
        switch, error, flows = live_switch(own_ovs.ovs), None, _adds(4096)
        killing = threading.Timer(moment, kill_and_wait, (own_ovs.ovs.pids()[:1],))
        killing.start()
        try:
            switch.apply(bridge.name, flows)
        except SwitchError as raised:
            error = raised
        killing.join()
        assert error is None or (isinstance(error, SwitchUnreachable) and error.retryable)
        start_vswitchd(own_ovs.ovs, datapath=Datapath.DUMMY)
        assert switch.dump_flows(bridge.name) == ()


def test_a_process_that_gets_no_turn_before_its_hello_connects_again(
    bridge: DummyBridge, dummy_ovs: DummyOvs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Open vSwitch waits one second for it, and closes the connection then."""
    greet, late = openflow.Connection.greet, [True, True]

    def greet_late(connection: openflow.Connection) -> None:
        if late and late.pop():
            closed = select.poll()
            closed.register(connection._socket, select.POLLRDHUP)
            assert closed.poll(PATIENCE_S * 1000)
        greet(connection)

    monkeypatch.setattr(openflow.Connection, "greet", greet_late)
    assert live_switch(dummy_ovs.ovs).dump_flows(bridge.name) == ()
    assert not late


def test_a_hung_ovs_vswitchd_is_sent_nothing(own_ovs: DummyOvs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel refuses more callers than it lets wait at once (unix(7), EAGAIN), which is told like silence."""
    switch = live_switch(own_ovs.ovs)
    with own_ovs.bridge() as bridge:
        with monkeypatch.context() as patched, _stopped(own_ovs.ovs.pids()[0]):
            patched.setattr(openflow, "GREETING_TIMEOUT_S", 0.01)
            for _ in range(70):
                with pytest.raises(SwitchUnreachable, match="ovs-vswitchd does not answer"):
                    switch.apply(bridge.name, _adds(1))
        assert switch.dump_flows(bridge.name) == ()


@contextmanager
def _stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_hung_database_times_out(own_ovs: DummyOvs) -> None:
    with _stopped(own_ovs.ovs.pids()[1]), pytest.raises(SwitchUnreachable, match="does not answer in time"):
        read_bridges(live_switch(own_ovs.ovs).endpoint, timeout_s=0.2)


def test_ovs_that_has_died_and_left_its_sockets(own_ovs: DummyOvs) -> None:
    own_ovs.ovs.vsctl("add-br", "ovsbr1", "--", "set", "bridge", "ovsbr1", "datapath_type=dummy")
    assert kill_and_wait(own_ovs.ovs.pids())
    assert own_ovs.ovs.directory.joinpath("ovsbr1.mgmt").is_socket()
    # The last of its threads closes the socket.
    eventually(lambda: live_switch(own_ovs.ovs).endpoint.incarnation("ovsbr1") is None, "the end of all threads")
    _check_unreachable(live_switch(own_ovs.ovs), "systemctl start")


def test_a_user_without_permission(dummy_ovs: DummyOvs, bridge: DummyBridge) -> None:
    switch = live_switch(dummy_ovs.ovs)
    assert switch.describe(bridge.name).name == bridge.name
    os.seteuid(_NOBODY)
    try:
        _check_unreachable(switch, "run as root, e.g. with sudo")
    finally:
        os.seteuid(0)


def test_a_remote_database_has_no_flows() -> None:
    switch = ManagementSwitch(find_endpoint(db="tcp:127.0.0.1:1", env={}))
    with pytest.raises(SwitchUnreachable, match="set OVS_RUNDIR"):
        switch.dump_flows("ovsbr1")
    with pytest.raises(SwitchUnreachable, match="no process listens there"):
        switch.bridges()


def test_two_instances_are_not_mixed_up(own_ovs: DummyOvs, dummy_ovs: DummyOvs, bridge: DummyBridge) -> None:
    with own_ovs.bridge(bridge.name):
        live_switch(dummy_ovs.ovs).apply(bridge.name, _adds(5))
        assert live_switch(own_ovs.ovs).dump_flows(bridge.name) == ()
        assert len(live_switch(dummy_ovs.ovs).dump_flows(bridge.name)) == 5
        mixed = find_endpoint(db=own_ovs.ovs.db, env={"OVS_RUNDIR": str(dummy_ovs.ovs.directory)})
        with pytest.raises(SwitchError, match="two different Open vSwitches"):
            ManagementSwitch(mixed).describe(bridge.name)


def _check_unreachable(switch: ManagementSwitch, advice: str) -> None:
    calls: tuple[Callable[[], object], ...] = (
        switch.bridges,
        lambda: switch.dump_flows("ovsbr1"),
        lambda: switch.apply("ovsbr1", _adds(1)),
        switch.dump_megaflows,
        lambda: switch.trace("ovsbr1", "ip"),
    )
    for call in calls:
        with pytest.raises(SwitchUnreachable) as caught:
            call()
        assert advice in str(caught.value)
