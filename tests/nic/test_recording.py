"""A part of the recording that fails, without a machine."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.nic import vm
from xenoovs.errors import LabError
from xenoovs.lab.nic.machine import VirtualMachine

PARTS = ("accepted", "other_actions", "foreign_port")


@pytest.fixture
def boots(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[VirtualMachine]:
    """The machines that have booted; `other_actions` ends each of them."""
    booted: list[VirtualMachine] = []

    @contextmanager
    def boot(_recording: vm.Recording) -> Iterator[VirtualMachine]:
        booted.append(VirtualMachine(tmp_path))
        yield booted[-1]

    def lines(_machine: VirtualMachine, _module: str, _job: str, *, stdin: Iterable[str]) -> Iterator[str]:
        for scenario in stdin:
            if scenario == "other_actions":
                raise LabError("the virtual machine has ended")
            yield json.dumps({"scenario": scenario})

    monkeypatch.setattr(vm.Recording, "_booted", boot)
    monkeypatch.setattr(vm, "_lines", lines)
    monkeypatch.setattr(vm, "_compile", lambda _config: "")
    monkeypatch.setattr(vm, "build_module", lambda _kernel: Path("eswitch.ko"))
    for name in ("prepare", "unpacked_kernel"):
        monkeypatch.setattr(vm, name, lambda: None)
    return booted


def test_a_part_that_ends_its_machine_fails_alone(
    boots: list[VirtualMachine], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(vm, "_MACHINES", 1)
    with vm.Recording(PARTS, tmp_path / "records") as recording:
        records = {part: recording.record(part) for part in PARTS}
    assert records["accepted"] == {"scenario": "accepted"}
    assert records["other_actions"] == {"error": "LabError: the virtual machine has ended"}
    assert records["foreign_port"] == {"scenario": "foreign_port"}
    assert len(boots) == 2


def test_without_a_machine_that_boots_all_parts_fail(
    boots: list[VirtualMachine], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(_recording: vm.Recording) -> None:
        raise vm.BootError("the virtual machine does not answer")

    monkeypatch.setattr(vm.Recording, "_booted", refuse)
    with vm.Recording(PARTS, tmp_path / "records") as recording:
        errors = {recording.record(part)["error"] for part in PARTS}
    assert errors == {"BootError: the virtual machine does not answer"}
