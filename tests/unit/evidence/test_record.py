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
from xenoovs.datapath.megaflow import Megaflow, Verdict, verdict_of
from xenoovs.datapath.parse import parse_dump
from xenoovs.evidence import record as recorded
from xenoovs.evidence.record import Transcript, open_lines, read_text

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


UNUSABLE: dict[str, tuple[bytes, str]] = {
    "packed": (gzip.compress(DUMP.read_bytes()), "it is compressed: unpack it, as with `zcat`"),
    "one line without end": (b"ufid:1, in_port(p0)," + b"x" * (3 << 20), "line 1 has more than 1024 KiB"),
    "no dump, without end": (b"y\n" * 20_000, "no megaflow is in its first 10000 lines"),
    "more than is read": (DUMP.read_bytes() * 1000, "it has more than 1 MiB, and no more is read"),
    "a JSON reply that is cut": (b'{"reply":"ufid', "JSON"),
    "a JSON reply with a list": (b'{"reply":[]}', "JSON"),
    "a deep JSON reply": (b'{"reply":' + b"[" * 100_000, "JSON"),
}


@pytest.mark.parametrize(("content", "message"), UNUSABLE.values(), ids=UNUSABLE)
def test_a_file_that_is_no_dump_is_refused(
    content: bytes,
    message: str,
    xenoovs: CommandLine,
    command: tuple[object, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if "MiB" in message:
        monkeypatch.setattr(recorded, "MAX_DUMP_BYTES", 1 << 20)
    (tmp_path / "dump").write_bytes(content)
    assert message in _refused(xenoovs, command, tmp_path / "dump")


def test_a_pipe_without_a_writer(
    xenoovs: CommandLine, command: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded, "_WRITER_PATIENCE_S", 0.1)
    os.mkfifo(tmp_path / "pipe")
    assert "it is a pipe that no process opened to write" in _refused(xenoovs, command, tmp_path / "pipe")


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


def test_ends_of_lines_and_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"one\r\ntwo \xff\n\nthree")
    with open_lines(tmp_path / "text") as lines:
        assert list(lines) == ["one\n", "two \\xff\n", "\n", "three"]
    assert read_text(tmp_path / "text") == "one\ntwo \\xff\n\nthree"


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


KEYS = "recirc_id(0),in_port(2),eth_type(0x0800),ipv4(frag=no)"
BARE = f"{KEYS}, packets:3, bytes:294, used:0.3s, actions:3"
SLOW = f"{KEYS}, packets:3, bytes:294, used:0.3s, actions:userspace(pid=1,slow_path(action))"
WITH_M = f"ufid:11111111-0000-4000-8000-000000000001, {KEYS}, packets:3, bytes:294, used:0.3s, dp:tc, actions:p1"


def _read(text: str) -> tuple[list[Megaflow], Transcript]:
    transcript = Transcript(text.splitlines(keepends=True))
    return list(parse_dump(transcript)), transcript


@pytest.mark.parametrize(
    "prompt",
    ["[root@node2 ~]# ", "root@node2:~# ", "user@host:/var/log$ sudo ", "$ ", "# ", "", "sudo ", "+ ", "[root@a b]$ "],
)
def test_a_prompt_is_no_megaflow(prompt: str) -> None:
    megaflows, transcript = _read(f"{prompt}ovs-appctl dpctl/dump-flows -m\n{WITH_M}\n{prompt.removesuffix('sudo ')}\n")
    assert (len(megaflows), transcript.dumps, transcript.is_complete) == (1, 1, True)


@pytest.mark.parametrize(
    ("options", "verdict"),
    [
        ("type=offloaded", Verdict.HW),
        ("type=dpdk", Verdict.HW),
        ("type=partially-offloaded", Verdict.PARTIAL),
        ("type=ovs", Verdict.SW),
        ("type=non-offloaded", Verdict.SW),
        ("type=tc", None),
        ("type=tc,offloaded", None),
        ("", None),
    ],
)
def test_the_type_of_the_command_gives_the_layer_of_megaflows(options: str, verdict: Verdict | None) -> None:
    megaflows, transcript = _read(f"[root@node ~]# ovs-appctl dpctl/dump-flows {options}\n{BARE}\n")
    assert [verdict_of(megaflow) for megaflow in megaflows] == [verdict]
    assert transcript.is_complete == (not options)


@pytest.mark.parametrize("options", ["-m filter='in_port(p0)'", "-m | grep p0", "-m type=ovs"])
def test_a_selection_is_not_complete(options: str) -> None:
    assert not _read(f"# ovs-appctl dpctl/dump-flows {options}\n{WITH_M}\n")[1].is_complete


@pytest.mark.parametrize("ruler", ["--", "-----", "```", "```text", "~~~", "...", "[..]", "====="])
def test_bug_a_ruler_behind_a_dump_was_taken_for_the_rest_of_a_wrapped_line(ruler: str) -> None:
    """The port of the last megaflow was `3--`."""
    megaflows, _ = _read(f"{WITH_M}\n{ruler}\n{BARE}\n{ruler}\n")
    assert [megaflow.actions for megaflow in megaflows] == [("p1",), ("3",)]


OTHER_OUTPUT = (
    "2019-09-23T03:15:37Z|00001|dpif_netlink|INFO|The kernel module does not support meters.\n"
    f"{BARE}\n# a comment\n{BARE}\n[root@node ~]# ovs-vsctl show\n    Bridge br-int\n        fail_mode: secure\n"
)


@pytest.mark.parametrize(
    ("text", "verdicts"),
    [
        (f"{SLOW}\n{BARE}\n", [Verdict.SW, None]),
        (f"$ ovs-appctl dpctl/dump-flows -m type=ovs\n{WITH_M}\n", [Verdict.TC_SW]),
        (OTHER_OUTPUT, [None, None]),
    ],
    ids=["the slow path is software without -m", "the layer in the dump counts", "output of others is skipped"],
)
def test_verdicts_of_a_transcript(text: str, verdicts: list[Verdict | None]) -> None:
    assert [verdict_of(megaflow) for megaflow in _read(text)[0]] == verdicts


def test_without_a_command_line_completeness_is_unknown() -> None:
    megaflows, transcript = _read(f"{WITH_M}\n")
    assert (len(megaflows), transcript.dumps, transcript.is_complete) == (1, 0, False)


def test_two_dumps_in_one_file_are_remarked() -> None:
    command = "[root@node ~]# ovs-appctl dpctl/dump-flows -m\n"
    _, transcript = _read(f"{command}{WITH_M}\n{command}{WITH_M}\n")
    assert [remark.partition(",")[0] for remark in transcript.remarks()] == ["the file has 2 dumps"]


def test_wrapped_lines_below_a_prompt_are_joined() -> None:
    text = f"[root@node ~]# ovs-appctl dpctl/dump-flows -m\n{WITH_M[:90]}\n{WITH_M[90:]}\n"
    assert [megaflow.actions for megaflow in _read(text)[0]] == [("p1",)]
