"""Commands in the machine: what they say, how they end, and every way in which the machine can fail meanwhile."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.unit.lab.nic.machines import serving_machine
from xenoovs.errors import CommandTimeout, LabError
from xenoovs.lab.nic.call import Call, conversation, new_request, run_inside
from xenoovs.lab.nic.frames import PORTS, Kind
from xenoovs.lab.nic.machine import Machine


@pytest.fixture
def machine() -> Iterator[Machine]:
    # Not tmp_path: its name may be too long for a socket.
    with tempfile.TemporaryDirectory() as directory, serving_machine(Path(directory)) as made:
        yield made


def test_output_errors_and_status_come_back_apart(machine: Machine) -> None:
    done = run_inside(machine, ["sh", "-c", "cat; echo wrong >&2; exit 7"], stdin="given\n")
    assert (done.stdout, done.stderr, done.exit_code) == ("given\n", "wrong\n", 7)


def test_much_output_and_much_input(machine: Machine) -> None:
    text = "0123456789\n" * 40_000
    assert run_inside(machine, ["cat"], stdin=text).stdout == text


def test_a_signal_shows_as_shells_show_it(machine: Machine) -> None:
    assert run_inside(machine, ["sh", "-c", "kill -9 $$"]).exit_code == 128 + signal.SIGKILL


def test_a_program_that_is_not_there(machine: Machine) -> None:
    done = run_inside(machine, ["no-such-program"])
    assert (done.exit_code, done.stderr) == (127, "no-such-program: No such file or directory\n")


def test_commands_of_xenoovs_run_without_a_new_python(machine: Machine) -> None:
    done = run_inside(machine, ["xenoovs", "validate", "/no/such/file.yaml"])
    assert (done.exit_code, done.stdout) == (1, "")
    assert "cannot read the config /no/such/file.yaml" in done.stderr


def test_files_are_in_place_before_the_command_starts(machine: Machine, tmp_path: Path) -> None:
    file = tmp_path / "deeper" / "my.yaml"
    request = new_request(["cat", "my.yaml"], directory=str(file.parent), files={str(file): "version: 1\n"})
    said = list(conversation(machine, request, stdin="", timeout_s=30.0))
    assert said == [(Kind.OUTPUT, b"version: 1\n"), (Kind.EXIT, b"0")]


def test_on_a_terminal_the_command_sees_one_of_that_size(machine: Machine) -> None:
    request = new_request(["sh", "-c", "stty size"], terminal=(33, 101))
    said = list(conversation(machine, request, stdin="", timeout_s=30.0))
    assert said == [(Kind.OUTPUT, b"33 101\r\n"), (Kind.EXIT, b"0")]


def test_what_takes_too_long_is_given_up_and_killed(machine: Machine, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    with pytest.raises(CommandTimeout):
        run_inside(machine, ["sh", "-c", f"echo $$ > {mark}; exec sleep 600"], timeout_s=2.0)
    # The same port takes the next command; by then the one before is dead.
    assert run_inside(machine, ["true"]).exit_code == 0
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)


def test_every_port_is_used_before_a_command_is_refused(machine: Machine) -> None:
    with ExitStack() as stack:
        for _ in range(PORTS):
            stack.enter_context(Call(machine))
        with pytest.raises(LabError, match=f"{PORTS} commands run in the virtual machine already"):
            Call(machine)
    assert run_inside(machine, ["true"]).exit_code == 0


def test_a_machine_that_dies_meanwhile_is_told_with_its_last_words(machine: Machine) -> None:
    machine.console.write_text("booted\nKernel panic - not syncing\n")
    pid = machine.pid
    assert pid is not None
    request = new_request(["sh", "-c", "echo up; exec sleep 60"])
    said = conversation(machine, request, stdin="", timeout_s=30.0)
    assert next(said) == (Kind.OUTPUT, b"up\n")
    os.killpg(pid, signal.SIGKILL)
    with pytest.raises(LabError, match=r"the virtual machine has ended.*\n.*\nKernel panic - not syncing"):
        next(said)


def test_a_machine_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="the virtual machine does not run; its console says nothing"):
        run_inside(Machine(tmp_path), ["true"])
