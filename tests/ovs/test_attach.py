"""What `--attach` tells Open vSwitch is what Open vSwitch does."""

from __future__ import annotations

import pytest

from tests.ovs.dummy import DummyBridge
from tests.ovs.ways import Record, live_switch, running_server
from tests.patience import eventually
from xenoovs.switch.vsctl import attach, quicken

pytestmark = pytest.mark.ovs


def test_a_controller_that_is_gone_is_asked_every_second(bridge: DummyBridge) -> None:
    log = bridge.ovs.directory / "ovs-vswitchd.log"
    endpoint = live_switch(bridge.ovs).endpoint
    with running_server(Record()) as server:
        target = server.local_target
        place = server.expect("ovsbr1").expected
        attach(endpoint, "ovsbr1", target=target)
        eventually(lambda: place.connection is not None, "the bridge is connected")
        quicken(endpoint, target=target)
    asked = f"<->{target}: connection failed"
    eventually(lambda: log.read_text().count(asked) >= 4, "the bridge asks again and again")
    assert f"<->{target}: waiting 2 seconds" not in log.read_text()
    assert (
        bridge.ovs.vsctl("--bare", "--columns=max_backoff", "find", "controller", f'target="{target}"').strip()
        == "1000"
    )
