"""A user's afternoon with `lab up --nic emulated`: everything answers from inside the machine, and nothing is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.nic.truth import parse_rules
from xenoovs.lab.host import marked_processes
from xenoovs.lab.lab import DIRECTORY_VARIABLE, MARK, machine_directory
from xenoovs.lab.nic.machine import VirtualMachine

NAME = "nictest"
_XENOOVS = (str(Path(sys.executable).with_name("xenoovs")),)
_CRASHED = "crashed"
_SPOIL = ("ethtool", "-K", "p0", "hw-tc-offload", "off")
_TIMEOUT_S = 1800.0
_VIP = 0x0A030A2D
_PACKETS = 1000
_FEW = 20
"""Packets of other kinds."""

Answer = subprocess.CompletedProcess[str]


class LabStory:
    """One lab that crashes while it boots, and one that is built, used, killed and removed."""

    def __init__(self, directory: Path, config: str) -> None:
        self._directory, self._text = directory, config
        self._config = directory / "my.yaml"
        self._config.write_text(config)
        self._process: subprocess.Popen[str] | None = None

    def kill(self) -> None:
        """Make the remaining steps fail at once."""
        if self._process is not None:
            self._process.terminate()
        self._machine.kill()

    def live(self) -> None:
        """Type all commands, and assert what they say."""
        self.after_a_crash_while_it_boots_status_names_the_command_that_removes_it()
        with self.running():
            self.each_command_is_of_the_lab_in_the_machine()
            self.the_nic_forwards_packets_as_verify_offload_says()
            self.a_measured_rate_has_the_counters_of_the_nic_and_is_not_called_hardware()
            self.exec(*_SPOIL)
            self.printed_commands_run_on_the_host_as_they_are_printed("doctor")
            self.exec(*_SPOIL)
            self.exec("ovs-appctl", "revalidator/purge")
            self.say("lab", "traffic", "--lab", NAME, "--packets", "200")
            self.printed_commands_run_on_the_host_as_they_are_printed("why")
            self.pktgen_and_ipvs_of_the_machine_send_and_balance()

    @contextmanager
    def running(self) -> Iterator[None]:
        """In the block, the lab is up. Then the machine dies, and the lab is removed."""
        up = self.say("lab", "up", self._config, "--nic", "emulated", "--lab", NAME)
        try:
            assert (up.returncode, up.stderr) == (0, "")
            assert f"lab {NAME} is up in a virtual machine with an emulated NIC" in up.stdout
            assert f"xenoovs apply --lab {NAME}" in up.stdout
            yield
            self._machine.kill()
            status = self.say("lab", "status", "--lab", NAME)
            assert status.returncode == 1
            assert f"the virtual machine of lab {NAME} has stopped" in status.stderr
            assert f"xenoovs lab down --lab {NAME}" in status.stderr
        finally:
            self._machine.kill()
            down, again = (self.say("lab", "down", "--lab", NAME) for _ in range(2))
        assert (down.returncode, again.stdout) == (0, f"there is no lab {NAME}\n")
        assert {path.name for path in self._directory.iterdir()} <= {"my.yaml", "results"}
        for name in (NAME, _CRASHED):
            assert marked_processes(MARK, str(self._directory / name)) == ()

    def measure(self, *words: str) -> Any:
        """Return the document of a short measurement."""
        once = ("--quick", "--sizes", "64", "--repeats", "1", "-o", "json", "--out", self._directory / "results")
        measured = self.say("measure", *words, "--lab", NAME, *once)
        assert measured.returncode == 0, measured.stderr
        return json.loads(measured.stdout)

    @property
    def _machine(self) -> VirtualMachine:
        return VirtualMachine(machine_directory(self._directory / NAME))

    def after_a_crash_while_it_boots_status_names_the_command_that_removes_it(self) -> None:
        building = self._start("lab", "up", self._config, "--nic", "emulated", "--lab", _CRASHED)
        machine = VirtualMachine(machine_directory(self._directory / _CRASHED))
        while machine.pid is None and building.poll() is None:
            time.sleep(0.05)
        building.kill()
        _, errors = building.communicate()
        assert building.returncode == -signal.SIGKILL, errors
        status = self.say("lab", "status", "--lab", _CRASHED)
        assert status.returncode == 1
        assert "was never completed; remove it with `xenoovs lab down" in status.stderr
        assert self.say("lab", "down", "--lab", _CRASHED).stdout.endswith("0 namespaces, 1 process\n")

    def each_command_is_of_the_lab_in_the_machine(self) -> None:
        status = self.say("lab", "status", "--lab", NAME).stdout
        assert status.startswith("in a virtual machine with an emulated NIC: process ")
        assert [line.split()[3] for line in status.splitlines() if line.startswith("fips")] == ["up"] * 3
        assert self.say("apply", "my.yaml", "--yes", "--lab", NAME).returncode == 0
        # The file as it is now.
        self._config.write_text(self._text.replace("weight: 50", "weight: 80"))
        plan = self.say("plan", "my.yaml", "--lab", NAME, "-o", "json")
        self._config.write_text(self._text)
        assert (plan.returncode, bool(json.loads(plan.stdout)["added"])) == (2, True)
        typed = self.exec("sh", "-c", "cat; exit 7", stdin="typed\n")
        assert (typed.returncode, typed.stdout) == (7, "typed\n")

    def the_nic_forwards_packets_as_verify_offload_says(self) -> None:
        traffic = self.say("lab", "traffic", "--lab", NAME, "--packets", str(_PACKETS), "-o", "json")
        [service] = json.loads(traffic.stdout)["services"]
        assert (service["sent"], service["answered"]) == (_PACKETS, _PACKETS)
        verified = self.say("verify-offload", "my.yaml", "--lab", NAME, "-o", "json")
        report, rules = json.loads(verified.stdout), self.exec("cat", "/sys/kernel/debug/eswitch/rules").stdout
        assert verified.returncode == self.say("why", "my.yaml", "--lab", NAME).returncode == 0
        assert {block["verdict"] for block in report["blocks"]} == {"HW"}
        entries = [rule for rule in parse_rules(rules) if "nw_dst" in rule.match and rule.match["nw_dst"].value == _VIP]
        assert report["blocks_total"]["megaflows"] == len(entries)
        assert report["blocks_total"]["hw_packets"] == sum(rule.packets for rule in entries)
        # The first packets of each block are in software, as long as it takes to offload it.
        assert 0 < report["blocks_total"]["hw_packets"] <= _PACKETS

    def a_measured_rate_has_the_counters_of_the_nic_and_is_not_called_hardware(self) -> None:
        document = self.measure("load", "rate", "my.yaml")
        assert document["kind"] == "emulated"
        assert document["datapath"].partition(", ")[2] == "emulated NIC, in a virtual machine"
        [sample] = document["samples"]
        values = sample["values"]
        assert 0 < values["received"] == sum(values["received_by_backend"].values())
        # Counted at the wire: the representor has no packet that the NIC forwards.
        for counter in ("switched", "matched", "offloaded_packets"):
            assert abs(values[counter] - values["sent"]) <= _FEW, counter

    def printed_commands_run_on_the_host_as_they_are_printed(self, command: str) -> None:
        said = self.say(command, "my.yaml", "--lab", NAME).stdout
        lines = [line.partition("fix:")[2].strip() for line in said.splitlines() if "hw-tc-offload on" in line]
        first = f"xenoovs lab exec --lab {NAME} -- ethtool -K p0 hw-tc-offload on"
        assert [line.partition(" && ")[0] for line in lines] == [first]
        environment = {**self._environment, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        subprocess.run(lines[0], shell=True, check=True, cwd=self._directory, env=environment, timeout=_TIMEOUT_S)
        assert "hw-tc-offload: on" in self.exec("ethtool", "-k", "p0").stdout

    def pktgen_and_ipvs_of_the_machine_send_and_balance(self) -> None:
        said = self.say(NAME, self._config, program=(sys.executable, "-m", "tests.nic.measure_samples"))
        assert said.stderr == ""
        pktgen, ipvs = (json.loads(said.stdout)[name] for name in ("pktgen", "ipvs"))
        paced, fast = pktgen["loads"]
        assert pktgen["counted"] == _PACKETS
        # The interface also counts what the kernel sends beside them, such as ARP requests for the VIP (arp(7)).
        assert 0 <= paced["sent"] - _PACKETS <= _FEW
        assert abs(paced["received"] - paced["sent"]) <= _FEW
        assert abs(paced["received_by_backend"]["fips2"] / paced["received"] - 0.5) < 0.01
        # As fast as it can, pktgen may send more than the machine forwards.
        assert 0 < fast["received"] <= fast["sent"] + _FEW
        assert "cl1" not in pktgen["left"]
        assert ipvs["why_not"] == ""
        assert ipvs["values"]["received"] > 0
        assert all(ipvs["values"]["received_by_backend"].values())
        assert "->" not in ipvs["left"].partition("RemoteAddress")[2]

    def exec(self, *argv: str, stdin: str = "") -> Answer:
        """Run a command in the machine."""
        return self.say("lab", "exec", "--lab", NAME, "--", *argv, stdin=stdin)

    def say(self, *arguments: object, stdin: str = "", program: Sequence[str] = _XENOOVS) -> Answer:
        process = self._start(*arguments, program=program)
        stdout, stderr = process.communicate(stdin, timeout=_TIMEOUT_S)
        return subprocess.CompletedProcess([], process.returncode, stdout, stderr)

    @property
    def _environment(self) -> dict[str, str]:
        root = str(Path(__file__).parents[2])
        return {**os.environ, DIRECTORY_VARIABLE: str(self._directory), "PYTHONPATH": root}

    def _start(self, *arguments: object, program: Sequence[str] = _XENOOVS) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        argv, place = [*program, *map(str, arguments)], self._directory
        self._process = subprocess.Popen(
            argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True, cwd=place, env=self._environment
        )
        return self._process


def test_a_lab_in_a_machine_from_up_to_down(lab: dict[str, Any]) -> None:
    """The recording has lived the story (tests/nic/vm.py)."""
    assert lab == {"error": None}
