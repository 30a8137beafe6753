"""doctor on a real ovs-vswitchd: what it sees, what it corrects, and what it leaves alone; and backends in a lab."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import Command, CommandLine
from tests.ovs.dummy import DummyBridge, DummyOvs
from tests.ovs.lab_support import VIP_MAC, balancer, running_lab, service
from tests.ovs.test_vlog import kill_listener
from tests.unit.balancer import claim
from xenoovs.datapath.fact import Unknown
from xenoovs.diagnosis.host import Question
from xenoovs.engine.change import PlanOptions
from xenoovs.engine.engine import Engine
from xenoovs.evidence.command_target import THIS_HOST
from xenoovs.judge.doctor.check import CheckResult, CheckState
from xenoovs.judge.doctor.examine import BACKEND_CHECKS, HOST_CHECKS, examine
from xenoovs.lab.host import LabNetns
from xenoovs.lab.lab import Lab
from xenoovs.lab.private_ovs import Datapath, start_vswitchd, stop_process
from xenoovs.model.balancer import Protocol
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.host_facts import gather
from xenoovs.switch.management import ManagementSwitch


def _rows(run: Command, *arguments: object) -> dict[tuple[str, str | None], dict[str, Any]]:
    said = run("doctor", *arguments, "-o", "json")
    assert (said.status, said.err) == (2, "")
    return {(row["check"], row["subject"]): row for row in json.loads(said.out)["checks"]}


@pytest.fixture
def bridge(own_ovs: DummyOvs) -> Iterator[DummyBridge]:
    """On an Open vSwitch whose offload, once it is on, ends with it."""
    with own_ovs.bridge() as made:
        yield made


def test_what_a_dummy_bridge_looks_like(on_bridge: Command, config: Path) -> None:
    rows = _rows(on_bridge, config)
    wrong = {key for key, row in rows.items() if row["state"] == "wrong"}
    assert wrong == {("hw-offload", None), ("datapath", "ovsbr1")}
    assert rows["Open vSwitch runs", None]["seen"].startswith("version ")
    assert rows["hw-offload in effect", None]["seen"].startswith("off, as set")
    rows = _rows(on_bridge)
    assert {subject for name, subject in rows if name == "port works"} == {"p0", "p1"}


def test_fix_sets_what_is_safe_and_it_takes_effect(on_bridge: Command, bridge: DummyBridge, config: Path) -> None:
    """It asks before."""
    fix = ("doctor", config, "--fix")
    assert on_bridge(*fix).status == 64
    assert bridge.ovs.vsctl("get", "Open_vSwitch", ".", "other_config") == '{max-idle="600000"}'
    said = on_bridge(*fix, "--yes")
    assert said.status == 2
    assert f"done: ovs-vsctl --db={bridge.ovs.db} set Open_vSwitch . other_config:hw-offload=true" in said.out
    assert bridge.ovs.vsctl("get", "Open_vSwitch", ".", "other_config:hw-offload") == '"true"'
    rows = _rows(on_bridge, config)
    assert rows["hw-offload in effect", None]["seen"].startswith("on, but turned on while ports existed")


def test_the_provider_of_dummy_ports_has_no_hardware(on_bridge: Command, bridge: DummyBridge, config: Path) -> None:
    bridge.ovs.vsctl("set", "Open_vSwitch", ".", "other_config:hw-offload=true")
    rows = _rows(on_bridge, config)
    assert rows["offload provider", "p0"]["seen"].startswith("dummy: ")


def test_a_fix_that_fails_is_told_and_the_others_are_done(
    on_bridge: Command, bridge: DummyBridge, config: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bridge.ovs.vsctl("set", "Open_vSwitch", ".", "other_config:max-idle=1000")
    real = shutil.which("ovs-appctl")
    script = tmp_path / "bin" / "ovs-appctl"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\n[ "$1" = revalidator/purge ] && {{ echo no >&2; exit 1; }}\nexec {real} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")
    said = on_bridge("doctor", config, "--fix", "--yes")
    assert said.status == 1
    assert f"failed: ovs-vsctl --db={bridge.ovs.db} set Open_vSwitch . other_config:hw-offload=true" in said.out
    assert f"done: ovs-vsctl --db={bridge.ovs.db} remove Open_vSwitch . other_config max-idle" in said.out


def test_whether_offload_is_in_effect_is_told_by_what_was_set_when(
    on_bridge: Command, bridge: DummyBridge, config: Path
) -> None:
    """hw-offload cannot be turned off while ovs-vswitchd runs."""

    def seen() -> tuple[str, str]:
        row = _rows(on_bridge, config)["hw-offload in effect", None]
        return row["state"], row["seen"].partition(":")[0].partition(",")[0]

    for setting in ("true", "false"):
        bridge.ovs.vsctl("set", "Open_vSwitch", ".", f"other_config:hw-offload={setting}")
    assert seen() == ("wrong", "on until the next restart")
    bridge.ovs.vsctl("set", "Open_vSwitch", ".", "other_config:hw-offload=true")
    stop_process(bridge.ovs.pids()[0])
    start_vswitchd(bridge.ovs, datapath=Datapath.DUMMY)
    assert seen() == ("ok", "on")


def test_levels_that_a_killed_why_left_raised_are_told_and_put_back(
    on_bridge: Command, bridge: DummyBridge, config: Path
) -> None:
    before = bridge.ovs.appctl("vlog/list")
    kill_listener(bridge.ovs, "SIGKILL")
    assert bridge.ovs.appctl("vlog/list") != before
    rows = _rows(on_bridge, config)
    assert (rows["leftovers", None]["state"], rows["leftovers", None]["safe_to_fix"]) == ("wrong", True)
    on_bridge("doctor", config, "--fix", "--yes")
    assert bridge.ovs.appctl("vlog/list") == before
    rows = _rows(on_bridge, config)
    assert rows["leftovers", None]["state"] == "ok"


def test_a_dead_ovs_vswitchd(xenoovs: CommandLine, own_ovs: DummyOvs, config: Path) -> None:
    stop_process(own_ovs.ovs.pids()[0])
    rows = _rows(xenoovs, config, "--db", own_ovs.ovs.db)
    assert rows["Open vSwitch runs", None]["state"] == "wrong"
    assert rows["Open vSwitch runs", None]["fix"].startswith("# start the ovs-vswitchd of ")


def test_programs_that_are_missing_make_rows_unknown(
    bridge: DummyBridge, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for program in ("ovs-vsctl", "ovs-appctl"):
        (tmp_path / program).symlink_to(shutil.which(program) or "")
    monkeypatch.setenv("PATH", str(tmp_path))
    facts = gather(Endpoint(bridge.ovs.db, bridge.ovs.directory))
    assert facts.devices == Unknown("ip is not installed")
    assert not isinstance(facts.database, Unknown)
    assert not isinstance(facts.daemon, Unknown)


DNS = claim(ip_address("10.3.10.45"), protocol=Protocol.UDP, ports=[(53, 53)])
IN_LAB = balancer(service("dns", DNS, vip_mac=VIP_MAC))


@pytest.fixture(scope="module")
def question(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Question]:
    """A lab with the flows of the config."""
    with running_lab("doctor", IN_LAB, tmp_path_factory.mktemp("lab")) as lab:
        switch = ManagementSwitch(Endpoint(lab.ovs.db, lab.ovs.directory))
        switch.apply("ovsbr1", Engine(switch).plan(IN_LAB, PlanOptions()).bundle)
        yield Question(IN_LAB, switch, lab, target=THIS_HOST, backends=True)


def _lab_rows(question: Question) -> dict[tuple[str, str | None], CheckResult]:
    rows = examine(question.read(), checks=(*HOST_CHECKS, *BACKEND_CHECKS))
    return {(row.name, row.subject): row for row in rows}


def test_a_lab_lacks_nothing_but_hardware(question: Question) -> None:
    rows = _lab_rows(question)
    assert {key for key, row in rows.items() if row.state is CheckState.WRONG} == {
        ("hw-offload", None),
        ("datapath", "ovsbr1"),
    }
    assert not [key for key, row in rows.items() if row.state is CheckState.UNKNOWN]
    # Devices are those of the namespace of ovs-vswitchd.
    assert rows["MTU", "p0"].seen == "1500"
    assert not (Path("/sys/class/net") / "p0").exists()


def test_what_is_wrong_at_one_backend_or_port_is_found_there(question: Question) -> None:
    assert isinstance(question.lab, Lab)
    netns, topology = LabNetns(), question.lab.topology
    machine = topology.machines[0]
    (other,) = {"even", "odd"} - {machine.names[0]}
    netns.write_sysctls(machine.namespace, ["ipv4/conf/all/arp_ignore"], value=0)
    netns.batch(["addr del 10.3.10.45/32 dev lo"], namespace=machine.namespace)
    netns.batch(["link set dev p1 down"], namespace=topology.switch_namespace)
    try:
        rows = _lab_rows(question)
    finally:
        netns.write_sysctls(machine.namespace, ["ipv4/conf/all/arp_ignore"], value=1)
        netns.batch(["addr add 10.3.10.45/32 dev lo"], namespace=machine.namespace)
        netns.batch(["link set dev p1 up"], namespace=topology.switch_namespace)
    assert rows["arp_ignore", machine.names[0]].state is CheckState.WRONG
    assert (rows["VIP on lo", f"{other} 10.3.10.45"].state, rows["arp_ignore", other].state) == (CheckState.OK,) * 2
    vip, port = rows["VIP on lo", f"{machine.names[0]} 10.3.10.45"], rows["port up", "p1"]
    assert (vip.state, str(vip.fix)) == (CheckState.WRONG, "ip address add 10.3.10.45/32 dev lo")
    assert (port.state, str(port.fix)) == (CheckState.WRONG, "ip link set dev p1 up")
