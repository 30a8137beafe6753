"""Stands in for a virtual machine: a process that serves its sockets as the guest does, without any guest."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from xenoovs.lab.nic.machine import MACHINE_MARK, PORTS, VirtualMachine

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


def start_process(directory: Path, *code: str, keep: tuple[int, ...] = ()) -> subprocess.Popen[bytes]:
    """A Python process that counts as the machine of `directory`, in a session of its own."""
    environment = {**os.environ, MACHINE_MARK: str(directory)}
    process = subprocess.Popen(
        [sys.executable, "-c", *code], env=environment, pass_fds=keep, start_new_session=True, stdin=subprocess.DEVNULL
    )
    (directory / "pid").write_text(f"{process.pid}\n")
    return process


@contextmanager
def serving_machine(directory: Path) -> Iterator[VirtualMachine]:
    """A machine that runs commands: on this host."""
    machine = VirtualMachine(directory)
    listeners = [socket.socket(socket.AF_UNIX) for _ in range(PORTS)]
    for port, listener in enumerate(listeners):
        listener.bind(str(machine.socket(port)))
        listener.listen()
    numbers = tuple(listener.fileno() for listener in listeners)
    process = start_process(directory, _SERVER, *map(str, numbers), keep=numbers)
    for listener in listeners:
        listener.close()
    # A moment after exec(3) a process has its environment, by which the machine is known.
    while machine.pid is None:
        assert process.poll() is None
        time.sleep(0.01)
    try:
        yield machine
    finally:
        os.killpg(process.pid, 9)
        process.wait()
