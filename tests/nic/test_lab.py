"""`lab up --nic emulated` as a user meets it: everything answers from inside the machine, and nothing is left of it."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from tests.nic.lab_story import NAME
from tests.nic.truth import parse_rules

VIP = 0x0A030A2D
PACKETS = 1000
FEW = 20
"""Packets of other kinds."""


def test_it_comes_up_and_says_how_to_go_on(lab: dict[str, Any]) -> None:
    up = lab["said"]["up"]
    assert (up["exit_code"], up["stderr"]) == (0, "")
    assert f"lab {NAME} is up in a virtual machine with an emulated NIC" in up["stdout"]
    assert f"xenoovs apply --lab {NAME}" in up["stdout"]


def test_a_second_one_of_that_name_is_refused(lab: dict[str, Any]) -> None:
    again = lab["said"]["second up"]
    assert again["exit_code"] == 1
    assert f"lab {NAME} exists already" in again["stderr"]


def test_status_is_that_of_the_lab_in_the_machine(lab: dict[str, Any]) -> None:
    status = lab["said"]["status"]
    assert status["exit_code"] == 0
    assert status["stdout"].startswith("in a virtual machine with an emulated NIC: process ")
    assert [line.split()[3] for line in status["stdout"].splitlines() if line.startswith("fips")] == ["up"] * 3


def test_a_backend_in_the_machine_fails_and_heals(lab: dict[str, Any]) -> None:
    assert lab["said"]["fail"]["exit_code"] == 0
    assert "failed: link" in lab["said"]["status of the failed"]["stdout"]
    assert lab["said"]["heal"]["stdout"] == "fips3 answers again\n"


def test_packets_reach_the_backends(lab: dict[str, Any]) -> None:
    assert lab["said"]["apply"]["exit_code"] == 0
    traffic = lab["said"]["traffic"]
    assert traffic["exit_code"] == 0
    [service] = json.loads(traffic["stdout"])["services"]
    assert (service["sent"], service["answered"]) == (PACKETS, PACKETS)


def test_the_cables_count_them(lab: dict[str, Any]) -> None:
    assert int(lab["said"]["wire"]["stdout"]) >= PACKETS


def test_a_measured_rate_has_the_counters_of_the_nic_and_is_not_called_hardware(lab: dict[str, Any]) -> None:
    said = lab["said"]["rate"]
    assert said["exit_code"] == 0, said["stderr"]
    document = json.loads(said["stdout"])
    assert (document["kind"], document["datapath"].partition(", ")[2]) == (
        "emulated",
        "emulated NIC, in a virtual machine",
    )
    [sample] = document["samples"]
    values = sample["values"]
    assert 0 < values["received"] == sum(values["received_by_backend"].values())
    # Counted at the wire: the representor has no packet that the NIC forwards.
    assert abs(values["switched"] - values["sent"]) <= FEW
    assert abs(values["matched"] - values["sent"]) <= FEW
    assert abs(values["offloaded_packets"] - values["sent"]) <= FEW


def test_pktgen_of_the_machine_sends_what_arrives_in_hardware(lab: dict[str, Any]) -> None:
    assert lab["said"]["samples"]["stderr"] == ""
    pktgen = json.loads(lab["said"]["samples"]["stdout"])["pktgen"]
    paced, fast = pktgen["loads"]
    assert pktgen["counted"] == PACKETS
    # The interface also counts what the kernel sends beside them, such as ARP requests for the VIP (arp(7)).
    assert 0 <= paced["sent"] - PACKETS <= FEW
    assert abs(paced["received"] - paced["sent"]) <= FEW
    assert abs(paced["received_by_backend"]["fips2"] / paced["received"] - 0.5) < 0.01
    # As fast as it can, pktgen may send more than the machine forwards.
    assert 0 < fast["received"] <= fast["sent"] + FEW
    assert "cl1" not in pktgen["left"]


def test_ipvs_of_the_machine_balances_beside_the_designs(lab: dict[str, Any]) -> None:
    sample = json.loads(lab["said"]["samples"]["stdout"])["ipvs"]
    assert sample["why_not"] == ""
    assert sample["values"]["received"] > 0
    assert all(sample["values"]["received_by_backend"].values())
    assert "->" not in sample["left"].partition("RemoteAddress")[2]


def test_the_nic_forwards_them_as_verify_offload_says(lab: dict[str, Any]) -> None:
    said = lab["said"]["verify"]
    report = json.loads(said["stdout"])
    assert said["exit_code"] == 0
    assert {block["verdict"] for block in report["blocks"]} == {"HW"}
    entries = [
        rule for rule in parse_rules(lab["rules"]) if rule.match.get("nw_dst") and rule.match["nw_dst"].value == VIP
    ]
    assert report["blocks_total"]["megaflows"] == len(entries)
    assert report["blocks_total"]["hw_packets"] == sum(rule.packets for rule in entries)
    # The first packets of each block are in software, as long as it takes to offload it.
    assert 0 < report["blocks_total"]["hw_packets"] <= PACKETS
    assert lab["said"]["why"]["exit_code"] == 0


@pytest.mark.parametrize("command", ["doctor", "why"])
def test_printed_commands_run_on_the_host_as_they_are_printed(lab: dict[str, Any], command: str) -> None:
    first = f"xenoovs lab exec --lab {NAME} -- ethtool -K p0 hw-tc-offload on"
    assert [line.partition(" && ")[0] for line in lab["typed"][command]] == [first]
    assert "hw-tc-offload: on" in lab["said"][f"{command} fixed"]["stdout"]


def test_a_file_is_read_as_it_is_now(lab: dict[str, Any]) -> None:
    plan = lab["said"]["plan of changed weights"]
    assert plan["exit_code"] == 2
    assert json.loads(plan["stdout"])["added"]


def test_input_and_exit_status_of_a_command_go_through(lab: dict[str, Any]) -> None:
    said = lab["said"]["exit status"]
    assert (said["exit_code"], said["stdout"]) == (7, "typed\n")


def test_a_mistake_reads_as_on_the_host(lab: dict[str, Any]) -> None:
    said = lab["said"]["not there"]
    assert said["exit_code"] == 1
    assert said["stderr"].startswith("error: cannot read the config no-such.yaml: ")


def test_when_the_machine_has_died_status_names_the_command_that_removes_the_lab(lab: dict[str, Any]) -> None:
    status = lab["said"]["status without machine"]
    assert status["exit_code"] == 1
    assert f"the virtual machine of lab {NAME} has stopped" in status["stderr"]
    assert f"xenoovs lab down --lab {NAME}" in status["stderr"]


def test_after_a_crash_while_it_boots_status_names_the_command_that_removes_it(lab: dict[str, Any]) -> None:
    assert lab["said"]["crash"]["exit_code"] == -signal.SIGKILL, lab["said"]["crash"]["stderr"]
    status = lab["said"]["status after a crash"]
    assert status["exit_code"] == 1
    assert "was never completed; remove it with `xenoovs lab down" in status["stderr"]
    assert lab["said"]["down after a crash"]["stdout"].endswith("0 namespaces, 1 process\n")


def test_nothing_is_left(lab: dict[str, Any]) -> None:
    assert lab["said"]["down"]["exit_code"] == 0
    assert lab["said"]["second down"]["stdout"] == f"there is no lab {NAME}\n"
    assert lab["left"] == []
