"""plan, apply, status, trace and remove on a real ovs-vswitchd, and what people read there."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import suppress
from os import environ
from pathlib import Path

import pytest

from tests.command_line import SMALL_CONFIG, XENOOVS, CommandLine, CommandResult
from tests.ovs.dummy import DummyBridge, udp_packet
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.ovs

GOLDEN = Path(__file__).parents[1] / "golden" / "cli"
OTHERS = """\
  - name: mail
    vip: 10.3.10.46
    protocol: tcp
    ports: [25]
    tolerance: 20%
    backends:
      - {name: fips2, mac: 02:00:5e:10:00:02, weight: 1}
      - {name: fips3, mac: 02:00:5e:10:00:03, weight: 1}
"""
CHANGED_OTHERS = OTHERS.replace("[25]", "[587]\n    vip_mac: 02:00:5e:10:00:46")
BLOCKS = 5
FLOWS = BLOCKS + 3


def compare(name: str, said: CommandResult, *, update_golden: bool) -> None:
    path = GOLDEN / f"{name}.txt"
    if update_golden:
        path.write_text(said.out)
    assert said.out == path.read_text()


def test_a_plan_for_an_empty_bridge(
    xenoovs: CommandLine, bridge: DummyBridge, config: Path, *, update_golden: bool
) -> None:
    said = xenoovs("plan", config, "--db", bridge.ovs.db)
    assert (said.status, said.err) == (2, "")
    compare("plan-empty-bridge", said, update_golden=update_golden)
    assert bridge.dump_flows() == []


def test_applied_twice_there_is_nothing_to_do(xenoovs: CommandLine, bridge: DummyBridge, config: Path) -> None:
    first = xenoovs("apply", config, "--db", bridge.ovs.db, "--yes")
    assert first.status == 0
    assert f"done: {FLOWS} flow-mods in one bundle" in first.out
    again = xenoovs("apply", config, "--db", bridge.ovs.db, "--yes")
    assert (again.status, again.out) == (0, f"ovsbr1: nothing to do, {FLOWS} flows as they should be\n")
    assert xenoovs("plan", config, "--db", bridge.ovs.db).status == 0


def test_a_changed_weight(xenoovs: CommandLine, bridge: DummyBridge, config: Path, *, update_golden: bool) -> None:
    xenoovs("apply", config, "--db", bridge.ovs.db, "--yes")
    config.write_text(SMALL_CONFIG.replace("weight: 30", "weight: 50"))
    compare("plan-changed-weight", xenoovs("plan", config, "--db", bridge.ovs.db), update_golden=update_golden)


def test_services_that_come_change_and_go(
    xenoovs: CommandLine, bridge: DummyBridge, config: Path, *, update_golden: bool
) -> None:
    config.write_text(SMALL_CONFIG + OTHERS)
    xenoovs("apply", config, "--db", bridge.ovs.db, "--yes")
    config.write_text(SMALL_CONFIG.replace("weight: 30", "weight: 50") + CHANGED_OTHERS)
    said = xenoovs("plan", config, "--db", bridge.ovs.db, "--flows")
    compare("plan-flows", said, update_golden=update_golden)
    assert said.out.startswith(xenoovs("plan", config, "--db", bridge.ovs.db).out)
    assert said.out.index("table=1") < said.out.index("arp")
    dry_run = xenoovs("apply", config, "--db", bridge.ovs.db, "--flows", "--dry-run")
    assert (dry_run.status, dry_run.out) == (0, said.out)


def test_json_says_what_the_headline_says(xenoovs: CommandLine, bridge: DummyBridge, config: Path) -> None:
    config.write_text(SMALL_CONFIG + OTHERS)
    xenoovs("apply", config, "--db", bridge.ovs.db, "--yes")
    config.write_text(SMALL_CONFIG.replace("weight: 30", "weight: 50") + CHANGED_OTHERS)
    document = json.loads(xenoovs("plan", config, "--db", bridge.ovs.db, "-o", "json").out)
    assert document["summary"] == {
        "added": ["mail"],
        "changed": ["dns"],
        "removed": ["mail"],
        "clients_moved": [{"service": "dns", "clients": 0.125}],
        "flows_of_no_service": 1,
        "flows_before": 11,
        "flows_after": 12,
    }


def test_a_change_of_no_service_says_so(xenoovs: CommandLine, bridge: DummyBridge, config: Path) -> None:
    xenoovs("apply", config, "--db", bridge.ovs.db, "--yes")
    bridge.ofctl("del-flows", "table=0,in_port=p1")
    said = xenoovs("plan", config, "--db", bridge.ovs.db)
    assert said.out.startswith("ovsbr1: no service changes; 1 flow of other traffic and ARP does\n")


@pytest.mark.parametrize("no_color", ["", "1"])
def test_removed_services_are_red_on_a_terminal_alone(
    xenoovs: CommandLine, bridge: DummyBridge, config: Path, no_color: str
) -> None:
    config.write_text(SMALL_CONFIG + OTHERS)
    xenoovs("apply", config, "--db", bridge.ovs.db, "--yes")
    config.write_text(SMALL_CONFIG)
    assert "\x1b" not in xenoovs("plan", config, "--db", bridge.ovs.db).out
    ours, theirs = os.openpty()
    argv = [str(XENOOVS), "plan", str(config), "--db", bridge.ovs.db]
    process = subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs, env=environ | {"NO_COLOR": no_color})
    os.close(theirs)
    shown = b""
    with suppress(OSError):
        # At its end a terminal gives EIO (pty(7)).
        while part := os.read(ours, 4096):
            shown += part
    os.close(ours)
    assert process.wait(PATIENCE_S) == 2
    assert (b"\x1b[31m1 service removed" in shown) is (not no_color)
    assert (b"\x1b" in shown) is (not no_color)


def test_cosmetic_edits_change_nothing(xenoovs: CommandLine, bridge: DummyBridge, config: Path) -> None:
    xenoovs("apply", config, "--db", bridge.ovs.db, "--yes")
    config.write_text(SMALL_CONFIG.replace("name: dns", "name: names  # by another name").replace("fips2", "server-2"))
    assert xenoovs("plan", config, "--db", bridge.ovs.db).status == 0


def test_flows_of_others_survive_apply_and_remove(xenoovs: CommandLine, bridge: DummyBridge, config: Path) -> None:
    bridge.add_flows("cookie=0x5,table=0,priority=5000,arp actions=NORMAL\ntable=1,priority=7,ip actions=drop\n")
    foreign = bridge.dump_flows()
    xenoovs("apply", config, "--db", bridge.ovs.db, "--yes")
    assert len(bridge.dump_flows()) == FLOWS + 2
    said = xenoovs("remove", config, "--db", bridge.ovs.db, "--yes")
    assert (said.status, said.out) == (0, f"ovsbr1: {FLOWS} flows removed\n")
    assert bridge.dump_flows() == foreign


def test_a_flow_of_somebody_else_is_not_overwritten(xenoovs: CommandLine, bridge: DummyBridge, config: Path) -> None:
    bridge.add_flows("cookie=0x5,table=0,priority=1,in_port=p0 actions=drop\n")
    foreign = bridge.dump_flows()
    said = xenoovs("apply", config, "--db", bridge.ovs.db, "--yes")
    assert said.status == 1
    assert "a foreign flow has the same table, priority and match" in said.err
    assert bridge.dump_flows() == foreign


def test_status_counts_what_was_sent(xenoovs: CommandLine, bridge: DummyBridge, config: Path) -> None:
    xenoovs("apply", config, "--db", bridge.ovs.db, "--yes")
    bridge.settle(removed_s=0)
    bridge.send("p0", [udp_packet(f"198.51.100.{low}") for low in range(200)])
    bridge.ovs.appctl("revalidator/purge")
    said = xenoovs("status", config, "--db", bridge.ovs.db, "--interval", "0", "-o", "json")
    assert said.status == 0
    rows = json.loads(said.out)["backends"]
    assert [row["backend"] for row in rows] == ["fips2", "fips3"]
    assert sum(row["packets"] for row in rows) == 200
    assert sum(row["blocks"] for row in rows) == BLOCKS


def test_status_tells_when_flows_are_missing(xenoovs: CommandLine, bridge: DummyBridge, config: Path) -> None:
    xenoovs("apply", config, "--db", bridge.ovs.db, "--yes")
    bridge.ofctl("del-flows", "table=0")
    said = xenoovs("status", config, "--db", bridge.ovs.db, "--interval", "0")
    assert said.status == 2
    assert "3 flows missing or changed" in said.out


def test_trace_asks_the_switch(xenoovs: CommandLine, bridge: DummyBridge, config: Path) -> None:
    xenoovs("apply", config, "--db", bridge.ovs.db, "--yes")
    said = xenoovs("trace", config, "--src", "198.51.100.7", "--db", bridge.ovs.db, "-o", "json")
    assert said.status == 0
    assert json.loads(said.out)["switch"]["agrees"] is True


def test_trace_names_the_ports_when_one_is_not_on_the_bridge(
    xenoovs: CommandLine, bridge: DummyBridge, config: Path
) -> None:
    """What was told were the words of ovs-ofctl about a flow that nobody had typed."""
    said = xenoovs("trace", config, "--src", "198.51.100.7", "--in-port", "p9", "--db", bridge.ovs.db)
    assert (said.status, said.out) == (64, "")
    assert "--in-port p9: bridge ovsbr1 has ovsbr1, p0, p1" in said.err


def test_trace_tells_when_the_switch_does_otherwise(xenoovs: CommandLine, bridge: DummyBridge, config: Path) -> None:
    xenoovs("apply", config, "--db", bridge.ovs.db, "--yes")
    bridge.add_flows("cookie=0x5,table=0,priority=9000,ip actions=output:p1\n")
    said = xenoovs("trace", config, "--src", "198.51.100.7", "--db", bridge.ovs.db)
    assert said.status == 2
    assert "the same MAC by p1" in said.out


def test_verify_offload_tells_the_truth_about_software(xenoovs: CommandLine, bridge: DummyBridge, config: Path) -> None:
    xenoovs("apply", config, "--db", bridge.ovs.db, "--yes")
    bridge.settle(removed_s=0)
    assert xenoovs("verify-offload", config, "--db", bridge.ovs.db).status == 3
    bridge.send("p0", [udp_packet(f"198.51.100.{low}") for low in range(64)])
    said = xenoovs("verify-offload", config, "--db", bridge.ovs.db, "-o", "json")
    assert said.status == 2
    assert json.loads(said.out)["total"]["blocks"]["SW"] == BLOCKS
