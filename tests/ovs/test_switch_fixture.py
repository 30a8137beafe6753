"""The dummy OVS of the tests does what tests rely on: packets enter, are counted and leave; megaflows are countable."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.ovs.dummy import DummyBridge, DummyOvs, udp_packet

pytestmark = pytest.mark.ovs

_BLOCKS = ((10, "0.0.0.1/0.0.0.1"), (9, "0.0.0.0/0.0.0.3"), (9, "0.0.0.2/0.0.0.3"))
_FLOWS = "".join(
    f"add table=0,priority={priority},ip,nw_src={block} actions=mod_dl_dst:00:00:00:00:00:{i:02x},output:p1\n"
    for i, (priority, block) in enumerate(_BLOCKS)
)


def test_no_packet_is_lost_on_the_way_in_or_out(bridge: DummyBridge) -> None:
    bridge.add_flows(_FLOWS)
    bridge.send("p0", [udp_packet(f"198.51.{i >> 8}.{i & 255}") for i in range(400)])
    left = Counter(frame[5] for frame in bridge.sent("p1"))
    assert left == {0: 200, 1: 100, 2: 100}


def test_megaflows_are_as_many_as_flows(bridge: DummyBridge) -> None:
    bridge.add_flows(_FLOWS)
    bridge.settle(removed_s=0)
    bridge.send("p0", [udp_packet(f"203.0.113.{i}") for i in range(64)])
    assert len(bridge.megaflows()) == 3


def test_bridges_follow_each_other_without_a_trace(dummy_ovs: DummyOvs) -> None:
    for _ in range(2):
        with dummy_ovs.bridge(ports=("p0", "p-1.x")) as made:
            assert made.dump_flows() == []
            assert made.sent("p-1.x") == []
            made.add_flows('add table=0,priority=1,in_port=p0 actions=output:"p-1.x"\n')
            made.send("p0", [udp_packet("192.0.2.1")])
            assert len(made.sent("p-1.x")) == 1
