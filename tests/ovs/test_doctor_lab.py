"""doctor in a lab: devices of its namespaces, backends that can be asked, a restart that real packets survive."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest

from tests.ovs.lab_support import VIP_MAC, balancer, running_lab, service
from xenoovs.cli.doctor import Question
from xenoovs.cli.restart_ovs import restart, restart_order
from xenoovs.engine.change import PlanOptions
from xenoovs.engine.engine import Engine
from xenoovs.evidence.target import THIS_HOST
from xenoovs.judge.doctor.check import CheckResult, CheckState
from xenoovs.judge.doctor.examine import BACKEND_CHECKS, HOST_CHECKS, examine
from xenoovs.lab.host import LabNetns
from xenoovs.lab.lab import Lab
from xenoovs.lab.target import OpenedLab
from xenoovs.lab.traffic import Load, send
from xenoovs.model.address import Family
from xenoovs.model.balancer import Claim, PortRange, Protocol
from xenoovs.openflow.flow import FOREIGN
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.management import ManagementSwitch
from xenoovs.switch.process import run

pytestmark = pytest.mark.ovs

DNS = service(
    "dns",
    Claim(frozenset({Family.IPV4}), (ip_address("10.3.10.45"),), Protocol.UDP, (PortRange(53, 53),)),
    vip_mac=VIP_MAC,
)
CONFIG = balancer(DNS)


@pytest.fixture(scope="module")
def question(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Question]:
    """A lab with the flows of the config."""
    with running_lab("doctor", CONFIG, tmp_path_factory.mktemp("lab")) as lab:
        switch = ManagementSwitch(Endpoint(lab.ovs.db, lab.ovs.directory))
        switch.apply("ovsbr1", Engine(switch).plan(CONFIG, PlanOptions()).bundle)
        yield Question(CONFIG, switch, OpenedLab(lab), target=THIS_HOST, backends=True)


def _lab(question: Question) -> Lab:
    assert isinstance(question.lab, OpenedLab)
    return question.lab.lab


def _rows(question: Question) -> dict[tuple[str, str | None], CheckResult]:
    rows = examine(question.read(), checks=(*HOST_CHECKS, *BACKEND_CHECKS))
    return {(row.name, row.subject): row for row in rows}


def test_a_lab_lacks_nothing_but_hardware(question: Question) -> None:
    rows = _rows(question)
    assert {key for key, row in rows.items() if row.state is CheckState.WRONG} == {
        ("hw-offload", None),
        ("datapath", "ovsbr1"),
    }
    assert not [key for key, row in rows.items() if row.state is CheckState.UNKNOWN]


def test_devices_are_those_of_the_namespace_of_ovs_vswitchd(question: Question) -> None:
    assert _rows(question)["MTU", "p0"].seen == "1500"
    assert not (Path("/sys/class/net") / "p0").exists()


@pytest.mark.parametrize(("key", "bad", "good"), [("arp_ignore", 0, 1), ("arp_announce", 0, 2), ("rp_filter", 1, 0)])
def test_a_wrong_setting_of_a_backend_is_found(question: Question, key: str, bad: int, good: int) -> None:
    netns, machine = LabNetns(), _lab(question).topology.machines[0]
    netns.write_sysctls(machine.namespace, [f"ipv4/conf/all/{key}"], value=bad)
    try:
        rows = _rows(question)
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
        row = _rows(question)["VIP on lo", f"{machine.names[0]} 10.3.10.45"]
    finally:
        netns.batch(["addr add 10.3.10.45/32 dev lo"], namespace=machine.namespace)
    assert (row.state, str(row.fix)) == (CheckState.WRONG, "ip address add 10.3.10.45/32 dev lo")


def test_a_port_that_is_down_is_found(question: Question) -> None:
    lab, netns = _lab(question), LabNetns()
    netns.batch(["link set dev p1 down"], namespace=lab.topology.switch_namespace)
    try:
        row = _rows(question)["port up", "p1"]
    finally:
        netns.batch(["link set dev p1 up"], namespace=lab.topology.switch_namespace)
    assert (row.state, str(row.fix)) == (CheckState.WRONG, "ip link set dev p1 up")


def test_after_a_restart_every_packet_is_answered(question: Question) -> None:
    ovs = _lab(question).ovs
    run(["ovs-ofctl", "add-flow", f"unix:{ovs.directory}/ovsbr1.mgmt", "priority=5,arp,actions=drop"], env=ovs.env)
    before = {seen.flow for seen in question.switch.dump_flows("ovsbr1")}
    done = restart(question.switch, question.lab, restart_order(question.endpoint, question.lab))
    assert done.flows["ovsbr1"] == len(before) + 1
    assert {seen.flow for seen in question.switch.dump_flows("ovsbr1")} == before
    assert question.switch.count_flows("ovsbr1", only=FOREIGN) == 1
    (traffic,) = send(_lab(question), CONFIG, load=Load(clients=40, packets=80)).services
    assert traffic.lost == 0
