"""Options of verify-offload that exclude each other, and files that are not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command_line import CommandLine

GOLDEN = Path(__file__).parents[2] / "golden" / "verify"
CONFIG, DUMP = str(GOLDEN / "dns.yaml"), str(GOLDEN / "in_hardware.dump")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((), "either the config FILE, or --bridge NAME"),
        ((CONFIG, "--bridge", "br0"), "either the config FILE, or --bridge NAME"),
        ((CONFIG, "--from-dump", DUMP, "--wait", "1s"), "--from-dump asks no switch, so --wait has no use"),
        ((CONFIG, "--from-dump", DUMP, "--watch"), "so --watch has no use"),
        ((CONFIG, "--from-dump", DUMP, "--lab", "x"), "so --lab has no use"),
        ((CONFIG, "--from-flows", DUMP), "--from-flows goes with"),
        (("-", "--from-dump", "-"), "standard input can be only one"),
        ((CONFIG, "--wait", "1s", "--watch"), "--wait and --watch exclude each other"),
        (("--bridge", "br0", "--blocks"), "need the config FILE"),
        ((CONFIG, "--wait", "soon"), "not a time"),
        ((CONFIG, "--require", "most"), "not a share"),
    ],
)
def test_wrong_usage(options: tuple[str, ...], told: str, xenoovs: CommandLine) -> None:
    said = xenoovs("verify-offload", *options)
    assert (said.status, told in said.err) == (64, True), said.err


def test_a_dump_that_is_not_there(xenoovs: CommandLine) -> None:
    said = xenoovs("verify-offload", CONFIG, "--from-dump", "/nowhere/dump")
    assert (said.status, said.out) == (1, "")
    assert "/nowhere/dump: No such file" in said.err


def test_bytes_that_are_no_text_are_torn_lines(tmp_path: Path, xenoovs: CommandLine) -> None:
    dump = tmp_path / "dump"
    dump.write_bytes(Path(DUMP).read_bytes() + b"ufid:\xff\xfe, in_port(\x00\n")
    said = xenoovs("verify-offload", CONFIG, "--from-dump", dump)
    assert said.status == 0
    assert "lines that could not be read (1)" in said.out
