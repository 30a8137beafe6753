"""`xenoovs verify-offload --bridge` on groups that others made: which bucket is in use, and what megaflows do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.command_line import Command
from tests.ovs.dummy import DummyBridge, DummyOvs, udp_packet
from tests.patience import eventually
from xenoovs.compile.offloadable.openflow_topics import parse_groups
from xenoovs.datapath.parse import parse_megaflow
from xenoovs.judge.groups import group_uses

pytestmark = pytest.mark.each_release

TO = "mod_dl_dst:02:00:00:00:00:01"
GROUPS = f"""\
group_id=7,type=ff,bucket=watch_port:p1,actions={TO},output:p1,bucket=watch_port:p2,actions={TO},output:p2
group_id=8,type=select,selection_method=hash,bucket=watch_port:p1,actions=output:p1,bucket=actions=output:p3
group_id=9,type=all,bucket=actions=output:p1,bucket=actions=output:p3
group_id=10,type=ff,bucket=watch_group:7,actions=group:7,bucket=watch_port:p3,actions=output:p3
"""


def used(on_bridge: Command, bridge: DummyBridge) -> tuple[dict[int, dict[str, Any]], str]:
    text = on_bridge("verify-offload", "--bridge", bridge.name).out
    said = json.loads(on_bridge("verify-offload", "--bridge", bridge.name, "-o", "json").out)
    return {each["number"]: each for each in said["groups"]}, text


@pytest.fixture
def bridge(dummy_ovs: DummyOvs) -> Iterator[DummyBridge]:
    with dummy_ovs.bridge("br0", ("p0", "p1", "p2", "p3")) as made:
        yield made


def test_the_bucket_in_use_and_its_megaflows_follow_a_port(on_bridge: Command, bridge: DummyBridge) -> None:
    def buckets() -> dict[int, list[int]]:
        return {number: each["in_use"] for number, each in used(on_bridge, bridge)[0].items()}

    def down(port: str) -> None:
        bridge.ovs.appctl("netdev-dummy/set-admin-state", port, "down")

    try:
        bridge.ofctl("add-groups", "-", stdin=GROUPS, version="OpenFlow15")
        bridge.add_flows("".join(f"ip,nw_dst=10.0.0.{n},actions=group:{n}\n" for n in (7, 8, 9, 10)))
        bridge.settle()
        bridge.send("p0", [udp_packet("198.18.0.1", destination=f"10.0.0.{n}") for n in (7, 9, 10)])
        seen, text = used(on_bridge, bridge)
        assert {n: (each["in_use"], each["megaflows"], each["stale"]) for n, each in seen.items()} == {
            7: ([0], 2, 0),
            8: ([0, 1], 0, 0),
            9: ([0, 1], 1, 0),
            10: ([0], 1, 0),
        }
        assert "group 7 (ff): bucket 0 of 2 buckets in use; 2 megaflows, none of them by a dead port" in text
        down("p1")
        eventually(lambda: buckets() == {7: [1], 8: [1], 9: [0, 1], 10: [0]}, "p1 is dead")
        eventually(lambda: used(on_bridge, bridge)[0][7]["stale"] == 0, "megaflows follow")
        down("p2")
        eventually(lambda: buckets() == {7: [], 8: [1], 9: [0, 1], 10: [1]}, "p2 is dead")
        seen, text = used(on_bridge, bridge)
        assert "group 7 (ff): no live bucket, packets are dropped, as port p1 and port p2 are dead" in text
        assert (seen[7]["bad"], seen[10]["bad"], seen[10]["dead"]) == (True, False, ["group 7"])
        assert "a group loses packets" in text
    finally:
        bridge.ovs.appctl("netdev-dummy/set-admin-state", "up")


def test_a_megaflow_by_a_dead_port_does_not_follow() -> None:
    key = "recirc_id(0),in_port(p0),eth_type(0x0800),ipv4(dst=10.0.0.7,frag=no)"
    traced = [
        (parse_megaflow(f"{key}, packets:1, bytes:9, used:0.1s, actions:{port}"), "  0. ip\n    group:7\n")
        for port in ("p1", "p2")
    ]
    uses = {each.number: each for each in group_uses(parse_groups(GROUPS), {"p2", "p3"}, traced)}
    assert (uses[7].in_use, uses[7].megaflows, uses[7].stale, uses[7].is_bad) == ((1,), 2, 1, True)
    assert not uses[8].is_bad
