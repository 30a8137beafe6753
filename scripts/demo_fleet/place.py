"""Where a demo lives: a directory, network namespaces and marked processes, all of which are removed together."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from xenoovs.lab.host import LabNetns, delete_namespace, kill_and_wait, marked_processes
from xenoovs.switch.process import PYTHON_MODULE, run

BASE = Path("/run/xenoovs/demo-fleet")
_ROOT = Path(__file__).parents[2]
MARK, _HOST_MARK = "XENOOVS_DEMO_PROCESS", "XENOOVS_DEMO_HOST"
_ROUNDS = 20


@dataclass(frozen=True, slots=True)
class Place:
    """A demo on this machine. `directory`: mode 0700; its name is that of the demo."""

    directory: Path

    def namespace(self, host: str) -> str:
        """Return the network namespace of one of its hosts."""
        return f"xo-{self.directory.name}-{host}"

    def marks(self, host: str) -> dict[str, str]:
        """Return the environment that marks the processes of one of its hosts."""
        return {
            MARK: str(self.directory),
            _HOST_MARK: str(self.directory / host),
            "PYTHONPATH": str(_ROOT),
        }

    def environment(self, host: str) -> dict[str, str]:
        """Return the environment of the processes of one of its hosts."""
        return {**os.environ, **self.marks(host)}

    @property
    def netns(self) -> LabNetns:
        return LabNetns({MARK: str(self.directory)})

    def python(self, host: str, *argv: str) -> list[str]:
        """Return the command that runs a module in the namespace of a host."""
        return ["ip", "netns", "exec", self.namespace(host), *PYTHON_MODULE, *argv]

    def start(self, host: str, output: str, *argv: str, stdin: str = "", namespace: str = "") -> None:
        """Start a module of a host, in its namespace or in another; its output goes to a file below the directory."""
        with (self.directory / output).open("ab") as file:
            process = subprocess.Popen(
                self.python(namespace or host, *argv),
                env=self.environment(host),
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=file,
                text=True,
                # Ctrl-C must reach the demo alone, which then removes everything.
                start_new_session=True,
            )
        if process.stdin is not None:
            process.stdin.write(stdin)
            process.stdin.close()

    def kill(self, host: str) -> int:
        """Kill all processes of a host at once, as a power failure does. Return how many."""
        pids = marked_processes(_HOST_MARK, str(self.directory / host))
        kill_and_wait(pids)
        return len(pids)


@contextmanager
def new_place() -> Iterator[Place]:
    """Make the directory of a demo; remove all that the demo made at the end, however it ends.

    What a killed demo left is removed first: no process holds its lock (flock(2)).
    """
    for left in BASE.glob("d*"):
        with suppress(BlockingIOError, FileNotFoundError), _locked(left):
            remove(left)
    directory = BASE / f"d{os.getpid()}"
    directory.mkdir(mode=0o700, parents=True)
    with _locked(directory):
        try:
            yield Place(directory)
        finally:
            remove(directory)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def remove(directory: Path) -> None:
    """Remove processes, network namespaces with their devices, and files of the demo in `directory`."""
    for _ in range(_ROUNDS):
        pids, namespaces = marked_processes(MARK, str(directory)), _namespaces(directory.name)
        if not pids and not namespaces:
            break
        kill_and_wait(pids)
        for namespace in namespaces:
            delete_namespace(namespace)
    shutil.rmtree(directory, ignore_errors=True)
    for empty in (BASE, BASE.parent):
        with suppress(OSError):
            empty.rmdir()


def _namespaces(name: str) -> list[str]:
    words = (line.split() for line in run(["ip", "netns", "list"]).stdout.splitlines())
    return [found[0] for found in words if found and found[0].startswith(f"xo-{name}-")]
