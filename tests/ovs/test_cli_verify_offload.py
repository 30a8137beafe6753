"""`xenoovs verify-offload` against a real Open vSwitch: software, flows of others in the way, waiting, any bridge."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path
from threading import Timer
from typing import IO, Any

import pytest

from tests.command_line import SMALL_CONFIG, Command, CommandLine, finish, running
from tests.ovs.dummy import DummyBridge, DummyOvs, udp_packet
from tests.patience import eventually
from tests.probe_support import two_namespaces
from xenoovs.compile.offloadable.openflow_topics import parse_groups
from xenoovs.datapath.parse import parse_megaflow
from xenoovs.evidence.collector import Collector
from xenoovs.judge.bridge import group_uses
from xenoovs.lab.private_ovs import Datapath, start_private_ovs, start_vswitchd, stop_private_ovs, stop_process
from xenoovs.switch.endpoint import find_endpoint
from xenoovs.switch.management import ManagementSwitch
from xenoovs.switch.netns import Netns
from xenoovs.switch.process import run
from xenoovs.switch.tc import FilterDump, dump_filters
from xenoovs.switch.vswitchd import netns_of

pytestmark = pytest.mark.each_release

CLIENTS = [udp_packet(str(IPv4Address(0xC6120000 + i * 257))) for i in range(64)]


def test_before_traffic_and_when_megaflows_have_expired_nothing_is_said(
    applied: Path, bridge: DummyBridge, on_bridge: Command
) -> None:
    said = on_bridge("verify-offload", applied, "--wait", "100ms")
    assert (said.status, said.out.splitlines()[-1][:45]) == (3, "no conclusion: no block has had traffic yet; ")
    bridge.send("p0", CLIENTS)
    bridge.ovs.appctl("revalidator/purge")
    said = on_bridge("verify-offload", applied)
    assert said.status == 3
    assert said.out.splitlines()[-1] == (
        "no conclusion: the blocks had 64 packets, but their megaflows have expired (max-idle 600s); "
        "send some traffic and run this again"
    )


def test_software_is_named_and_so_is_the_setting(applied: Path, bridge: DummyBridge, on_bridge: Command) -> None:
    bridge.send("p0", CLIENTS * 2)
    said = on_bridge("verify-offload", applied, "--output", "json")
    told = json.loads(said.out)
    assert (said.status, told["exit_code"]) == (2, 2)
    assert {verdict: count for verdict, count in told["total"]["blocks"].items() if count} == {"SW": 5}
    assert (told["total"]["megaflows"], told["total"]["predicted_megaflows"]) == (5, 5)
    assert told["total"]["sw_packets"] == 128 - 5
    assert (told["anomalous_megaflows"], told["unwildcarded"]) == ([], [])
    (remark,) = told["remarks"]
    assert remark.startswith("other_config:hw-offload is not true")
    people = on_bridge("verify-offload", applied)
    assert "other_config:hw-offload is not true" in people.out


def test_a_prefix_of_somebody_else_is_named(applied: Path, bridge: DummyBridge, on_bridge: Command) -> None:
    theirs = "priority=3000,ip,nw_src=203.0.113.0/24 actions=drop"
    bridge.add_flows(f"{theirs}\npriority=5000,ip,in_port=p1,nw_src=192.0.2.0/25 actions=drop\n")
    bridge.settle()
    bridge.send("p0", CLIENTS)
    said = on_bridge("verify-offload", applied, "--output", "json")
    (unwildcarded,) = json.loads(said.out)["unwildcarded"]
    assert (unwildcarded["service"], list(unwildcarded["extra_bits"])) == ("dns", ["nw_src"])
    assert unwildcarded["foreign_flows"] == [theirs]


def test_a_flow_of_somebody_else_that_takes_packets_is_told_and_named(
    applied: Path, bridge: DummyBridge, on_bridge: Command
) -> None:
    theirs = "priority=3000,udp,nw_src=0.0.0.7/0.0.0.15 actions=mod_dl_dst:02:00:5e:10:00:99,output:p1"
    bridge.add_flows(f"{theirs}\n")
    bridge.settle()
    bridge.send("p0", [packet for packet in CLIENTS for _ in range(2)])
    said = on_bridge("verify-offload", applied, "--output", "json")
    (override,) = json.loads(said.out)["overrides"]
    assert (said.status, override["service"], override["foreign_flows"]) == (2, "dns", [theirs])
    # 4 of 64 clients end in these bits; the packet that makes the megaflow is not counted by it.
    assert (override["megaflows"], override["packets"]) == (1, 2 * 4 - 1)
    assert len(override["blocks"]) == 1
    assert "nw_src=0.0.0.7/0.0.0.15" in override["blocks"][0]["flow"]
    people = on_bridge("verify-offload", applied)
    assert people.status == 2
    assert theirs in people.out


def test_wait_ends_when_every_block_was_seen(applied: Path, bridge: DummyBridge, on_bridge: Command) -> None:
    traffic = Timer(0.1, bridge.send, ("p0", CLIENTS))
    traffic.start()
    said = on_bridge("verify-offload", applied, "--wait", "1h", "--output", "json")
    traffic.join()
    assert json.loads(said.out)["total"]["blocks"]["ABSENT"] == 0


def test_any_bridge_is_told_by_its_ports(applied: Path, bridge: DummyBridge, on_bridge: Command) -> None:
    bridge.send("p0", [*CLIENTS, udp_packet("198.18.0.1", destination="10.9.9.9")])
    said = on_bridge("verify-offload", "--bridge", bridge.name, "--output", "json")
    told = json.loads(said.out)
    assert (said.status, [(row["in_port"], row["verdict"], row["megaflows"]) for row in told["rows"]]) == (
        2,
        [("p0", "SW", 6)],
    )
    said = on_bridge("verify-offload", "--bridge", "br-int")
    assert (said.status, "br-int does not exist" in said.err) == (1, True)


def test_flows_and_dump_of_a_bundle_tell_the_same_as_the_switch(
    applied: Path, bridge: DummyBridge, tmp_path: Path, xenoovs: CommandLine, on_bridge: Command
) -> None:
    bridge.add_flows("priority=3000,ip,nw_src=203.0.113.0/24 actions=drop\n")
    bridge.settle()
    bridge.send("p0", CLIENTS)
    live = on_bridge("verify-offload", applied, "--output", "json")
    (tmp_path / "dump").write_text("\n".join(bridge.megaflows()))
    (tmp_path / "flows").write_text(bridge.ofctl("dump-flows"))
    offline = xenoovs(
        *("verify-offload", applied, "--from-dump", tmp_path / "dump", "--from-flows", tmp_path / "flows"),
        *("--output", "json"),
    )
    # Only a switch can be asked for its settings, and from 3.4 on for the flows behind a megaflow.
    reports = [{**json.loads(each.out), "remarks": None} for each in (offline, live)]
    for megaflow in (row for report in reports for row in report["anomalous_megaflows"]):
        megaflow.pop("made_by")
    assert reports[0] == reports[1]


def test_bug_traffic_control_was_read_here_although_ovs_vswitchd_has_its_devices_elsewhere(tmp_path: Path) -> None:
    """Filters of a port of the same name here were taken for those of the switch; a port of it was not found."""
    with two_namespaces("tc") as (near, _):
        run(["ip", "netns", "exec", near, "tc", "qdisc", "add", "dev", "n0", "clsact"])
        ovs = start_private_ovs(tmp_path / "run", datapath=Datapath.DUMMY, netns=near)
        try:
            ovs.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy")
            # Its kernel has no datapath of Open vSwitch.
            ovs.vsctl("--no-wait", "add-br", "ovsbr1", "--", "set", "bridge", "ovsbr1", "datapath_type=system")
            endpoint = find_endpoint(db=ovs.db, env={})
            place = netns_of(endpoint)
            assert isinstance(place, Netns)
            assert dump_filters(["n0"]).unread == (("n0", 'Cannot find device "n0"'),)
            assert dump_filters(["n0"], place) == dump_filters([], place, perhaps=["n0"]) == FilterDump(())
            found = Collector(ManagementSwitch(endpoint)).megaflows("ovsbr1", ingress={"n0"})
            assert (found.filters, found.remarks) == ({}, ())
        finally:
            stop_private_ovs(ovs)


def test_a_watch_says_that_open_vswitch_is_gone_and_shows_the_new_one(
    own_ovs: DummyOvs, tmp_path: Path, xenoovs: CommandLine
) -> None:
    """It goes on where ovs-vswitchd is restarted: whoever watches wants to see the end of it."""
    small = tmp_path / "small.yaml"
    small.write_text(SMALL_CONFIG)

    def wait(lines: IO[str] | None, text: str) -> None:
        assert lines is not None
        assert any(text in line for line in lines)

    with own_ovs.bridge():
        assert xenoovs("apply", small, "--yes", "--db", own_ovs.ovs.db).status == 0
        with running("verify-offload", small, "--watch", "--db", own_ovs.ovs.db) as watching:
            wait(watching.stdout, "no conclusion: ")
            stop_process(own_ovs.ovs.pids()[0])
            wait(watching.stderr, "cannot check now; retrying: ")
            start_vswitchd(own_ovs.ovs, datapath=Datapath.DUMMY)
            for _ in range(2):  # One may have been written before.
                wait(watching.stdout, "no conclusion: ")
            watching.send_signal(signal.SIGINT)
            said = finish(watching)
    assert (said.status, "Traceback" in said.err) == (130, False)


# Groups that others made: which bucket is in use, and what megaflows do.


TO = "mod_dl_dst:02:00:00:00:00:01"
GROUPS = f"""\
group_id=7,type=ff,bucket=watch_port:p1,actions={TO},output:p1,bucket=watch_port:p2,actions={TO},output:p2
group_id=8,type=select,selection_method=hash,bucket=watch_port:p1,actions=output:p1,bucket=actions=output:p3
group_id=9,type=all,bucket=actions=output:p1,bucket=actions=output:p3
group_id=10,type=ff,bucket=watch_group:7,actions=group:7,bucket=watch_port:p3,actions=output:p3
"""


def used(xenoovs: CommandLine, bridge: DummyBridge) -> tuple[dict[int, dict[str, Any]], str]:
    words = ("verify-offload", "--bridge", bridge.name, "--db", bridge.ovs.db)
    text, said = xenoovs(*words).out, json.loads(xenoovs(*words, "-o", "json").out)
    return {each["number"]: each for each in said["groups"]}, text


@pytest.fixture
def four(dummy_ovs: DummyOvs) -> Iterator[DummyBridge]:
    """Bridge br0 with four ports."""
    with dummy_ovs.bridge("br0", ("p0", "p1", "p2", "p3")) as made:
        yield made


def test_the_bucket_in_use_and_its_megaflows_follow_a_port(xenoovs: CommandLine, four: DummyBridge) -> None:
    def buckets() -> dict[int, list[int]]:
        return {number: each["in_use"] for number, each in used(xenoovs, four)[0].items()}

    def down(port: str) -> None:
        four.ovs.appctl("netdev-dummy/set-admin-state", port, "down")

    try:
        four.ofctl("add-groups", "-", stdin=GROUPS, version="OpenFlow15")
        four.add_flows("".join(f"ip,nw_dst=10.0.0.{n},actions=group:{n}\n" for n in (7, 8, 9, 10)))
        four.settle()
        four.send("p0", [udp_packet("198.18.0.1", destination=f"10.0.0.{n}") for n in (7, 9, 10)])
        seen, text = used(xenoovs, four)
        assert {n: (each["in_use"], each["megaflows"], each["stale"]) for n, each in seen.items()} == {
            7: ([0], 2, 0),
            8: ([0, 1], 0, 0),
            9: ([0, 1], 1, 0),
            10: ([0], 1, 0),
        }
        assert "group 7 (ff): bucket 0 of 2 buckets in use; 2 megaflows, none of them by a dead port" in text
        down("p1")
        eventually(lambda: buckets() == {7: [1], 8: [1], 9: [0, 1], 10: [0]}, "p1 is dead")
        eventually(lambda: used(xenoovs, four)[0][7]["stale"] == 0, "megaflows follow")
        down("p2")
        eventually(lambda: buckets() == {7: [], 8: [1], 9: [0, 1], 10: [1]}, "p2 is dead")
        seen, text = used(xenoovs, four)
        assert "group 7 (ff): no live bucket, packets are dropped, as port p1 and port p2 are dead" in text
        assert (seen[7]["bad"], seen[10]["bad"], seen[10]["dead"]) == (True, False, ["group 7"])
        assert "a group loses packets" in text
    finally:
        four.ovs.appctl("netdev-dummy/set-admin-state", "up")


def test_a_megaflow_by_a_dead_port_does_not_follow() -> None:
    key = "recirc_id(0),in_port(p0),eth_type(0x0800),ipv4(dst=10.0.0.7,frag=no)"
    traced = [
        (parse_megaflow(f"{key}, packets:1, bytes:9, used:0.1s, actions:{port}"), "  0. ip\n    group:7\n")
        for port in ("p1", "p2")
    ]
    uses = {each.number: each for each in group_uses(parse_groups(GROUPS), {"p2", "p3"}, traced)}
    assert (uses[7].in_use, uses[7].megaflows, uses[7].stale, uses[7].is_bad) == ((1,), 2, 1, True)
    assert not uses[8].is_bad
