"""`xenoovs why` against a real ovs-vswitchd whose datapath is software: reasons, selections, exit statuses."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import CommandLine, CommandResult
from tests.ovs.dummy import DummyBridge, DummyOvs, tc_module, udp_packet

CLIENTS = tuple(f"198.18.0.{number}" for number in range(16))


@pytest.fixture
def dummy_ovs(own_ovs: DummyOvs) -> DummyOvs:
    """An OVS for each test: some turn offload on, and that ends only with the process.

    With offload on, 4.0.0 dies of the second dummy datapath, which the bridge of the next test would make: a static
    `once` of dummy_allocate_flow_mark() in lib/dpif-offload-dummy.c makes the pool of the first one only.
    """
    return own_ovs


class _Why:
    """A bridge with the flows of a config, and the question about it."""

    def __init__(self, run: CommandLine, bridge: DummyBridge, config: Path) -> None:
        self._run, self._bridge, self._config = run, bridge, config
        assert run("apply", config, "--yes", *self._db).status == 0
        bridge.settle(removed_s=0)

    @property
    def _db(self) -> Sequence[str]:
        return ("--db", self._bridge.ovs.db)

    def send(self) -> None:
        self._bridge.send("p0", [udp_packet(client) for client in CLIENTS])
        self._bridge.megaflows()

    def __call__(self, *options: str) -> CommandResult:
        return self._run("why", self._config, "--listen", "0", *options, *self._db)

    def doctor(self, *options: str) -> CommandResult:
        return self._run("doctor", self._config, *options, *self._db)

    def json(self, *options: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self("-o", "json", *options).out)
        return document


@pytest.fixture
def why(xenoovs: CommandLine, bridge: DummyBridge, config: Path) -> _Why:
    return _Why(xenoovs, bridge, config)


def test_before_traffic_nothing_is_seen(why: _Why) -> None:
    said = why()
    assert (said.status, said.err) == (3, "")
    assert "no traffic yet" in said.out
    assert "not on the bridge" not in said.out


@pytest.mark.parametrize("command", ["why", "verify-offload"])
def test_flows_that_are_not_on_the_bridge_are_not_called_idle_alone(
    command: str, xenoovs: CommandLine, bridge: DummyBridge, config: Path
) -> None:
    """Before `apply` both said that there was no traffic yet, and to send some."""
    said = xenoovs(command, config, "--db", bridge.ovs.db)
    assert (said.status, said.err) == (3, "")
    assert re.search(r"(\d+) of \1 flows of the config are missing on the bridge; see `xenoovs plan\b", said.out)


def test_a_software_datapath_is_named_as_the_one_reason(why: _Why) -> None:
    why.send()
    document = why.json()
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


def test_a_command_that_mends_reaches_this_open_vswitch_from_any_shell(why: _Why, bridge: DummyBridge) -> None:
    """Copied from a terminal without OVS_RUNDIR, a command went to the Open vSwitch of the host."""
    why.send()
    row = json.loads(why.doctor("-o", "json").out)["checks"]
    (fix,) = [check["fix"] for check in row if check["check"] == "hw-offload"]
    try:
        done = subprocess.run(["sh", "-c", fix], env={"PATH": os.environ["PATH"]}, check=True, capture_output=True)
        assert done.stderr == b""
        value = bridge.ovs.vsctl("get", "Open_vSwitch", ".", "other_config:hw-offload")
        assert value.strip() == '"true"'
    finally:
        bridge.ovs.vsctl("remove", "Open_vSwitch", ".", "other_config", "hw-offload")


def test_one_client_one_megaflow_one_service(why: _Why) -> None:
    why.send()
    (row,) = why.json("--src", CLIENTS[5])["megaflows"]
    assert why.json("--ufid", row["ufid"][:8])["megaflows"] == [row]
    assert len(why.json("--service", "dns")["megaflows"]) > 1


def test_a_source_is_asked_about_on_the_bridge_of_the_config_alone(why: _Why, bridge: DummyBridge) -> None:
    """Megaflows of other bridges in the same datapath were told as if they were of the service."""
    bridge.ovs.vsctl("add-br", "br-other", "--", "set", "Bridge", "br-other", "datapath_type=dummy")
    bridge.ovs.vsctl("add-port", "br-other", "x0", "--", "set", "Interface", "x0", "type=dummy")
    try:
        bridge.send("x0", [udp_packet(CLIENTS[5])])
        why.send()
        assert {row["in_port"] for row in why.json("--src", CLIENTS[5])["megaflows"]} == {"p0"}
        (ufid,) = re.findall(r"ufid:(\S+), .*in_port\(x0\)", bridge.ovs.appctl("dpctl/dump-flows", "-m"))
        assert [row["in_port"] for row in why.json("--ufid", ufid)["megaflows"]] == ["x0"]
    finally:
        bridge.ovs.vsctl("del-br", "br-other")


def test_wrong_usage(why: _Why) -> None:
    for options, told in (
        (("--service", "web"), "the config has dns"),
        (("--src", "198.18.0"), "not an IPv4 or IPv6 address"),
        (("--listen", "-1"), "--listen"),
    ):
        said = why(*options)
        assert (said.status, told in said.err) == (64, True)


def test_with_offload_on_megaflows_that_do_not_come_back_are_still_explained(why: _Why, bridge: DummyBridge) -> None:
    """The log has the levels of before."""
    bridge.ovs.vsctl("set", "Open_vSwitch", ".", "other_config:hw-offload=true")
    try:
        why.send()
        before = bridge.ovs.appctl("vlog/list")
        document = why.json("--listen", "100ms", "--reinstall")
        assert {reason["cause"] for row in document["megaflows"] for reason in row["reasons"]} == {"software-datapath"}
        assert any("no packet came" in note for note in document["notes"])
        assert bridge.ovs.appctl("vlog/list") == before
    finally:
        bridge.ovs.vsctl("remove", "Open_vSwitch", ".", "other_config", "hw-offload")


def test_what_a_killed_run_left_is_undone_and_told(why: _Why, bridge: DummyBridge) -> None:
    why.send()
    before = bridge.ovs.appctl("vlog/list")
    name = tc_module(bridge.ovs)
    module = next(line.split() for line in before.splitlines() if line.split()[:1] == [name])
    started = _process(bridge)
    note = {
        **started,
        "modules": [{"name": name, "file": module[3], "is_rate_limited": True}],
    }
    (bridge.ovs.directory / "xenoovs-vlog.json").write_text(json.dumps(note))
    bridge.ovs.appctl("vlog/set", f"{name}:file:dbg")
    assert any("an earlier, killed run" in text for text in why.json()["notes"])
    assert bridge.ovs.appctl("vlog/list") == before


def _process(bridge: DummyBridge) -> dict[str, int]:
    pid = int((bridge.ovs.directory / "ovs-vswitchd.pid").read_text())
    return {"pid": pid, "started": int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])}


FOREIGN = "table=0,priority=3000,udp,nw_src=0.0.0.0/0.0.128.0,nw_tos=32,tp_src=0x10/0xfff0"


def test_a_foreign_flow_is_named_and_the_commands_for_it_work(why: _Why, bridge: DummyBridge) -> None:
    bridge.add_flows(f"{FOREIGN} actions=drop\n")
    bridge.settle(removed_s=0)

    def reasons() -> list[dict[str, Any]]:
        why.send()
        rows = why.json()["megaflows"]
        assert rows
        return [reason for row in rows for reason in row["reasons"] if reason["cause"] == "unwildcarded"]

    def typed(command: str) -> str:
        """What a command prints that is copied to a shell which knows nothing of this Open vSwitch."""
        env = {"PATH": os.environ["PATH"]}
        return subprocess.run(["sh", "-c", command], env=env, check=True, capture_output=True).stdout.decode()

    reason, *_ = reasons()
    assert "nw_tos 0xfc" in reason["text"]
    assert reason["evidence"][0].startswith("foreign flow on ovsbr1: priority=3000,udp,")
    look, _owner, delete, again = reason["fix"]
    assert "nw_tos=32" in typed(look)
    typed(delete)
    assert "nw_tos=32" not in typed(look)
    typed(again)
    bridge.ovs.appctl("revalidator/wait")
    assert reasons() == []
