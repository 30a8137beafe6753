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

from tests.command_line import CommandLine
from tests.ovs.dummy import DummyBridge, DummyOvs, ofctl
from tests.ovs.killed import kill_listener
from tests.ovs.lab_support import VIP_MAC, balancer, running_lab, service
from xenoovs.cli.doctor import Question
from xenoovs.cli.restart_ovs import restart, restart_order
from xenoovs.datapath.fact import Unknown
from xenoovs.engine.change import PlanOptions
from xenoovs.engine.engine import Engine
from xenoovs.evidence.command_target import THIS_HOST
from xenoovs.judge.doctor.check import CheckResult, CheckState
from xenoovs.judge.doctor.examine import BACKEND_CHECKS, HOST_CHECKS, examine
from xenoovs.lab.host import LabNetns
from xenoovs.lab.lab import Lab
from xenoovs.lab.private_ovs import Datapath, start_vswitchd, stop_process
from xenoovs.lab.traffic import Load, send
from xenoovs.model.address import Family
from xenoovs.model.balancer import Claim, PortRange, Protocol
from xenoovs.openflow.flow import FOREIGN
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.host_facts import gather
from xenoovs.switch.management import ManagementSwitch


def _rows(xenoovs: CommandLine, *arguments: object, status: int) -> dict[tuple[str, str | None], dict[str, Any]]:
    said = xenoovs("doctor", *arguments, "-o", "json")
    assert (said.status, said.err) == (status, "")
    return {(row["check"], row["subject"]): row for row in json.loads(said.out)["checks"]}


@pytest.fixture
def two_ports(own_ovs: DummyOvs) -> Any:
    with own_ovs.bridge() as made:
        yield made


def test_what_a_dummy_bridge_looks_like(xenoovs: CommandLine, two_ports: DummyBridge, config: Path) -> None:
    rows = _rows(xenoovs, config, "--db", two_ports.ovs.db, status=2)
    wrong = {key for key, row in rows.items() if row["state"] == "wrong"}
    assert wrong == {("hw-offload", None), ("datapath", "ovsbr1")}
    assert rows["Open vSwitch runs", None]["seen"].startswith("version ")
    assert rows["hw-offload in effect", None]["seen"].startswith("off, as set")
    rows = _rows(xenoovs, "--db", two_ports.ovs.db, status=2)
    assert {subject for name, subject in rows if name == "port works"} == {"p0", "p1"}


def test_fix_sets_what_is_safe_and_it_takes_effect(xenoovs: CommandLine, two_ports: DummyBridge, config: Path) -> None:
    """It asks before, and restarts no Open vSwitch that is no service."""
    fix = ("doctor", config, "--db", two_ports.ovs.db, "--fix")
    said = xenoovs(*fix, "--restart-ovs", "--yes")
    assert (said.status, "is no service of this host and was not restarted" in said.err) == (1, True)
    assert xenoovs(*fix).status == 64
    assert two_ports.ovs.vsctl("get", "Open_vSwitch", ".", "other_config") == '{max-idle="600000"}'
    said = xenoovs(*fix, "--yes")
    assert said.status == 2
    assert f"done: ovs-vsctl --db={two_ports.ovs.db} set Open_vSwitch . other_config:hw-offload=true" in said.out
    assert two_ports.ovs.vsctl("get", "Open_vSwitch", ".", "other_config:hw-offload") == '"true"'
    rows = _rows(xenoovs, config, "--db", two_ports.ovs.db, status=2)
    assert rows["hw-offload in effect", None]["seen"].startswith("on, but turned on while ports existed")


def test_the_provider_of_dummy_ports_has_no_hardware(
    xenoovs: CommandLine, two_ports: DummyBridge, config: Path
) -> None:
    two_ports.ovs.vsctl("set", "Open_vSwitch", ".", "other_config:hw-offload=true")
    rows = _rows(xenoovs, config, "--db", two_ports.ovs.db, status=2)
    assert rows["offload provider", "p0"]["seen"].startswith("dummy: ")


def test_a_fix_that_fails_is_told_and_the_others_are_done(
    xenoovs: CommandLine, two_ports: DummyBridge, config: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    two_ports.ovs.vsctl("set", "Open_vSwitch", ".", "other_config:max-idle=1000")
    real = shutil.which("ovs-appctl")
    script = tmp_path / "bin" / "ovs-appctl"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\n[ "$1" = revalidator/purge ] && {{ echo no >&2; exit 1; }}\nexec {real} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")
    said = xenoovs("doctor", config, "--db", two_ports.ovs.db, "--fix", "--yes")
    assert said.status == 1
    assert f"failed: ovs-vsctl --db={two_ports.ovs.db} set Open_vSwitch . other_config:hw-offload=true" in said.out
    assert f"done: ovs-vsctl --db={two_ports.ovs.db} remove Open_vSwitch . other_config max-idle" in said.out


def test_a_setting_that_is_too_late_is_found(xenoovs: CommandLine, two_ports: DummyBridge, config: Path) -> None:
    """hw-offload cannot be turned off while ovs-vswitchd runs."""
    two_ports.ovs.vsctl("set", "Open_vSwitch", ".", "other_config:hw-offload=true")
    two_ports.ovs.vsctl("set", "Open_vSwitch", ".", "other_config:hw-offload=false")
    row = _rows(xenoovs, config, "--db", two_ports.ovs.db, status=2)["hw-offload in effect", None]
    assert row["state"] == "wrong"
    assert row["seen"].startswith("on until the next restart")


def test_offload_that_was_on_at_the_start_is_in_effect(
    xenoovs: CommandLine, two_ports: DummyBridge, config: Path
) -> None:
    two_ports.ovs.vsctl("set", "Open_vSwitch", ".", "other_config:hw-offload=true")
    stop_process(two_ports.ovs.pids()[0])
    start_vswitchd(two_ports.ovs, datapath=Datapath.DUMMY)
    row = _rows(xenoovs, config, "--db", two_ports.ovs.db, status=2)["hw-offload in effect", None]
    assert (row["state"], row["seen"][:3]) == ("ok", "on:")


def test_levels_that_a_killed_why_left_raised_are_told_and_put_back(
    xenoovs: CommandLine, two_ports: DummyBridge, config: Path
) -> None:
    before = two_ports.ovs.appctl("vlog/list")
    kill_listener(two_ports.ovs, "SIGKILL")
    assert two_ports.ovs.appctl("vlog/list") != before
    rows = _rows(xenoovs, config, "--db", two_ports.ovs.db, status=2)
    assert (rows["leftovers", None]["state"], rows["leftovers", None]["safe_to_fix"]) == ("wrong", True)
    xenoovs("doctor", config, "--db", two_ports.ovs.db, "--fix", "--yes")
    assert two_ports.ovs.appctl("vlog/list") == before
    rows = _rows(xenoovs, config, "--db", two_ports.ovs.db, status=2)
    assert rows["leftovers", None]["state"] == "ok"


def test_a_foreign_flow_is_told_with_its_cost(xenoovs: CommandLine, two_ports: DummyBridge, config: Path) -> None:
    xenoovs("apply", config, "--db", two_ports.ovs.db, "--yes")
    two_ports.add_flows("priority=5000,ip,nw_src=203.0.113.9 actions=drop\n")
    row = _rows(xenoovs, config, "--db", two_ports.ovs.db, status=2)["foreign flows", "ovsbr1"]
    assert row["state"] == "wrong"
    assert "hardware entries instead of 5" in row["seen"]
    assert row["safe_to_fix"] is False


def test_a_port_on_another_bridge(xenoovs: CommandLine, own_ovs: DummyOvs, config: Path) -> None:
    with own_ovs.bridge("ovsbr1", ports=("p0",)), own_ovs.bridge("ovsbr2", ports=("p1",)):
        row = _rows(xenoovs, config, "--db", own_ovs.ovs.db, status=2)["port on bridge", "p1"]
    assert (
        row["fix"]
        == f"ovs-vsctl --db={own_ovs.ovs.db} del-port ovsbr2 p1 -- add-port ovsbr1 p1 -- set Interface p1 type=dummy"
    )


def test_two_silent_controllers_are_not_called_wrong(
    xenoovs: CommandLine, two_ports: DummyBridge, config: Path
) -> None:
    two_ports.ovs.vsctl("set-controller", "ovsbr1", "tcp:127.0.0.1:6653", "tcp:127.0.0.1:6654")
    row = _rows(xenoovs, config, "--db", two_ports.ovs.db, status=2)["controllers", "ovsbr1"]
    assert (row["state"], row["seen"][:28]) == ("unknown", "2 are set, 0 may write now: ")


def test_a_dead_ovs_vswitchd(xenoovs: CommandLine, own_ovs: DummyOvs, config: Path) -> None:
    stop_process(own_ovs.ovs.pids()[0])
    rows = _rows(xenoovs, config, "--db", own_ovs.ovs.db, status=2)
    assert rows["Open vSwitch runs", None]["state"] == "wrong"
    assert rows["Open vSwitch runs", None]["fix"].startswith("# start the ovs-vswitchd of ")


def test_no_open_vswitch_at_all_is_one_sentence(
    xenoovs: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    said = xenoovs("doctor", "--db", f"unix:{tmp_path}/db.sock")
    assert (said.status, said.out) == (1, "")
    assert said.err.startswith("error: there is no Open vSwitch on this host")
    assert said.err.count("\n") == 1
    monkeypatch.undo()
    said = xenoovs("doctor", "--db", "tcp:127.0.0.1:9")
    assert (said.status, "cannot reach Open vSwitch at tcp:127.0.0.1:9" in said.err) == (1, True)


def test_programs_that_are_missing_make_rows_unknown(
    two_ports: DummyBridge, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for program in ("ovs-vsctl", "ovs-appctl"):
        (tmp_path / program).symlink_to(shutil.which(program) or "")
    monkeypatch.setenv("PATH", str(tmp_path))
    facts = gather(Endpoint(two_ports.ovs.db, two_ports.ovs.directory))
    assert facts.devices == Unknown("ip is not installed")
    assert not isinstance(facts.database, Unknown)
    assert not isinstance(facts.daemon, Unknown)


DNS = service(
    "dns",
    Claim(frozenset({Family.IPV4}), (ip_address("10.3.10.45"),), Protocol.UDP, (PortRange(53, 53),)),
    vip_mac=VIP_MAC,
)
IN_LAB = balancer(DNS)


@pytest.fixture(scope="module")
def question(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Question]:
    """A lab with the flows of the config."""
    with running_lab("doctor", IN_LAB, tmp_path_factory.mktemp("lab")) as lab:
        switch = ManagementSwitch(Endpoint(lab.ovs.db, lab.ovs.directory))
        switch.apply("ovsbr1", Engine(switch).plan(IN_LAB, PlanOptions()).bundle)
        yield Question(IN_LAB, switch, lab, target=THIS_HOST, backends=True)


def _lab(question: Question) -> Lab:
    assert isinstance(question.lab, Lab)
    return question.lab


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


def test_devices_are_those_of_the_namespace_of_ovs_vswitchd(question: Question) -> None:
    assert _lab_rows(question)["MTU", "p0"].seen == "1500"
    assert not (Path("/sys/class/net") / "p0").exists()


@pytest.mark.parametrize(("key", "bad", "good"), [("arp_ignore", 0, 1), ("arp_announce", 0, 2), ("rp_filter", 1, 0)])
def test_a_wrong_setting_of_a_backend_is_found(question: Question, key: str, bad: int, good: int) -> None:
    netns, machine = LabNetns(), _lab(question).topology.machines[0]
    netns.write_sysctls(machine.namespace, [f"ipv4/conf/all/{key}"], value=bad)
    try:
        rows = _lab_rows(question)
    finally:
        netns.write_sysctls(machine.namespace, [f"ipv4/conf/all/{key}"], value=good)
    states = {name: rows[key, name].state for name in ("even", "odd")}
    assert states == {
        machine.names[0]: CheckState.WRONG,
        "odd" if machine.names[0] == "even" else "even": CheckState.OK,
    }


def test_a_vip_that_is_missing_is_found(question: Question) -> None:
    netns, machine = LabNetns(), _lab(question).topology.machines[0]
    netns.batch(["addr del 10.3.10.45/32 dev lo"], namespace=machine.namespace)
    try:
        row = _lab_rows(question)["VIP on lo", f"{machine.names[0]} 10.3.10.45"]
    finally:
        netns.batch(["addr add 10.3.10.45/32 dev lo"], namespace=machine.namespace)
    assert (row.state, str(row.fix)) == (CheckState.WRONG, "ip address add 10.3.10.45/32 dev lo")


def test_a_port_that_is_down_is_found(question: Question) -> None:
    lab, netns = _lab(question), LabNetns()
    netns.batch(["link set dev p1 down"], namespace=lab.topology.switch_namespace)
    try:
        row = _lab_rows(question)["port up", "p1"]
    finally:
        netns.batch(["link set dev p1 up"], namespace=lab.topology.switch_namespace)
    assert (row.state, str(row.fix)) == (CheckState.WRONG, "ip link set dev p1 up")


def test_after_a_restart_every_packet_is_answered(question: Question) -> None:
    ovs = _lab(question).ovs
    ofctl(ovs, "add-flow", f"unix:{ovs.directory}/ovsbr1.mgmt", "priority=5,arp,actions=drop")
    before = {seen.flow for seen in question.switch.dump_flows("ovsbr1")}
    done = restart(question.switch, question.lab, restart_order(question.endpoint, question.lab))
    assert done.flows["ovsbr1"] == len(before) + 1
    assert {seen.flow for seen in question.switch.dump_flows("ovsbr1")} == before
    assert question.switch.count_flows("ovsbr1", only=FOREIGN) == 1
    (traffic,) = send(_lab(question), IN_LAB, load=Load(clients=40, packets=80)).services
    assert traffic.lost == 0
