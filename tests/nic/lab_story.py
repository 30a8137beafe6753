"""A user's afternoon with `lab up --nic emulated`, command by command as they are typed, recorded."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from xenoovs.lab.host import marked_processes
from xenoovs.lab.lab import DIRECTORY_VARIABLE, MARK, machine_directory
from xenoovs.lab.nic.machine import VirtualMachine

NAME = "nictest"
_XENOOVS = (str(Path(sys.executable).with_name("xenoovs")),)
_CRASHED = "crashed"
_SENT = "/sys/class/net/cl1/statistics/tx_packets"
_TIMEOUT_S = 1800.0


@dataclass(slots=True)
class Answer:
    """What one command said."""

    exit_code: int
    stdout: str
    stderr: str


@dataclass(slots=True)
class LabRecord:
    """`said`: by step. typed: the printed commands by command. left: files and processes of the labs at the end."""

    said: dict[str, Answer] = field(default_factory=dict)
    typed: dict[str, list[str]] = field(default_factory=dict)
    rules: str = ""
    left: list[str] = field(default_factory=list)


class LabStory:
    """One lab that crashes while it boots, and one that is built, used, killed and removed."""

    def __init__(self, directory: Path) -> None:
        self._record = LabRecord()
        self._directory = directory
        self._config = directory / "my.yaml"
        self._process: subprocess.Popen[str] | None = None

    def kill(self) -> None:
        """Make the remaining steps fail at once."""
        if self._process is not None:
            self._process.terminate()
        self._machine.kill()

    @property
    def _machine(self) -> VirtualMachine:
        return VirtualMachine(machine_directory(self._directory / NAME))

    def record(self, config: str) -> dict[str, Any]:
        """Run all of it and return a LabRecord as a dictionary."""
        self._config.write_text(config)
        self._crash()
        try:
            self._use(config)
        finally:
            self._end()
        return asdict(self._record)

    def record_echoes(self, config: str) -> dict[str, Any]:
        """Do the same for echoes with and without offload alone, each after a restart of Open vSwitch."""
        self._config.write_text(config)
        try:
            self._say("up", "lab", "up", self._config, "--nic", "emulated", "--lab", NAME)
            offload = ("--offload", "both", "--yes")
            self._say("echo", "measure", "echo", "my.yaml", "--lab", NAME, *self._once, *offload)
        finally:
            self._end()
        return asdict(self._record)

    @property
    def _once(self) -> tuple[object, ...]:
        return "--quick", "--sizes", "64", "--repeats", "1", "-o", "json", "--out", self._directory / "results"

    def _use(self, config: str) -> None:
        self._say("up", "lab", "up", self._config, "--nic", "emulated", "--lab", NAME)
        self._say("second up", "lab", "up", self._config, "--nic", "emulated", "--lab", NAME)
        self._say("status", "lab", "status", "--lab", NAME)
        self._say("fail", "lab", "fail", "fips3", "--how", "link", "--lab", NAME)
        self._say("status of the failed", "lab", "status", "--lab", NAME)
        self._say("heal", "lab", "heal", "fips3", "--lab", NAME)
        self._say("apply", "apply", "my.yaml", "--yes", "--lab", NAME)
        self._say("traffic", "lab", "traffic", "--lab", NAME, "--packets", "1000", "-o", "json")
        self._say("wire", *self._exec("ip", "netns", "exec", f"xo-{NAME}-clients", "cat", _SENT))
        self._say("verify", "verify-offload", "my.yaml", "--lab", NAME, "-o", "json")
        self._record.rules = self._say("rules", *self._exec("cat", "/sys/kernel/debug/eswitch/rules")).stdout
        self._say("why", "why", "my.yaml", "--lab", NAME)
        self._say("rate", "measure", "load", "rate", "my.yaml", "--lab", NAME, *self._once)
        self._say("spoilt", *self._exec("ethtool", "-K", "p0", "hw-tc-offload", "off"))
        self._type_the_fixes("doctor", "my.yaml", "--lab", NAME)
        self._say("spoilt again", *self._exec("ethtool", "-K", "p0", "hw-tc-offload", "off"))
        self._say("purge", *self._exec("ovs-appctl", "revalidator/purge"))
        self._say("traffic in software", "lab", "traffic", "--lab", NAME, "--packets", "200")
        self._type_the_fixes("why", "my.yaml", "--lab", NAME)
        self._say("samples", NAME, self._config, program=(sys.executable, "-m", "tests.nic.measure_samples"))
        self._config.write_text(config.replace("weight: 50", "weight: 80"))
        self._say("plan of changed weights", "plan", "my.yaml", "--lab", NAME, "-o", "json")
        self._say("exit status", *self._exec("sh", "-c", "cat; exit 7"), stdin="typed\n")
        self._say("not there", "apply", "no-such.yaml", "--yes", "--lab", NAME)

    def _end(self) -> None:
        self._machine.kill()
        self._say("status without machine", "lab", "status", "--lab", NAME)
        self._say("down", "lab", "down", "--lab", NAME)
        self._say("second down", "lab", "down", "--lab", NAME)
        self._record.left = [
            path.name for path in self._directory.iterdir() if path not in (self._config, self._directory / "results")
        ]
        for name in (NAME, _CRASHED):
            self._record.left += map(str, marked_processes(MARK, str(self._directory / name)))

    def _crash(self) -> None:
        building = self._start("lab", "up", self._config, "--nic", "emulated", "--lab", _CRASHED)
        machine = VirtualMachine(machine_directory(self._directory / _CRASHED))
        while machine.pid is None and building.poll() is None:
            time.sleep(0.05)
        building.kill()
        stdout, stderr = building.communicate()
        self._record.said["crash"] = Answer(building.returncode, stdout, stderr)
        self._say("status after a crash", "lab", "status", "--lab", _CRASHED)
        self._say("down after a crash", "lab", "down", "--lab", _CRASHED)

    def _type_the_fixes(self, *command: object) -> None:
        """Run the commands that a command prints for hw-tc-offload on the host, as they are printed."""
        said = self._say(f"{command[0]} of spoilt", *command).stdout
        lines = [line.partition("fix:")[2].strip() for line in said.splitlines() if "hw-tc-offload on" in line]
        self._record.typed[str(command[0])] = lines
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        for line in dict.fromkeys(lines):
            environment = {**os.environ, DIRECTORY_VARIABLE: str(self._directory), "PATH": path}
            subprocess.run(line, shell=True, check=True, cwd=self._directory, env=environment, timeout=_TIMEOUT_S)
        self._say(f"{command[0]} fixed", *self._exec("ethtool", "-k", "p0"))

    def _exec(self, *argv: str) -> Sequence[str]:
        return ("lab", "exec", "--lab", NAME, "--", *argv)

    def _say(self, step: str, *arguments: object, stdin: str = "", program: Sequence[str] = _XENOOVS) -> Answer:
        process = self._start(*arguments, program=program)
        stdout, stderr = process.communicate(stdin, timeout=_TIMEOUT_S)
        answer = self._record.said[step] = Answer(process.returncode, stdout, stderr)
        return answer

    def _start(self, *arguments: object, program: Sequence[str] = _XENOOVS) -> subprocess.Popen[str]:
        self._process = subprocess.Popen(
            [*program, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self._directory,
            env={**os.environ, DIRECTORY_VARIABLE: str(self._directory), "PYTHONPATH": str(Path(__file__).parents[2])},
        )
        return self._process
