"""Which files are copied with a command into the virtual machine of a lab, and commands without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command_line import CommandLine
from xenoovs.lab import target as lab_vm


def test_files_that_are_named_go_with_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.yaml").write_bytes(b"version: 1\r\n\xff")
    (tmp_path / "dump.txt").write_text("a dump")
    found = lab_vm._files(["verify-offload", "my.yaml", f"--from-dump={tmp_path}/dump.txt", "--lab", "one"])
    assert found == {f"{tmp_path}/my.yaml": "version: 1\r\n\udcff", f"{tmp_path}/dump.txt": "a dump"}


@pytest.mark.parametrize("word", ["/proc/self/status", "/sys/class/net/lo/mtu", "/bin/sh", "/", ""])
def test_what_the_machine_has_of_its_own_does_not(word: str) -> None:
    assert lab_vm._files([word]) == {}


def test_without_a_machine_a_lab_is_sought_on_this_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XENOOVS_LAB_DIRECTORY", str(tmp_path))
    result = CommandLine(capsys)("lab", "exec", "--lab", "none", "--", "true")
    assert (result.status, result.out) == (1, "")
    assert "there is no lab none" in result.err
