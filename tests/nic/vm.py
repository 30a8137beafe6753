"""Boots two virtual machines with the emulated NIC and brings back the record of each part as soon as it is complete.

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
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

from tests.machines import prepare
from tests.nic.ending import scratch_directory
from tests.nic.guest.catalogue import SCENARIOS
from tests.nic.lab_story import LabStory
from xenoovs.cli import nic_guest
from xenoovs.config.templates import read_template
from xenoovs.errors import CommandFailed, LabError
from xenoovs.lab.nic.call import conversation
from xenoovs.lab.nic.frames import FrameKind, GuestCommand
from xenoovs.lab.nic.machine import VirtualMachine, boot, build_module, start_module, unpacked_kernel
from xenoovs.lab.nic.up import wait_until_ready
from xenoovs.switch.process import run

LAB, HARDWARE = "lab", "hardware"
PARTS = (LAB, HARDWARE, *SCENARIOS)

_REPOSITORY = Path(__file__).parents[2]
_BALANCERS = Path(__file__).parent / "balancers"
# Scenarios of the machine that runs after the lab, and has the hardware suite too: as many as make both end together.
_SECOND_SHARE = 6
# A part takes 10 to 100 s on two idle cores. When one exceeds this it fails, and the others continue in a new machine.
_PART_TIMEOUT_S = 1800.0
_BOOT_TIMEOUT_S = 1800.0

Record = dict[str, Any]


class BootError(Exception):
    """A machine does not boot."""


class Recording:
    """Records `parts` in two machines, as each keeps hardly more than one core busy and waits often."""

    def __init__(self, parts: Collection[str], directory: Path) -> None:
        """`directory` is made; each record is also written there, as PART.json."""
        self._directory = directory
        self._records = {part: Future[Record]() for part in PARTS if part in parts}
        self._stopped = Event()
        self._stack = ExitStack()
        self._running: list[VirtualMachine | LabStory] = []
        scenarios = [part for part in self._records if part in SCENARIOS]
        second = scenarios[-_SECOND_SHARE:]
        first = [part for part in scenarios if part not in second]
        others = [part for part in self._records if part not in SCENARIOS]
        self._workers = [Thread(target=self._work, args=(deque(share),)) for share in (first, [*others, *second])]

    def __enter__(self) -> Recording:
        self._directory.mkdir(parents=True)
        prepare()
        self._scratch = self._stack.enter_context(scratch_directory())
        for package in ("xenoovs", "tests"):
            # Emulated, compiling takes seconds, and what the guest writes is lost with it.
            compileall.compile_dir(_REPOSITORY / package, quiet=2)
        for worker in self._workers:
            worker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        for each in self._running:
            each.kill()
        for worker in self._workers:
            worker.join()
        self._stack.close()

    def record(self, part: str) -> Record:
        """Return the record of a part when it is complete; it has the key `error` when the part failed."""
        return self._records[part].result()

    def _work(self, parts: deque[str]) -> None:
        while parts and not self._stopped.is_set():
            try:
                if parts[0] == LAB:
                    self._finish(parts, self._lab_record())
                else:
                    self._use_machine(parts)
            except Exception as error:  # noqa: BLE001 (the tests of the part show it)
                # The machine is killed as soon as the last record has come. Without one that boots nothing can go on.
                failed = len(parts) if isinstance(error, BootError) else min(1, len(parts))
                for _ in range(failed):
                    self._finish(parts, {"error": f"{type(error).__name__}: {error}"})
        while parts:
            self._finish(parts, {"error": "the recording was stopped"})

    def _use_machine(self, parts: deque[str]) -> None:
        with self._booted() as machine:
            module = str(build_module(unpacked_kernel()))
            if parts[0] == HARDWARE:
                [line] = _lines(machine, "tests.nic.guest.hardware", module)
                self._finish(parts, json.loads(line))
            if not parts:
                return
            programs = {path.stem: _compile(path) for path in sorted(_BALANCERS.glob("*.yaml"))}
            job = {"module": module, "scenarios": list(parts), "programs": programs}
            for line in _lines(machine, "tests.nic.guest.main", stdin=json.dumps(job)):
                self._finish(parts, json.loads(line))

    def _lab_record(self) -> Record:
        story = LabStory(self._new_directory())
        self._running.append(story)
        return story.record(read_template("quickstart"))

    @contextmanager
    def _booted(self) -> Iterator[VirtualMachine]:
        kernel = unpacked_kernel()
        machine = boot(kernel, self._new_directory(), start=start_module(nic_guest.__name__, kernel))
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

    def _finish(self, parts: deque[str], record: Record) -> None:
        part = parts.popleft()
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


def _lines(machine: VirtualMachine, module: str, *arguments: str, stdin: str = "") -> Iterator[str]:
    """The lines that a Python module prints in the guest, each as soon as it is complete."""
    command = GuestCommand(("python", "-m", module, *arguments), str(_REPOSITORY))
    output, errors = b"", b""
    for kind, payload in conversation(machine, command, stdin=stdin, timeout_s=_PART_TIMEOUT_S):
        if kind is FrameKind.OUTPUT:
            *lines, output = (output + payload).split(b"\n")
            yield from (line.decode() for line in lines)
        elif kind is FrameKind.ERROR:
            errors += payload
            sys.stderr.write(payload.decode(errors="replace"))
        elif payload != b"0":
            raise CommandFailed(argv=command.argv, exit_code=int(payload), stdout="", stderr=errors.decode())


def _compile(config: Path) -> str:
    # The console script beside this interpreter: what a user types.
    return run([str(Path(sys.executable).with_name("xenoovs")), "compile", str(config)], timeout_s=600.0).stdout


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
