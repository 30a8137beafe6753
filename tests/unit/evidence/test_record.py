"""Recorded files that do not end, or have another content, are refused with a message and little memory."""

from __future__ import annotations

import gzip
import io
import json
import os
import sys
import threading
from pathlib import Path

import pytest

from tests.command_line import CommandLine
from xenoovs.evidence import record as recorded
from xenoovs.evidence.record import open_lines, read_text

GOLDEN = Path(__file__).parents[2] / "golden" / "verify"
CONFIG, DUMP = GOLDEN / "dns.yaml", GOLDEN / "in_hardware.dump"
COMMANDS = (("verify-offload", CONFIG), ("verify-offload", "--bridge", "br0"), ("why", CONFIG))


@pytest.fixture(params=COMMANDS, ids=["config", "bridge", "why"])
def command(request: pytest.FixtureRequest) -> tuple[object, ...]:
    """Each command that takes a recorded dump."""
    found: tuple[object, ...] = request.param
    return found


def _refused(xenoovs: CommandLine, command: tuple[object, ...], dump: object) -> str:
    result = xenoovs(*command, "--from-dump", dump)
    assert (result.status, result.out) == (1, "")
    assert result.err.count("\n") == 1
    return result.err


def test_a_packed_dump(xenoovs: CommandLine, command: tuple[object, ...], tmp_path: Path) -> None:
    (tmp_path / "dump.gz").write_bytes(gzip.compress(DUMP.read_bytes()))
    assert "it is compressed: unpack it, as with `zcat`" in _refused(xenoovs, command, tmp_path / "dump.gz")


def test_a_pipe_without_a_writer(
    xenoovs: CommandLine, command: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded, "_WRITER_PATIENCE_S", 0.1)
    os.mkfifo(tmp_path / "pipe")
    assert "it is a pipe that no process opened to write" in _refused(xenoovs, command, tmp_path / "pipe")


def test_one_line_without_end(xenoovs: CommandLine, command: tuple[object, ...], tmp_path: Path) -> None:
    (tmp_path / "dump").write_bytes(b"ufid:1, in_port(p0)," + b"x" * (3 << 20))
    assert "line 1 has more than 1024 KiB" in _refused(xenoovs, command, tmp_path / "dump")


def test_text_without_end_that_is_no_dump(xenoovs: CommandLine, command: tuple[object, ...], tmp_path: Path) -> None:
    (tmp_path / "dump").write_bytes(b"y\n" * 20_000)
    assert "no megaflow is in its first 10000 lines" in _refused(xenoovs, command, tmp_path / "dump")


def test_more_than_is_read(
    xenoovs: CommandLine, command: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded, "MAX_DUMP_BYTES", 1 << 20)
    (tmp_path / "dump").write_text(DUMP.read_text() * 1000)
    assert "it has more than 1 MiB, and no more is read" in _refused(xenoovs, command, tmp_path / "dump")


def test_a_pipe_with_a_writer_is_read_like_a_file(xenoovs: CommandLine, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(DUMP.read_bytes()))
    writer.start()
    piped = xenoovs("verify-offload", CONFIG, "--from-dump", pipe)
    writer.join()
    assert piped == xenoovs("verify-offload", CONFIG, "--from-dump", DUMP)


def test_so_is_standard_input(xenoovs: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(DUMP.read_bytes()))))
    piped = xenoovs("verify-offload", CONFIG, "--from-dump", "-")
    assert piped == xenoovs("verify-offload", CONFIG, "--from-dump", DUMP)


@pytest.fixture
def odd_ends(tmp_path: Path) -> Path:
    path = tmp_path / "text"
    path.write_bytes(b"one\r\ntwo \xff\n\nthree")
    return path


def test_ends_of_lines_and_bytes_that_are_no_text(odd_ends: Path) -> None:
    with open_lines(odd_ends) as lines:
        assert list(lines) == ["one\n", "two \\xff\n", "\n", "three"]
    assert read_text(odd_ends) == "one\ntwo \\xff\n\nthree"


def test_a_character_on_the_border_of_two_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "_CHUNK_BYTES", 3)
    (tmp_path / "text").write_text("aaé€\nbb€\n")
    assert read_text(tmp_path / "text") == "aaé€\nbb€\n"


@pytest.mark.parametrize("indent", [None, 2], ids=["compact", "pretty"])
def test_a_dump_in_a_json_reply_of_newer_tools_is_read_as_the_dump(
    indent: int | None, xenoovs: CommandLine, command: tuple[object, ...], tmp_path: Path
) -> None:
    """From 3.4 on, `ovs-appctl --format json [--pretty] dpctl/dump-flows` wraps a dump that is not structured."""
    reply = {"reply": DUMP.read_text(), "reply-format": "plain"}
    (tmp_path / "dump.json").write_text(json.dumps(reply, indent=indent))
    plain, wrapped = (xenoovs(*command, "--from-dump", path) for path in (DUMP, tmp_path / "dump.json"))
    assert (wrapped.status, wrapped.err) == (plain.status, plain.err)
    assert wrapped.out.replace("dump.json", DUMP.name) == plain.out.replace(str(DUMP.parent), str(tmp_path))


@pytest.mark.parametrize(
    "text", ['{"reply":"ufid', '{"reply":[]}', '{"reply":' + "[" * 100_000], ids=["cut", "list", "deep"]
)
def test_a_json_reply_that_is_damaged(
    text: str, xenoovs: CommandLine, command: tuple[object, ...], tmp_path: Path
) -> None:
    (tmp_path / "dump.json").write_text(text)
    assert "JSON" in _refused(xenoovs, command, tmp_path / "dump.json")
