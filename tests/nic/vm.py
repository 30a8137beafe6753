"""Boots three virtual machines with the emulated NIC and brings back the record of each part as soon as it is complete.

`python -m tests.nic.vm [PART ...]` does it (all parts by default) and prints where the records are; as root. A part is
a scenario, `lab` or `hardware`.
"""

from __future__ import annotations

import argparse
import compileall
import json
import sys
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from tests.machines import prepare
from tests.nic.ending import scratch_directory
from tests.nic.guest.catalogue import SCENARIOS
from xenoovs.cli import nic_guest
from xenoovs.cli.main import run as run_xenoovs
from xenoovs.errors import CommandFailed, LabError
from xenoovs.lab.nic.call import guest_place
from xenoovs.lab.nic.machine import VirtualMachine, boot, build_module, unpacked_kernel
from xenoovs.lab.nic.up import wait_until_ready
from xenoovs.lab.place import RemoteCommand

if TYPE_CHECKING:
    from tests.nic.test_lab import Lab

LAB, HARDWARE = "lab", "hardware"
PARTS = (LAB, HARDWARE, *SCENARIOS)
"""In the order in which they are begun: those that last longest first."""

_REPOSITORY = Path(__file__).parents[2]
_BALANCERS = Path(__file__).parent / "balancers"
# Each has one core and waits for nearly half of its time, for which two cores have room.
_MACHINES = 3
# A part takes 10 to 100 s on two idle cores. When one exceeds this it fails, and the others continue in a new machine.
_PART_TIMEOUT_S = 1800.0
_BOOT_TIMEOUT_S = 1800.0

Record = dict[str, Any]


class BootError(Exception):
    """A machine does not boot."""


class Recording:
    """Records `parts` in machines beside each other."""

    def __init__(self, parts: Collection[str], directory: Path, *, rows: Sequence[str] = ()) -> None:
        """`directory` is made; each record is also written there, as PART.json. `rows`: tests of tests/hardware."""
        self._directory, self._rows = directory, rows
        self._records = {part: Future[Record]() for part in PARTS if part in parts}
        self._waiting = deque(self._records)
        self._stack = ExitStack()
        self._running: list[VirtualMachine | Lab] = []
        self._workers = [Thread(target=self._work) for _ in range(_MACHINES)]

    def __enter__(self) -> Recording:
        self._directory.mkdir(parents=True)
        prepare()
        self._scratch = self._stack.enter_context(scratch_directory())
        for package in ("xenoovs", "tests"):
            # Emulated, compiling takes seconds, and what the guest writes is lost with it.
            compileall.compile_dir(_REPOSITORY / package, quiet=2)
        self._programs = {path.stem: _compile(path) for path in sorted(_BALANCERS.glob("*.yaml"))}
        for worker in self._workers:
            worker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._waiting.clear()
        for each in self._running:
            each.kill()
        for worker in self._workers:
            worker.join()
        self._stack.close()

    def record(self, part: str) -> Record:
        """Return the record of a part when it is complete; it has the key `error` when the part failed."""
        return self._records[part].result()

    def _work(self) -> None:
        """Record one part after the other, until none waits. `current`: what this thread records, at most one part."""
        current = deque[str]()
        while self._take(current):
            try:
                if current[0] == LAB:
                    self._finish(current, self._lab_record())
                else:
                    self._use_machine(current)
            except Exception as error:  # noqa: BLE001 (the tests of the part show it)
                # After an error of a machine that has recorded all there is nothing to fail.
                while current:
                    self._finish(current, {"error": "".join(traceback.format_exception(error))})
                    # Without a machine that boots nothing can go on.
                    if isinstance(error, BootError):
                        self._take(current)

    def _take(self, current: deque[str]) -> bool:
        """Begin the next part; return whether there is one."""
        # The other thread may take the last one.
        with suppress(IndexError):
            current.append(self._waiting.popleft())
        return bool(current)

    def _use_machine(self, current: deque[str]) -> None:
        """Record the current part, and in the same machine all scenarios that wait."""
        with self._booted() as machine:
            module = str(build_module(unpacked_kernel()))
            if current[0] == HARDWARE:
                [line] = _lines(machine, "tests.nic.guest.hardware", module, *self._rows)
                self._finish(current, json.loads(line))
                if not self._take(current):
                    return
            job = json.dumps({"module": module, "programs": self._programs})
            for line in _lines(machine, "tests.nic.guest.main", job, stdin=self._scenarios(current)):
                self._finish(current, json.loads(line))

    def _scenarios(self, current: deque[str]) -> Iterator[str]:
        """Yield the current part, and, as soon as one is finished, the next."""
        while current or self._take(current):
            yield current[0]

    def _lab_record(self) -> Record:
        # Imported when pytest has read it: its assertions show their values.
        from tests.nic.test_lab import Lab, use

        lab = Lab(self._new_directory())
        self._running.append(lab)
        return use(lab)

    @contextmanager
    def _booted(self) -> Iterator[VirtualMachine]:
        kernel = unpacked_kernel()
        machine = boot(kernel, self._new_directory(), module=nic_guest.__name__)
        self._running.append(machine)
        try:
            try:
                wait_until_ready(machine, timeout_s=_BOOT_TIMEOUT_S)
            except LabError as error:
                raise BootError(str(error)) from None
            yield machine
        finally:
            machine.kill()

    def _new_directory(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self._scratch))

    def _finish(self, current: deque[str], record: Record) -> None:
        part = current.popleft()
        (self._directory / f"{part}.json").write_text(json.dumps(record))
        self._records[part].set_result(record)


def record_all(parts: Collection[str], directory: Path) -> dict[str, Record]:
    """Return the records of `parts` by name. Raises LabError when one of them failed."""
    with Recording(parts, directory) as recording:
        records = {part: recording.record(part) for part in parts}
    for part, record in records.items():
        if record.get("error"):
            raise LabError(f"{part}: {record['error']}")
    return records


def _lines(machine: VirtualMachine, module: str, *arguments: str, stdin: Iterable[str] = ()) -> Iterator[str]:
    """The lines that a Python module prints in the guest, each as soon as it is complete.

    It is given the first line of `stdin` at the start, and another one after each that it has printed.
    """
    argv, lines = ("python", "-m", module, *arguments), iter(stdin)
    with guest_place(machine) as place:
        command = place.start(argv, stdin="", directory=str(_REPOSITORY))
        _feed(command, next(lines, None))
        # Each line has the whole time.
        while (line := next(command.lines(_PART_TIMEOUT_S), None)) is not None:
            yield line
            _feed(command, next(lines, None))
        done = command.wait(_PART_TIMEOUT_S)
    # Not `sys.stderr`: a test may capture that, of which this thread is no part.
    print(done.stderr, end="", file=sys.__stderr__)
    if done.exit_code != 0:
        raise CommandFailed(argv=argv, exit_code=done.exit_code, stdout="", stderr=done.stderr)


def _feed(command: RemoteCommand, line: str | None) -> None:
    if line is None:
        command.close_input()
    else:
        command.feed(f"{line}\n")


def _compile(config: Path) -> str:
    with redirect_stdout(StringIO()) as flows:
        run_xenoovs(["validate", "--flows", str(config)])
    return flows.getvalue()


def main(arguments: Sequence[str] | None = None) -> None:
    """Record the parts named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], metavar="PART", help=", ".join(PARTS))
    parts = parser.parse_args(arguments).parts or PARTS
    directory = Path(tempfile.mkdtemp(prefix="xenoovs-nic-")) / "records"
    started = time.monotonic()
    with Recording(parts, directory) as recording:
        for part in parts:
            error = recording.record(part).get("error")
            print(f"{time.monotonic() - started:4.0f} s  {part}: {error or 'recorded'}")
    print(f"records: {directory}")


if __name__ == "__main__":
    main()
