"""Commands in the machine: their output and exit status, and every failure of the machine meanwhile."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import socket
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

from tests.patience import PATIENCE_S, eventually
from xenoovs.errors import CommandMissing, CommandTimeout, LabError
from xenoovs.lab.nic.call import guest_place, run_inside
from xenoovs.lab.nic.machine import MACHINE_MARK, PORTS, VirtualMachine
from xenoovs.model.templates import read_template

_SERVER = """
import os, signal, socket, sys
from xenoovs.cli.main import run
from xenoovs.lab.nic.guest import agent
listeners = [socket.socket(fileno=int(number)) for number in sys.argv[1:]]
for listener in listeners:
    if os.fork() == 0:
        while True:
            connection = listener.accept()[0]
            agent.serve_host(connection.fileno(), {'xenoovs': run})
signal.pause()
"""


@pytest.fixture
def machine() -> Iterator[VirtualMachine]:
    """Stand in for a virtual machine: a process that serves its sockets as the guest does, on this host."""
    # Not tmp_path: its name may be too long for a socket.
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        machine = VirtualMachine(Path(directory))
        listeners = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(PORTS)]
        for port, listener in enumerate(listeners):
            listener.bind(str(machine.socket(port)))
            listener.listen()
        numbers = tuple(listener.fileno() for listener in listeners)
        environment = {**os.environ, MACHINE_MARK: directory}
        argv = [sys.executable, "-c", _SERVER, *map(str, numbers)]
        process = subprocess.Popen(
            argv, env=environment, pass_fds=numbers, start_new_session=True, stdin=subprocess.DEVNULL
        )
        stack.close()
        (machine.directory / "pid").write_text(f"{process.pid}\n")
        # A moment after exec(3) a process has its environment, by which the machine is known.
        eventually(lambda: machine.pid is not None, "the environment of the process")
        try:
            yield machine
        finally:
            os.killpg(process.pid, 9)
            process.wait()


def test_output_errors_and_status_come_back_apart(machine: VirtualMachine) -> None:
    done = run_inside(machine, ["sh", "-c", "cat; echo wrong >&2; exit 7"], stdin="given\n")
    assert (done.stdout, done.stderr, done.exit_code) == ("given\n", "wrong\n", 7)


def attached(machine: VirtualMachine, script: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", _ATTACH, str(machine.directory), script]
    return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


def test_a_signal_and_a_program_that_is_not_there_show_as_shells_show_them(machine: VirtualMachine) -> None:
    assert run_inside(machine, ["sh", "-c", "kill -9 $$"]).exit_code == -signal.SIGKILL
    assert attached(machine, "kill -9 $$").returncode == 128 + signal.SIGKILL
    with pytest.raises(CommandMissing):
        run_inside(machine, ["no-such-program"])
    done = attached(machine, "exec no-such-program")
    assert (done.returncode, "no-such-program" in done.stderr) == (127, True)


def test_files_are_in_place_before_the_command_starts(machine: VirtualMachine, tmp_path: Path) -> None:
    file = tmp_path / "deeper" / "my.yaml"
    with guest_place(machine) as place:
        files = {str(file): "version: 1\n"}
        command = place.start(["cat", "my.yaml"], stdin="", directory=str(file.parent), files=files)
        assert (command.wait(30.0).stdout, command.exit_code) == ("version: 1\n", 0)


def test_any_bytes_go_both_ways(machine: VirtualMachine) -> None:
    data = bytes(range(256)) * 1000
    with guest_place(machine) as place:
        command = place.start(["cat"], stdin="")
        command.feed(data)
        command.close_input()
        while command.exit_code is None:
            command.pump(1.0)
    assert bytes(command.output) == data


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
            stack.enter_context(guest_place(machine))
        with pytest.raises(LabError, match=f"{PORTS} commands run in the virtual machine already"):
            guest_place(machine)
    assert run_inside(machine, ["true"]).exit_code == 0


def test_a_machine_that_ends_meanwhile_is_reported_with_its_last_console_lines(machine: VirtualMachine) -> None:
    machine.console.write_text("booted\nKernel panic - not syncing\n")
    pid = machine.pid
    assert pid is not None
    with guest_place(machine) as place:
        command = place.start(["sh", "-c", "echo up; exec sleep 60"])
        assert next(command.lines(30.0)) == "up"
        os.killpg(pid, signal.SIGKILL)
        with pytest.raises(LabError, match=r"the virtual machine has ended.*\n.*\nKernel panic - not syncing"):
            command.wait(30.0)


def test_a_machine_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="the virtual machine does not run; its console says nothing"):
        run_inside(VirtualMachine(tmp_path), ["true"])


_ATTACH = """
import sys
from pathlib import Path
from xenoovs.lab.nic.call import attach
from xenoovs.lab.nic.machine import VirtualMachine
sys.exit(attach(VirtualMachine(Path(sys.argv[1])), ("bash", "-c", sys.argv[2])))
"""


def test_on_a_terminal_keys_and_sizes_go_to_the_command(machine: VirtualMachine) -> None:
    ours, theirs = pty.openpty()
    set_size(ours, rows=24, columns=80)
    script = "trap 'stty size' WINCH; stty size; read line; read line; echo got $line; exit 5"
    argv = [sys.executable, "-c", _ATTACH, str(machine.directory), script]
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


def test_a_new_host_ends_what_the_one_before_has_left_and_drops_half_of_its_line(machine: VirtualMachine) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(machine.socket(0)))
        start = {"start": 1, "argv": ["sleep", "600"], "env": {}, "stdin": False}
        connection.sendall(f'{{"hello": "one"}}\n{json.dumps(start)}\n{{"start": 2, "ar'.encode())
        connection.sendall(b'\n{"hello": "two"}\n')
        answers = connection.makefile()
        assert [json.loads(answers.readline())["ready"] for _ in range(2)] == ["one", "two"]
        connection.sendall(b'{"signal": 1, "number": 9}\n{"lock": 3, "name": "free"}\n')
        assert json.loads(answers.readline()) == {"id": 3, "exit": 0}


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
