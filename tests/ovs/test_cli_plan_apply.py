"""plan, apply, status, trace and remove on a real ovs-vswitchd, and what people read there."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from contextlib import suppress
from os import environ
from pathlib import Path

import pytest

from tests.command_line import SMALL_CONFIG, XENOOVS, Command, CommandLine
from tests.ovs.dummy import DummyBridge, udp_packet
from tests.patience import PATIENCE_S
from xenoovs.decision.document import parse_decision

pytestmark = pytest.mark.each_release

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


def test_a_plan_an_apply_and_then_nothing_to_do(
    on_bridge: Command, bridge: DummyBridge, config: Path, as_recorded: Callable[[str, str], None]
) -> None:
    said = on_bridge("plan", config)
    assert (said.status, said.err) == (2, "")
    as_recorded("plan-empty-bridge", said.out)
    asked = on_bridge("apply", config)
    assert (asked.status, "--yes" in asked.err) == (64, True)
    assert bridge.dump_flows() == []
    first = on_bridge("apply", config, "--yes")
    assert first.status == 0
    assert f"done: {FLOWS} flow-mods in one bundle" in first.out
    again = on_bridge("apply", config, "--yes")
    assert (again.status, again.out) == (0, f"ovsbr1: nothing to do, {FLOWS} flows as they should be\n")
    config.write_text(SMALL_CONFIG.replace("name: dns", "name: names  # by another name").replace("fips2", "server-2"))
    assert on_bridge("plan", config).status == 0
    config.write_text(SMALL_CONFIG.replace("weight: 30", "weight: 50"))
    as_recorded("plan-changed-weight", on_bridge("plan", config).out)
    config.write_text(SMALL_CONFIG)
    bridge.ofctl("del-flows", "table=0,in_port=p1")
    said = on_bridge("plan", config)
    assert said.out.startswith("ovsbr1: no service changes; 1 flow of other traffic and ARP does\n")


def test_services_that_come_change_and_go(
    on_bridge: Command, config: Path, as_recorded: Callable[[str, str], None]
) -> None:
    config.write_text(SMALL_CONFIG + OTHERS)
    on_bridge("apply", config, "--yes")
    config.write_text(SMALL_CONFIG.replace("weight: 30", "weight: 50") + CHANGED_OTHERS)
    said = on_bridge("plan", config, "--flows")
    as_recorded("plan-flows", said.out)
    assert said.out.startswith(on_bridge("plan", config).out)
    assert said.out.index("table=1") < said.out.index("arp")
    dry_run = on_bridge("apply", config, "--flows", "--dry-run")
    assert (dry_run.status, dry_run.out) == (0, said.out)
    assert json.loads(on_bridge("plan", config, "-o", "json").out)["summary"] == {
        "added": ["mail"],
        "changed": ["dns"],
        "removed": ["mail"],
        "clients_moved": [{"service": "dns", "clients": 0.125}],
        "flows_of_no_service": 1,
        "flows_before": 11,
        "flows_after": 12,
        "groups": {"before": 0, "after": 0, "add": 0, "remove": 0},
    }


def test_removed_services_are_red_on_a_terminal_alone(on_bridge: Command, bridge: DummyBridge, config: Path) -> None:
    config.write_text(SMALL_CONFIG + OTHERS)
    on_bridge("apply", config, "--yes")
    config.write_text(SMALL_CONFIG)
    assert "\x1b" not in on_bridge("plan", config).out
    for no_color in ("", "1"):
        ours, theirs = os.openpty()
        argv, env = [str(XENOOVS), "plan", str(config), "--db", bridge.ovs.db], environ | {"NO_COLOR": no_color}
        process = subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs, env=env)
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


def test_a_user_who_declines_changes_nothing(bridge: DummyBridge, config: Path) -> None:
    ours, theirs = os.openpty()
    os.write(ours, b"n\n")
    argv = [str(XENOOVS), "apply", str(config), "--db", bridge.ovs.db]
    said = subprocess.run(argv, stdin=theirs, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    os.close(ours)
    os.close(theirs)
    assert (said.returncode, said.stderr.splitlines()[-1].endswith("error: declined")) == (1, True)
    assert bridge.dump_flows() == []


def test_a_missing_bridge_is_named_with_a_command_for_this_open_vswitch(
    xenoovs: CommandLine, on_bridge: Command, bridge: DummyBridge, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text(SMALL_CONFIG.replace("ovsbr1", "ovsbr9"))
    command = f"create it with `ovs-vsctl --db={bridge.ovs.db} add-br ovsbr9`"
    monkeypatch.setenv("OVS_RUNDIR", str(bridge.ovs.directory))
    for said in (on_bridge("apply", config, "--yes"), xenoovs("plan", config)):
        assert (said.status, command in said.err) == (1, True)


def test_flows_of_others_survive_apply_and_remove(on_bridge: Command, bridge: DummyBridge, config: Path) -> None:
    bridge.add_flows("cookie=0x5,table=0,priority=5000,arp actions=NORMAL\ntable=1,priority=7,ip actions=drop\n")
    foreign = bridge.dump_flows()
    on_bridge("apply", config, "--yes")
    assert len(bridge.dump_flows()) == FLOWS + 2
    said = on_bridge("remove", config, "--yes")
    assert (said.status, said.out) == (0, f"ovsbr1: {FLOWS} flows removed\n")
    assert bridge.dump_flows() == foreign


def test_a_flow_of_somebody_else_is_not_overwritten(on_bridge: Command, bridge: DummyBridge, config: Path) -> None:
    bridge.add_flows("cookie=0x5,table=0,priority=1,in_port=p0 actions=drop\n")
    foreign = bridge.dump_flows()
    said = on_bridge("apply", config, "--yes")
    assert said.status == 1
    assert "a foreign flow has the same table, priority and match" in said.err
    assert bridge.dump_flows() == foreign


def test_apply_refuses_what_cannot_be_whole_unless_told(on_bridge: Command, bridge: DummyBridge, config: Path) -> None:
    config.write_text(SMALL_CONFIG.replace("weight: 30}", "weight: 30, egress: p2}"))
    said = on_bridge("apply", config, "--yes")
    assert (said.status, "p2" in said.err, "--partial" in said.err) == (1, True, True)
    assert bridge.dump_flows() == []
    said = on_bridge("apply", config, "--yes", "--partial")
    assert said.status == 0
    assert "port p2 is on no bridge (ovsbr1 has p0, p1); no clients for dns/fips3" in said.out
    macs = {flow.partition("mod_dl_dst:")[2][:17] for flow in bridge.ours() if "table=1," in flow}
    assert macs == {"02:00:5e:10:00:02"}


def test_status_counts_what_was_sent_and_tells_when_flows_are_missing(
    on_bridge: Command, bridge: DummyBridge, config: Path
) -> None:
    on_bridge("apply", config, "--yes")
    bridge.settle(removed_s=0)
    bridge.send("p0", [udp_packet(f"198.51.100.{low}") for low in range(200)])
    bridge.ovs.appctl("revalidator/purge")
    said = on_bridge("status", config, "--interval", "0", "-o", "json")
    assert said.status == 0
    rows = json.loads(said.out)["backends"]
    assert [row["backend"] for row in rows] == ["fips2", "fips3"]
    assert sum(row["packets"] for row in rows) == 200
    assert sum(row["blocks"] for row in rows) == BLOCKS
    bridge.ofctl("del-flows", "table=0")
    said = on_bridge("status", config, "--interval", "0")
    assert (said.status, "3 flows missing or changed" in said.out) == (2, True)


def test_trace_names_the_ports_when_one_is_not_on_the_bridge(on_bridge: Command, config: Path) -> None:
    """What was told were the words of ovs-ofctl about a flow that nobody had typed."""
    said = on_bridge("trace", config, "--src", "198.51.100.7", "--in-port", "p9")
    assert (said.status, said.out) == (64, "")
    assert "--in-port p9: bridge ovsbr1 has ovsbr1, p0, p1" in said.err


def test_trace_tells_when_the_switch_does_otherwise(on_bridge: Command, bridge: DummyBridge, config: Path) -> None:
    on_bridge("apply", config, "--yes")
    said = on_bridge("trace", config, "--src", "198.51.100.7", "-o", "json")
    assert (said.status, json.loads(said.out)["switch"]["agrees"]) == (0, True)
    bridge.add_flows("cookie=0x5,table=0,priority=9000,ip actions=output:p1\n")
    said = on_bridge("trace", config, "--src", "198.51.100.7")
    assert said.status == 2
    assert "the same MAC by p1" in said.out


def test_what_was_applied_is_what_was_decided(xenoovs: CommandLine, on_bridge: Command, config: Path) -> None:
    online = on_bridge("decision", config)
    assert xenoovs("decision", config, "--offline").out == online.out
    assert online.out.splitlines()[0].split() == ["SERVICE", "BACKEND", "HOME", "ACTIVE", "BLOCKS", "DRAINING"]
    wanted = on_bridge("decision", config, "-o", "json")
    assert on_bridge("decision", config, "--installed").out.splitlines()[1:] == []
    assert on_bridge("apply", config, "--yes").status == 0
    there = on_bridge("decision", config, "--installed", "-o", "json")
    assert (wanted.status, there.status) == (0, 0)
    assert json.loads(there.out) == json.loads(wanted.out)
    assert parse_decision(json.loads(there.out)).services


def test_a_changed_weight_differs_by_the_clients_that_would_move(
    on_bridge: Command, config: Path, tmp_path: Path
) -> None:
    on_bridge("apply", config, "--yes")
    same = on_bridge("decision", config, "--diff", "installed")
    assert (same.status, same.out) == (0, "both decisions send every client to the same backend\n")
    before = tmp_path / "before.json"
    before.write_text(on_bridge("decision", config, "-o", "json").out)
    config.write_text(SMALL_CONFIG.replace("weight: 30", "weight: 50"))
    for other in ("installed", str(before)):
        said = on_bridge("decision", config, "--diff", other, "-o", "json")
        (service,) = json.loads(said.out)["services"]
        plan = json.loads(on_bridge("plan", config, "-o", "json").out)
        assert (said.status, service["clients"]) == (2, plan["services"][0]["clients_moved"])
        assert sum(shift["clients"] for shift in service["shifts"]) == service["clients"]
    before.write_text('{"format": 2, "version": 0, "services": []}')
    said = on_bridge("decision", config, "--diff", before)
    assert (said.status, "format" in said.err) == (1, True)
