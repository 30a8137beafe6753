"""`lab up --nic emulated` as a user types it: everything answers from inside the machine, and nothing is left of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.nic.truth import parse_rules
from xenoovs.lab.host import marked_processes
from xenoovs.lab.lab import DIRECTORY_VARIABLE, MARK, machine_directory
from xenoovs.lab.nic.machine import VirtualMachine
from xenoovs.model.templates import read_template

NAME = "nictest"
VIP = 0x0A030A2D
PACKETS = 1000
FEW = 20
"""Packets of other kinds."""
UP = ("lab", "up", "my.yaml", "--nic", "emulated")
ONCE = ("--quick", "--sizes", "64", "--repeats", "1", "-o", "json", "--out", "results")
"""A short measurement."""
_PROGRAMS = Path(sys.executable).parent
_CRASHED = "crashed"
_SENT = "/sys/class/net/cl1/statistics/tx_packets"
_TIMEOUT_S = 1800.0


class Lab:
    """The commands of a user in `directory`, where the labs and the config `my.yaml` are."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.config = directory, directory / "my.yaml"
        self.config.write_text(read_template("quickstart"))
        self._process: subprocess.Popen[str] | None = None

    def kill(self) -> None:
        """Make the remaining commands fail at once."""
        if self._process is not None:
            self._process.terminate()
        self.machine(NAME).kill()

    def machine(self, name: str) -> VirtualMachine:
        return VirtualMachine(machine_directory(self.directory / name))

    def start(self, program: str, *arguments: object) -> subprocess.Popen[str]:
        pipe, labs = subprocess.PIPE, {DIRECTORY_VARIABLE: str(self.directory)}
        paths = {"PATH": f"{_PROGRAMS}:{os.environ['PATH']}", "PYTHONPATH": str(Path(__file__).parents[2])}
        self._process = subprocess.Popen(
            [program, *map(str, arguments)],
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            text=True,
            cwd=self.directory,
            env={**os.environ, **labs, **paths},
        )
        return self._process

    def run(self, program: str, *arguments: object, stdin: str = "") -> tuple[int, str, str]:
        """Return the exit status, the output and the errors of a program."""
        process = self.start(program, *arguments)
        stdout, stderr = process.communicate(stdin, timeout=_TIMEOUT_S)
        return process.returncode, stdout, stderr

    def say(self, *words: object, name: str = NAME) -> str:
        """Return what a command of xenoovs about a lab prints."""
        status, stdout, stderr = self.run("xenoovs", *words, "--lab", name)
        assert status == 0, (words, stdout, stderr)
        return stdout

    def refuse(self, *words: object, name: str = NAME) -> str:
        """Return the error of a command that fails."""
        status, _, stderr = self.run("xenoovs", *words, "--lab", name)
        assert status == 1, (words, stderr)
        return stderr

    def inside(self, *argv: str) -> str:
        """Return what a program in the machine prints."""
        status, stdout, stderr = self.run("xenoovs", "lab", "exec", "--lab", NAME, "--", *argv)
        assert status == 0, (argv, stderr)
        return stdout


def use(lab: Lab) -> dict[str, Any]:
    """Do all of it, and name the steps."""
    try:
        for step in STEPS:
            step(lab)
    finally:
        end_it(lab)
    return {"steps": [step.__name__ for step in STEPS]}


def a_crash_while_it_boots_leaves_a_lab_that_down_removes(lab: Lab) -> None:
    building = lab.start("xenoovs", *UP, "--lab", _CRASHED)
    machine = lab.machine(_CRASHED)
    while machine.pid is None and building.poll() is None:
        time.sleep(0.05)
    building.kill()
    said = building.communicate()
    assert building.returncode == -signal.SIGKILL, said
    assert "was never completed; remove it with `xenoovs lab down" in lab.refuse("lab", "status", name=_CRASHED)
    assert lab.say("lab", "down", name=_CRASHED).endswith("0 namespaces, 1 process\n")


def it_comes_up_once_and_says_how_to_go_on(lab: Lab) -> None:
    status, stdout, stderr = lab.run("xenoovs", *UP, "--lab", NAME)
    assert (status, stderr) == (0, "")
    assert f"lab {NAME} is up in a virtual machine with an emulated NIC" in stdout
    assert f"xenoovs apply --lab {NAME}" in stdout
    assert f"lab {NAME} exists already" in lab.refuse(*UP)


def a_backend_in_the_machine_fails_and_heals(lab: Lab) -> None:
    shown = lab.say("lab", "status")
    assert shown.startswith("in a virtual machine with an emulated NIC: process ")
    assert [line.split()[3] for line in shown.splitlines() if line.startswith("fips")] == ["up"] * 3
    lab.say("lab", "fail", "fips3", "--how", "link")
    status, shown, _ = lab.run("xenoovs", "lab", "status", "--lab", NAME)
    assert (status, "failed: link" in shown) == (2, True)
    assert lab.say("lab", "fail", "fips3", "--end") == "fips3 answers again\n"


def the_nic_forwards_packets_as_verify_offload_says(lab: Lab) -> None:
    lab.say("apply", "my.yaml", "--yes")
    [service] = json.loads(lab.say("lab", "traffic", "--packets", PACKETS, "-o", "json"))["services"]
    assert (service["sent"], service["answered"]) == (PACKETS, PACKETS)
    assert int(lab.inside("ip", "netns", "exec", f"xo-{NAME}-clients", "cat", _SENT)) >= PACKETS
    report = json.loads(lab.say("verify-offload", "my.yaml", "-o", "json"))
    assert {block["verdict"] for block in report["blocks"]} == {"HW"}
    rules = parse_rules(lab.inside("cat", "/sys/kernel/debug/eswitch/rules"))
    entries = [rule for rule in rules if rule.match.get("nw_dst") and rule.match["nw_dst"].value == VIP]
    assert report["blocks_total"]["megaflows"] == len(entries)
    assert report["blocks_total"]["hw_packets"] == sum(rule.packets for rule in entries)
    # The first packets of each block are in software, as long as it takes to offload it.
    assert 0 < report["blocks_total"]["hw_packets"] <= PACKETS
    lab.say("why", "my.yaml")


def a_measured_rate_has_the_counters_of_the_nic_and_is_not_called_hardware(lab: Lab) -> None:
    document = json.loads(lab.say("measure", "load", "rate", "my.yaml", *ONCE))
    kind, datapath = document["kind"], document["datapath"].partition(", ")[2]
    assert (kind, datapath) == ("emulated", "emulated NIC, in a virtual machine")
    [sample] = document["samples"]
    values = sample["values"]
    assert 0 < values["received"] == sum(values["received_by_backend"].values())
    # Counted at the wire: the representor has no packet that the NIC forwards.
    for counter in ("switched", "matched", "offloaded_packets"):
        assert abs(values[counter] - values["sent"]) <= FEW, counter


def printed_commands_run_on_the_host_as_they_are_printed(lab: Lab) -> None:
    for command in ("doctor", "why"):
        lab.inside("ethtool", "-K", "p0", "hw-tc-offload", "off")
        if command == "why":
            lab.inside("ovs-appctl", "revalidator/purge")
            lab.say("lab", "traffic", "--packets", 200)
        _, said, _ = lab.run("xenoovs", command, "my.yaml", "--lab", NAME)
        [fix] = [line.partition("fix:")[2].strip() for line in said.splitlines() if "hw-tc-offload on" in line]
        assert fix.partition(" && ")[0] == f"xenoovs lab exec --lab {NAME} -- ethtool -K p0 hw-tc-offload on"
        assert lab.run("sh", "-c", fix)[0] == 0
        assert "hw-tc-offload: on" in lab.inside("ethtool", "-k", "p0")


def pktgen_and_ipvs_of_the_machine_are_measured(lab: Lab) -> None:
    status, stdout, stderr = lab.run(sys.executable, "-m", "tests.nic.measure_samples", NAME, lab.config)
    assert (status, stderr) == (0, "")
    pktgen, ipvs = (json.loads(stdout)[name] for name in ("pktgen", "ipvs"))
    paced, fast = pktgen["loads"]
    assert pktgen["counted"] == PACKETS
    # The interface also counts what the kernel sends beside them, such as ARP requests for the VIP (arp(7)).
    assert 0 <= paced["sent"] - PACKETS <= FEW
    assert abs(paced["received"] - paced["sent"]) <= FEW
    assert abs(paced["received_by_backend"]["fips2"] / paced["received"] - 0.5) < 0.01
    # As fast as it can, pktgen may send more than the machine forwards.
    assert 0 < fast["received"] <= fast["sent"] + FEW
    assert "cl1" not in pktgen["left"]
    assert ipvs["why_not"] == ""
    assert ipvs["values"]["received"] > 0
    assert all(ipvs["values"]["received_by_backend"].values())
    assert "->" not in ipvs["left"].partition("RemoteAddress")[2]


def files_input_status_and_errors_are_those_of_the_host(lab: Lab) -> None:
    lab.config.write_text(lab.config.read_text().replace("weight: 50", "weight: 80"))
    status, stdout, _ = lab.run("xenoovs", "plan", "my.yaml", "--lab", NAME, "-o", "json")
    assert (status, bool(json.loads(stdout)["added"])) == (2, True)
    exits = ("lab", "exec", "--lab", NAME, "--", "sh", "-c", "cat; exit 7")
    assert lab.run("xenoovs", *exits, stdin="typed\n")[:2] == (7, "typed\n")
    assert lab.refuse("apply", "no-such.yaml", "--yes").startswith("error: cannot read the config no-such.yaml: ")


STEPS = (
    a_crash_while_it_boots_leaves_a_lab_that_down_removes,
    it_comes_up_once_and_says_how_to_go_on,
    a_backend_in_the_machine_fails_and_heals,
    the_nic_forwards_packets_as_verify_offload_says,
    a_measured_rate_has_the_counters_of_the_nic_and_is_not_called_hardware,
    printed_commands_run_on_the_host_as_they_are_printed,
    pktgen_and_ipvs_of_the_machine_are_measured,
    files_input_status_and_errors_are_those_of_the_host,
)


def end_it(lab: Lab) -> None:
    """When the machine has died, status names the command that removes the lab, and nothing is left."""
    lab.machine(NAME).kill()
    status = lab.refuse("lab", "status")
    assert f"the virtual machine of lab {NAME} has stopped" in status
    assert f"xenoovs lab down --lab {NAME}" in status
    lab.say("lab", "down")
    assert lab.say("lab", "down") == f"there is no lab {NAME}\n"
    assert {path.name for path in lab.directory.iterdir()} <= {lab.config.name, "results"}
    assert not any(marked_processes(MARK, str(lab.directory / name)) for name in (NAME, _CRASHED))


def test_a_lab_from_up_to_down(lab: dict[str, Any]) -> None:
    assert lab["steps"] == [step.__name__ for step in STEPS]
