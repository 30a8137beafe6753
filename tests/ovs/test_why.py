"""`xenoovs why` against a real ovs-vswitchd whose datapath is software: reasons, selections, exit statuses."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import Command
from tests.ovs.dummy import DummyBridge, DummyOvs, udp_packet
from tests.ovs.test_vlog import kill_listener

CLIENTS = tuple(f"198.18.0.{number}" for number in range(16))


@pytest.fixture
def dummy_ovs(own_ovs: DummyOvs) -> DummyOvs:
    """An OVS for each test: some turn offload on, and that ends only with the process.

    With offload on, 4.0.0 dies of the second dummy datapath, which the bridge of the next test would make: a static
    `once` of dummy_allocate_flow_mark() in lib/dpif-offload-dummy.c makes the pool of the first one only.
    """
    return own_ovs


@pytest.fixture
def why(on_bridge: Command, bridge: DummyBridge, config: Path) -> Command:
    """The question, about a bridge that has the flows of the config."""
    assert on_bridge("apply", config, "--yes").status == 0
    bridge.settle(removed_s=0)
    return lambda *options: on_bridge("why", config, "--listen", "0", *options)


def _send(bridge: DummyBridge) -> None:
    bridge.send("p0", [udp_packet(client) for client in CLIENTS])
    bridge.megaflows()


def _answer(why: Command, *options: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(why("-o", "json", *options).out)
    return document


def _typed(command: str) -> str:
    """What a command prints that is copied to a shell which knows nothing of this Open vSwitch."""
    env = {"PATH": os.environ["PATH"]}
    done = subprocess.run(["sh", "-c", command], env=env, check=True, capture_output=True, text=True)
    assert done.stderr == ""
    return done.stdout


def test_before_traffic_nothing_is_seen(why: Command) -> None:
    said = why()
    assert (said.status, said.err) == (3, "")
    assert "no traffic yet" in said.out
    assert "not on the bridge" not in said.out


@pytest.mark.parametrize("command", ["why", "verify-offload"])
def test_flows_that_are_not_on_the_bridge_are_not_called_idle_alone(
    command: str, on_bridge: Command, config: Path
) -> None:
    """Before `apply` both said that there was no traffic yet, and to send some."""
    said = on_bridge(command, config)
    assert (said.status, said.err) == (3, "")
    assert re.search(r"(\d+) of \1 flows of the config are missing on the bridge; see `xenoovs plan\b", said.out)


def test_a_software_datapath_is_named_as_the_one_reason(why: Command, bridge: DummyBridge) -> None:
    _send(bridge)
    document = _answer(why)
    assert {row["service"] for row in document["megaflows"]} == {"dns"}
    assert {row["verdict"] for row in document["megaflows"]} == {"SW"}
    for row in document["megaflows"]:
        (reason,) = row["reasons"]
        assert (reason["cause"], reason["likelihood"]) == ("software-datapath", "certain")
        assert reason["evidence"] == ["bridge ovsbr1: datapath_type=dummy", "interface p0: type=dummy"]
    said = why()
    assert said.status == 2
    for text in ("SW: ", "1. software datapath", "evidence: bridge ovsbr1: datapath_type=dummy"):
        assert text in said.out


def test_a_command_that_mends_reaches_this_open_vswitch_from_any_shell(
    why: Command, on_bridge: Command, bridge: DummyBridge, config: Path
) -> None:
    """Copied from a terminal without OVS_RUNDIR, a command went to the Open vSwitch of the host."""
    _send(bridge)
    row = json.loads(on_bridge("doctor", config, "-o", "json").out)["checks"]
    (fix,) = [check["fix"] for check in row if check["check"] == "hw-offload"]
    _typed(fix)
    value = bridge.ovs.vsctl("get", "Open_vSwitch", ".", "other_config:hw-offload")
    assert value.strip() == '"true"'


def test_a_source_is_asked_about_on_the_bridge_of_the_config_alone(why: Command, bridge: DummyBridge) -> None:
    """Megaflows of other bridges in the same datapath were told as if they were of the service."""
    bridge.ovs.vsctl("add-br", "br-other", "--", "set", "Bridge", "br-other", "datapath_type=dummy")
    bridge.ovs.vsctl("add-port", "br-other", "x0", "--", "set", "Interface", "x0", "type=dummy")
    bridge.send("x0", [udp_packet(CLIENTS[5])])
    _send(bridge)
    (row,) = _answer(why, "--src", CLIENTS[5])["megaflows"]
    assert row["in_port"] == "p0"
    assert _answer(why, "--ufid", row["ufid"][:8])["megaflows"] == [row]
    assert len(_answer(why, "--service", "dns")["megaflows"]) > 1
    (ufid,) = re.findall(r"ufid:(\S+), .*in_port\(x0\)", bridge.ovs.appctl("dpctl/dump-flows", "-m"))
    assert [row["in_port"] for row in _answer(why, "--ufid", ufid)["megaflows"]] == ["x0"]


def test_with_offload_on_megaflows_that_do_not_come_back_are_still_explained(why: Command, bridge: DummyBridge) -> None:
    """The log has the levels of before; what a killed run left is undone and told."""
    bridge.ovs.vsctl("set", "Open_vSwitch", ".", "other_config:hw-offload=true")
    _send(bridge)
    before = bridge.ovs.appctl("vlog/list")
    kill_listener(bridge.ovs, "SIGKILL")
    document = _answer(why, "--listen", "100ms", "--reinstall")
    assert any("an earlier, killed run" in note for note in document["notes"])
    assert {reason["cause"] for row in document["megaflows"] for reason in row["reasons"]} == {"software-datapath"}
    assert any("no packet came" in note for note in document["notes"])
    assert bridge.ovs.appctl("vlog/list") == before


FOREIGN = "table=0,priority=3000,udp,nw_src=0.0.0.0/0.0.128.0,nw_tos=32,tp_src=0x10/0xfff0"


def test_a_foreign_flow_is_named_and_the_commands_for_it_work(why: Command, bridge: DummyBridge) -> None:
    bridge.add_flows(f"{FOREIGN} actions=drop\n")
    bridge.settle(removed_s=0)

    def reasons() -> list[dict[str, Any]]:
        _send(bridge)
        rows = _answer(why)["megaflows"]
        assert rows
        return [reason for row in rows for reason in row["reasons"] if reason["cause"] == "unwildcarded"]

    reason, *_ = reasons()
    assert "nw_tos 0xfc" in reason["text"]
    assert reason["evidence"][0].startswith("foreign flow on ovsbr1: priority=3000,udp,")
    look, _owner, delete, again = reason["fix"]
    assert "nw_tos=32" in _typed(look)
    _typed(delete)
    assert "nw_tos=32" not in _typed(look)
    _typed(again)
    bridge.ovs.appctl("revalidator/wait")
    assert reasons() == []
