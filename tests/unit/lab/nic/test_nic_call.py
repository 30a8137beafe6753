"""Commands in the machine: their output and exit status, and every failure of the machine meanwhile."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.patience import PATIENCE_S
from tests.unit.lab.nic.machines import serving_machine
from xenoovs.errors import CommandTimeout, LabError
from xenoovs.lab.nic.call import Call, conversation, run_inside
from xenoovs.lab.nic.frames import (
    PORTS,
    FrameKind,
    FrameReader,
    GuestCommand,
    parse_command,
    render_command,
    render_frame,
)
from xenoovs.lab.nic.machine import VirtualMachine
from xenoovs.model.templates import read_template


@pytest.fixture
def machine() -> Iterator[VirtualMachine]:
    # Not tmp_path: its name may be too long for a socket.
    with tempfile.TemporaryDirectory() as directory, serving_machine(Path(directory)) as made:
        yield made


def test_output_errors_and_status_come_back_apart(machine: VirtualMachine) -> None:
    done = run_inside(machine, ["sh", "-c", "cat; echo wrong >&2; exit 7"], stdin="given\n")
    assert (done.stdout, done.stderr, done.exit_code) == ("given\n", "wrong\n", 7)


def test_much_output_and_much_input(machine: VirtualMachine) -> None:
    text = "0123456789\n" * 40_000
    assert run_inside(machine, ["cat"], stdin=text).stdout == text


def test_a_signal_shows_as_shells_show_it(machine: VirtualMachine) -> None:
    assert run_inside(machine, ["sh", "-c", "kill -9 $$"]).exit_code == 128 + signal.SIGKILL


def test_a_program_that_is_not_there(machine: VirtualMachine) -> None:
    done = run_inside(machine, ["no-such-program"])
    assert (done.exit_code, done.stderr) == (127, "no-such-program: No such file or directory\n")


def test_commands_of_xenoovs_run_without_a_new_python(machine: VirtualMachine) -> None:
    done = run_inside(machine, ["xenoovs", "validate", "/no/such/file.yaml"])
    assert (done.exit_code, done.stdout) == (1, "")
    assert "cannot read the config /no/such/file.yaml" in done.stderr


def test_files_are_in_place_before_the_command_starts(machine: VirtualMachine, tmp_path: Path) -> None:
    file = tmp_path / "deeper" / "my.yaml"
    command = GuestCommand(("cat", "my.yaml"), str(file.parent), files={str(file): "version: 1\n"})
    received = list(conversation(machine, command, stdin="", timeout_s=30.0))
    assert received == [(FrameKind.OUTPUT, b"version: 1\n"), (FrameKind.EXIT, b"0")]


def test_on_a_terminal_the_command_gets_one_of_that_size(machine: VirtualMachine) -> None:
    command = GuestCommand(("sh", "-c", "stty size"), terminal=(33, 101))
    received = list(conversation(machine, command, stdin="", timeout_s=30.0))
    assert received == [(FrameKind.OUTPUT, b"33 101\r\n"), (FrameKind.EXIT, b"0")]


def test_a_command_that_takes_too_long_is_killed(machine: VirtualMachine, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    with pytest.raises(CommandTimeout):
        run_inside(machine, ["sh", "-c", f"echo $$ > {mark}; exec sleep 600"], timeout_s=2.0)
    # The same port takes the next command; by then the earlier one has ended.
    assert run_inside(machine, ["true"]).exit_code == 0
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)


def test_every_port_is_used_before_a_command_is_refused(machine: VirtualMachine) -> None:
    with ExitStack() as stack:
        for _ in range(PORTS):
            stack.enter_context(Call(machine))
        with pytest.raises(LabError, match=f"{PORTS} commands run in the virtual machine already"):
            Call(machine)
    assert run_inside(machine, ["true"]).exit_code == 0


def test_a_machine_that_ends_meanwhile_is_reported_with_its_last_console_lines(machine: VirtualMachine) -> None:
    machine.console.write_text("booted\nKernel panic - not syncing\n")
    pid = machine.pid
    assert pid is not None
    command = GuestCommand(("sh", "-c", "echo up; exec sleep 60"))
    received = conversation(machine, command, stdin="", timeout_s=30.0)
    assert next(received) == (FrameKind.OUTPUT, b"up\n")
    os.killpg(pid, signal.SIGKILL)
    with pytest.raises(LabError, match=r"the virtual machine has ended.*\n.*\nKernel panic - not syncing"):
        next(received)


def test_a_machine_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="the virtual machine does not run; its console says nothing"):
        run_inside(VirtualMachine(tmp_path), ["true"])


_ATTACH = """
import sys
from pathlib import Path
from xenoovs.lab.nic.call import attach
from xenoovs.lab.nic.frames import GuestCommand
from xenoovs.lab.nic.machine import VirtualMachine
script = "trap 'stty size' WINCH; stty size; read line; read line; echo got $line; exit 5"
sys.exit(attach(VirtualMachine(Path(sys.argv[1])), GuestCommand(("bash", "-c", script))))
"""


def test_on_a_terminal_keys_and_sizes_go_to_the_command(machine: VirtualMachine) -> None:
    ours, theirs = pty.openpty()
    set_size(ours, rows=24, columns=80)
    argv = [sys.executable, "-c", _ATTACH, str(machine.directory)]
    with subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        screen = bytearray()
        read_until(ours, screen, b"24 80\r\n")
        set_size(ours, rows=33, columns=101)
        process.send_signal(signal.SIGWINCH)
        # bash runs the trap when its `read` is over.
        os.write(ours, b"one\n")
        read_until(ours, screen, b"33 101\r\n")
        os.write(ours, b"two\n")
        read_until(ours, screen, b"got two\r\n")
        assert process.wait(PATIENCE_S) == 5
    os.close(ours)


def set_size(terminal: int, *, rows: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def read_until(terminal: int, screen: bytearray, text: bytes) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while text not in screen:
        assert time.monotonic() < deadline, screen
        if select.select([terminal], [], [], 0.1)[0]:
            screen += os.read(terminal, 4096)


@given(st.lists(st.tuples(st.sampled_from(FrameKind), st.binary(max_size=20)), max_size=8), st.integers(1, 7))
def test_frames_come_out_as_they_went_in_however_they_are_cut(frames: list[tuple[FrameKind, bytes]], size: int) -> None:
    stream = b"".join(render_frame(kind, payload) for kind, payload in frames)
    reader = FrameReader()
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert [frame for piece in pieces for frame in reader.feed(piece)] == frames


def test_what_is_no_frame_is_refused() -> None:
    with pytest.raises(ValueError, match="not a valid FrameKind"):
        list(FrameReader().feed(b"?????"))


def test_a_new_host_drops_what_came_before_its_token() -> None:
    start, reader = render_frame(FrameKind.BEGIN, b"T" * 16), FrameReader()
    left = render_frame(FrameKind.OUTPUT, b"of an earlier command")[3:]
    assert not reader.seek(left + start[:5], start)
    assert reader.seek(start[5:] + render_frame(FrameKind.EXIT, b"0"), start)
    assert list(reader.feed(b"")) == [(FrameKind.EXIT, b"0")]


@pytest.mark.parametrize("terminal", [None, (24, 80)])
def test_a_command_survives_the_way(terminal: tuple[int, int] | None) -> None:
    command = GuestCommand(("sh", "-c", "ä"), "/tmp", {"TERM": "xterm"}, {"/a": "b"}, terminal)
    assert parse_command(render_command(command)) == command


_COMMANDS = """\
import importlib, os, sys
from xenoovs.cli import nic_guest
nic_guest.read_first_config()
for module in nic_guest.PRELOADED:
    importlib.import_module(module)
before, config = set(sys.modules), sys.stdin.read()
for command in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        reader, writer = os.pipe()
        os.write(writer, config.encode())
        os.close(writer)
        os.dup2(reader, 0)
        sys.stdin = os.fdopen(0)
        nic_guest.run([command, "-", "--db", "unix:/nonexistent/db.sock"])
        later = sorted(name for name in set(sys.modules) - before if name.startswith(("xenoovs.", "pydantic.")))
        print("IMPORTED", command, *later, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_bug_each_command_in_the_guest_imported_the_schema_of_configs() -> None:
    commands = ("plan", "apply", "verify-offload", "why", "doctor")
    argv = [sys.executable, "-c", _COMMANDS, *commands]
    done = subprocess.run(argv, input=read_template("quickstart"), capture_output=True, text=True, check=True)
    imported = [line.split() for line in done.stdout.splitlines() if line.startswith("IMPORTED")]
    assert imported == [["IMPORTED", command] for command in commands]
