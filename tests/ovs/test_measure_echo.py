"""The echo experiment in a lab: messages go through the bridge to the backend, and nothing stays of them."""

from __future__ import annotations

from functools import partial
from ipaddress import ip_address
from pathlib import Path

import pytest

from tests.command_line import CommandLine
from tests.ovs.dummy import ofctl
from tests.ovs.lab_support import BACK, balancer, lab_fixture, running_lab, service, set_flows
from tests.patience import eventually
from xenoovs.errors import MeasureError
from xenoovs.lab.host import processes_in
from xenoovs.lab.lab import DIRECTORY_VARIABLE, Lab
from xenoovs.measure import echo
from xenoovs.measure.bed import Bed
from xenoovs.measure.echo import echo_experiment
from xenoovs.measure.machines_bed import open_lab_bed
from xenoovs.measure.schedule import Measurement
from xenoovs.model.address import Family
from xenoovs.model.balancer import Claim, OtherTraffic, PortRange, Protocol

DNS = service("dns", Claim(frozenset({Family.IPV4}), (ip_address("10.3.10.45"),), Protocol.UDP, (PortRange(53, 53),)))


lab = lab_fixture("echo", balancer(DNS), lambda made: set_flows(made, BACK))


@pytest.fixture
def config(lab: Lab) -> Path:
    return lab.directory.parent / "my.yaml"


def test_where_answers_have_a_way_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))
    wanted = balancer(DNS, other=OtherTraffic.DROP)
    with running_lab("echo-own", wanted, tmp_path) as lab, open_lab_bed(lab.name, wanted) as bed:
        measured = two_messages(bed)
        assert isinstance(rtt_us := measured.values["rtt_us"], list)
        assert len(rtt_us) == 2


def test_a_message_that_does_not_come_back_is_an_error(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(echo, "_SOURCE", echo._SOURCE.replace("TIMEOUT_S = 20.0", "TIMEOUT_S = 0.5"))
    set_flows(lab)
    with open_lab_bed(lab.name, balancer(DNS)) as bed, pytest.raises(MeasureError, match="no TCP echo of 16 bytes"):
        two_messages(bed)
    set_flows(lab, BACK)
    assert_nothing_left(lab)


def test_offload_is_refused_where_nothing_offloads(lab: Lab, config: Path, xenoovs: CommandLine) -> None:
    said = xenoovs("measure", "echo", config, "--lab", lab.name, "--offload", "both")
    assert (said.status, said.out) == (1, "")
    assert "has the datapath of Open vSwitch in user space, which offloads nothing" in said.err


def two_messages(bed: Bed) -> Measurement:
    made = echo_experiment(bed, offloads=["unchanged"], quick=False, sizes=[16], messages=2)
    return made.measure(made.points[0], {})


def assert_nothing_left(lab: Lab) -> None:
    assert not echo_flows(lab)
    eventually(partial(nothing_runs, lab), "the programs end")


def echo_flows(lab: Lab) -> list[str]:
    cookie = "cookie=0x6563686f00000000/-1"
    text = ofctl(lab.ovs, "-O", "OpenFlow14", "dump-flows", lab.topology.bridge, cookie)
    return [line for line in text.splitlines() if "actions=" in line]


def nothing_runs(lab: Lab) -> bool:
    """Whether no program runs but the one that answers in each machine."""
    backends = all(len(processes_in(machine.namespace)) == 1 for machine in lab.topology.machines)
    return backends and not processes_in(lab.topology.clients.namespace)
