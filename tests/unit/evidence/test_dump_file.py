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
from tests.judged import assert_recorded
from xenoovs.datapath.megaflow import verdict_of
from xenoovs.datapath.parse import parse_dump
from xenoovs.evidence import dump_file
from xenoovs.evidence.dump_file import Transcript, open_lines, read_text

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
        monkeypatch.setattr(dump_file, "MAX_DUMP_BYTES", 1 << 20)
    (tmp_path / "dump").write_bytes(content)
    assert message in _refused(xenoovs, command, tmp_path / "dump")


def test_a_pipe_without_a_writer(
    xenoovs: CommandLine, command: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dump_file, "_WRITER_PATIENCE_S", 0.1)
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
    monkeypatch.setattr(dump_file, "_CHUNK_BYTES", 3)
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

OTHER_OUTPUT = (
    "2019-09-23T03:15:37Z|00001|dpif_netlink|INFO|The kernel module does not support meters.\n"
    f"{BARE}\n# a comment\n{BARE}\n[root@node ~]# ovs-vsctl show\n    Bridge br-int\n        fail_mode: secure\n"
)
PROMPTS = ("[root@node2 ~]# ", "root@node2:~# ", "user@host:/var/log$ sudo ", "$ ", "# ", "", "sudo ", "[root@a b]$ ")
TYPES = ("offloaded", "dpdk", "partially-offloaded", "ovs", "non-offloaded", "tc", "tc,offloaded")
COMMAND = "ovs-appctl dpctl/dump-flows"
TRANSCRIPTS = {
    **{f"prompt {prompt!r}": f"{prompt}{COMMAND} -m\n{WITH_M}\n{prompt.removesuffix('sudo ')}\n" for prompt in PROMPTS},
    # Bug: the port of the last megaflow was `p1+ ovs-vsctl show`.
    "the trace of a shell (set -x)": f"+ {COMMAND} -m\n{WITH_M}\n+ ovs-vsctl show\n",
    # The type of the command gives the layer of megaflows.
    **{f"type={layer}": f"[root@node ~]# {COMMAND} type={layer}\n{BARE}\n" for layer in TYPES},
    "no type": f"[root@node ~]# {COMMAND} \n{BARE}\n",
    "a type, but the layer in the dump counts": f"$ {COMMAND} -m type=ovs\n{WITH_M}\n",
    "a filter": f"# {COMMAND} -m filter='in_port(p0)'\n{WITH_M}\n",
    "a selection of lines": f"# {COMMAND} -m | grep p0\n{WITH_M}\n",
    # Bug: the port of the last megaflow was `3--`, as of a wrapped line.
    **{
        f"ruler {ruler}": f"{WITH_M}\n{ruler}\n{BARE}\n{ruler}\n"
        for ruler in ("--", "-----", "```", "```text", "~~~", "...", "[..]", "=====")
    },
    "the slow path is software without -m": f"{SLOW}\n{BARE}\n",
    "output of others": OTHER_OUTPUT,
    "no command": f"{WITH_M}\n",
    "two dumps": 2 * f"[root@node ~]# {COMMAND} -m\n{WITH_M}\n",
    "wrapped lines": f"[root@node ~]# {COMMAND} -m\n{WITH_M[:90]}\n{WITH_M[90:]}\n",
}


def test_what_is_read_of_a_transcript(*, update_golden: bool) -> None:
    assert_recorded(
        "parsed/transcripts.txt", {title: _shown(text) for title, text in TRANSCRIPTS.items()}, update=update_golden
    )


def _shown(text: str) -> str:
    """Verdict and actions of each megaflow, and what is said of the whole."""
    transcript = Transcript(text.splitlines(keepends=True))
    found = [(verdict_of(megaflow), ",".join(megaflow.actions)) for megaflow in parse_dump(transcript)]
    lines = [f"{'no verdict' if verdict is None else verdict.value} -> {actions}" for verdict, actions in found]
    whole = "complete" if transcript.is_complete else "perhaps not complete"
    return "\n".join([*lines, f"dumps: {transcript.dumps}, {whole}", *transcript.remarks()])
