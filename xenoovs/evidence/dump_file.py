"""Files that were recorded elsewhere: dumps, flows, logs. They are read as streams, up to a limit."""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import contextmanager
from dataclasses import replace
from io import BufferedReader, BytesIO
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, cast

from xenoovs.datapath.parse import rejoin_lines
from xenoovs.display import span
from xenoovs.errors import FileUnusable
from xenoovs.regex import ASCII, regex

if TYPE_CHECKING:
    from xenoovs.evidence.evidence import Evidence
    from xenoovs.openflow.flow import ObservedFlow

MAX_DUMP_BYTES = 2 << 30
"""Size limit of a dump: about four million megaflows; Open vSwitch has at most 200,000 by default (`flow-limit`)."""

MAX_TEXT_BYTES = 256 << 20
"""Size limit of other files: half a million flows, or the log of some months."""

MAX_LINE_BYTES = 1 << 20
"""Actions of one megaflow have at most 32 KiB in the kernel's own form (MAX_ACTIONS_BUFSIZE, net/openvswitch)."""

_Read = Callable[[int], bytes]
"""Returns some bytes, at most as many as given; none at the end."""

_MOST_WITHOUT = 10_000
_CHUNK_BYTES = 1 << 18
_WRITER_PATIENCE_S = 5.0
_WRITER_STEP_S = 0.05
_GZIP, _XZ, _ZSTD = b"\x1f\x8b", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd"
"""First bytes (RFC 1952, 2.3.1; RFC 8878, 3.1.1; The .xz File Format, 2.1.1.1)."""
_FEW = 8
"""A damaged line may have some zero bytes; of random bytes one in 256 is zero."""

_UNPACKERS = {_GZIP: "zcat", _XZ: "xzcat", _ZSTD: "zstdcat"}


@contextmanager
def open_lines(path: Path, *, max_bytes: int | None = None) -> Iterator[Iterator[str]]:
    """Yield the lines of a text file, or of standard input for `-`; bytes that are no UTF-8 become escapes. Raises
    OSError. The lines raise FileUnusable if the file is no text, or longer than `max_bytes`, by default
    MAX_DUMP_BYTES."""
    max_bytes = MAX_DUMP_BYTES if max_bytes is None else max_bytes
    if str(path) == "-":
        yield _lines(cast(BufferedReader, sys.stdin.buffer).read1, "standard input", max_bytes)
        return
    # Without O_NONBLOCK, open(2) of a named pipe waits for ever if no process writes to it.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        yield _lines(_reader(descriptor, str(path)), str(path), max_bytes)
    finally:
        os.close(descriptor)


@contextmanager
def open_dump(path: Path) -> Iterator[Transcript]:
    """Yield the lines of a dump of megaflows, wrapped ones joined. Raises what `open_lines` raises, also without
    any."""
    with open_lines(path) as lines:
        yield Transcript(_having_megaflows(lines, "standard input" if str(path) == "-" else str(path)))


def _having_megaflows(lines: Iterator[str], name: str) -> Iterator[str]:
    for number, line in enumerate(lines, start=1):
        yield line
        if "actions:" in line:
            break
        if number == _MOST_WITHOUT:
            reason = f"no megaflow is in its first {number} lines; `ovs-appctl dpctl/dump-flows -m` writes a dump"
            raise FileUnusable(file=name, reason=reason)
    yield from lines


def read_text(path: Path) -> str:
    """Return the text of a file. Raises OSError, FileUnusable."""
    with open_lines(path, max_bytes=MAX_TEXT_BYTES) as lines:
        return "".join(lines)


def _reader(descriptor: int, name: str) -> _Read:
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISDIR(mode):
        raise FileUnusable(file=name, reason="it is a directory")
    first = _first_of_pipe(descriptor, name) if stat.S_ISFIFO(mode) else b""
    os.set_blocking(descriptor, True)
    begun = [first] if first else []
    return lambda size: begun.pop() if begun else os.read(descriptor, size)


def _first_of_pipe(descriptor: int, name: str) -> bytes:
    """Return the first bytes of a pipe. Wait some time for a process that opens it to write."""
    deadline = time.monotonic() + _WRITER_PATIENCE_S
    while time.monotonic() < deadline:
        try:
            first = os.read(descriptor, _CHUNK_BYTES)
        except BlockingIOError:
            # There is a writer, who has written nothing yet (pipe(7), "I/O on pipes and FIFOs").
            return b""
        if first:
            return first
        time.sleep(_WRITER_STEP_S)
    raise FileUnusable(file=name, reason=f"it is a pipe that no process opened to write for {span(_WRITER_PATIENCE_S)}")


_WRAPPED = regex(rb'\s*\{\s*"reply"\s*:')


def _unwrapped(read_some: _Read, name: str) -> _Read:
    """Return a reader of the text within `{"reply": "..."}`, which ovs-appctl --format json prints since 3.4."""
    first = read_some(_CHUNK_BYTES)
    if not _WRAPPED.match(first):
        begun = [first]
        return lambda size: begun.pop() if begun else read_some(size)
    whole = bytearray(first)
    while chunk := read_some(_CHUNK_BYTES):
        whole += chunk
        if len(whole) > MAX_TEXT_BYTES:
            raise FileUnusable(file=name, reason=f"its JSON has more than {MAX_TEXT_BYTES >> 20} MiB")
    try:
        reply = json.loads(whole)["reply"]
    except (ValueError, RecursionError) as error:
        raise FileUnusable(
            file=name, reason=f"it begins as a JSON reply of ovs-appctl and is not one: {error}"
        ) from None
    if not isinstance(reply, str):
        raise FileUnusable(file=name, reason="the `reply` of its JSON is not a text")
    return BytesIO(reply.encode("utf-8", "backslashreplace")).read


def _lines(read_some: _Read, name: str, max_bytes: int) -> Iterator[str]:
    rest, read, number = b"", 0, 0
    read_some = _unwrapped(read_some, name)
    while chunk := read_some(_CHUNK_BYTES):
        if not read:
            _check_packed(chunk, name)
        read += len(chunk)
        if read > max_bytes:
            raise FileUnusable(file=name, reason=f"it has more than {max_bytes >> 20} MiB, and no more is read")
        if chunk.count(b"\0") > max(_FEW, len(chunk) >> 10):
            raise FileUnusable(file=name, reason=f"it is not text: from line {number + 1} on it is full of zeros")
        *whole, rest = (rest + chunk).split(b"\n")
        if len(rest) > MAX_LINE_BYTES:
            reason = (
                f"line {number + len(whole) + 1} has more than {MAX_LINE_BYTES >> 10} KiB, which no line of a dump has"
            )
            raise FileUnusable(file=name, reason=reason)
        number += len(whole)
        for line in whole:
            yield line.removesuffix(b"\r").decode("utf-8", "backslashreplace") + "\n"
    if rest:
        yield rest.decode("utf-8", "backslashreplace")


def _check_packed(first: bytes, name: str) -> None:
    for magic, unpacker in _UNPACKERS.items():
        if first.startswith(magic):
            raise FileUnusable(file=name, reason=f"it is compressed: unpack it, as with `{unpacker}`, and give `-`")


# A dump that was copied from a terminal: without its prompts, and with what they and the actions show.


_COMMAND = "flow-dump from command:"
"""Replaces a command line. The parser skips lines with this begin, like headers of Open vSwitch."""

_DUMP = regex(r"\bovs-(?:appctl|dpctl)\b.*\b(?:dpctl/)?dump-flows\b(?P<options>.*)", ASCII)
_PROMPT = regex(
    r"(?:\[[^\]]{1,80}\]|[\w.-]{1,64}@[\w.-]{1,64}(?::[^\s#$]{0,80})?(?: [^\s#$]{1,80})?)\s?[#$%]"
    r"(?:\s+(?P<command>.*))?"
)
"""`[root@host ~]# COMMAND`, `user@host:~$ COMMAND`."""
_BARE_PROMPT = regex(r"(?:[#$]\s*|\++(?: |$))(?P<command>.*)")
_LOG = regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z\|[0-9]+\|")
"""Lines of the tools of Open vSwitch on stderr (lib/vlog.c)."""

_RULER = regex(r"[-=]{2,}|(?:`{3}|~{3}).*|\[?\.{2,3}\]?", ASCII)
"""Between parts of a copied text: `--` of grep(1), fences of Markdown, an ellipsis."""

_TYPE = regex(r"\btype=([a-z,-]+)")
_LAYERS = {
    "offloaded": "offloaded:yes",
    "dpdk": "offloaded:yes, dp:dpdk",
    "partially-offloaded": "offloaded:partial, dp:ovs",
    "ovs": "dp:ovs",
    "non-offloaded": "dp:non-offloaded",
}
"""A single `type=` -> the state of each megaflow (flow_passes_type_filter of lib/dpctl.c). Lists and `tc` hide it."""
_SELECTING = regex(r"\btype=(?!all\b)|\bfilter=|\|")
"""Parts of a command line that leave out megaflows: options, and a pipe, such as to grep(1)."""

_SLOW_PATH = regex(r" actions:(?:.*,)?userspace\(|check_pkt_len\(.*userspace\(")
_STATED = regex(r", (?:offloaded|dp):[a-z]")


class Transcript:
    """The lines of a dump, completed. Attributes are valid after the last line. `dumps`: number of command lines that
    made a dump. `is_complete`: whether these had no `type=`, `filter=` or pipe."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.dumps = 0
        self.is_complete = False
        self._lines = lines

    def __iter__(self) -> Iterator[str]:
        state = ""
        for line in rejoin_lines(self._without_prompts()):
            if line.startswith(_COMMAND):
                state = self._begin(line.removeprefix(_COMMAND))
            yield _completed(line, state)

    def remarks(self) -> Iterator[str]:
        """Yield remarks on the file for the reader of the findings."""
        if self.dumps > 1:
            yield f"the file has {self.dumps} dumps, and megaflows that are in several count several times: give one"

    def _begin(self, options: str) -> str:
        """Return the state of each megaflow of a dump, by its options."""
        self.dumps += 1
        self.is_complete = not _SELECTING.search(options) and (self.is_complete or self.dumps == 1)
        types = _TYPE.search(options)
        return _LAYERS.get(types[1], "") if types else ""

    def _without_prompts(self) -> Iterator[str]:
        """Yield the lines, with empty ones for prompts, rulers and the output of other commands."""
        is_foreign = False
        for line in self._lines:
            text = line.strip()
            if not text or " actions:" in text or ", packets:" in text:
                yield "" if is_foreign and not (" actions:" in text and ", packets:" in text) else line
                continue
            command = _command(text)
            if _RULER.fullmatch(text):
                yield ""
            elif command is None:
                yield "" if is_foreign or _LOG.match(text) else line
            elif found := _DUMP.search(command):
                is_foreign = False
                yield f"{_COMMAND}{found['options']}\n"
            else:
                is_foreign = is_foreign or not text.startswith("#")
                yield ""


def _command(text: str) -> str | None:
    """Return the command of a line with a prompt or of a dump; None if it is no command line."""
    prompt = _PROMPT.fullmatch(text) or _BARE_PROMPT.fullmatch(text)
    if prompt is not None:
        return prompt["command"] or ""
    return text if _DUMP.match(text.removeprefix("sudo ").removeprefix("+ ")) else None


def _completed(line: str, state: str) -> str:
    """Return a line with the parts that -m would add, if known. `state`: from the command line."""
    if " actions:" not in line or _STATED.search(line):
        return line
    known = "dp:ovs" if _SLOW_PATH.search(line) else state
    return line.replace(", actions:", f", {known}, actions:", 1) if known else line


# What is known about the host of a recorded dump.


_BRIDGE_NAME = regex(r"(?:ovs)?br(?:[0-9]+|[-_].+)?", ASCII)


class NamedBridges(Set[str]):
    """All ports with the name of a bridge, such as br0, br-int or ovsbr1. `seen`: names that were looked up."""

    def __init__(self) -> None:
        self.seen = set[str]()

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str) or not _BRIDGE_NAME.fullmatch(name):
            return False
        self.seen.add(name)
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(self.seen)

    def __len__(self) -> int:
        return len(self.seen)


def read_flows(path: Path) -> tuple[ObservedFlow, ...]:
    """Return the flows of a recorded dump. Raises OSError, ParseError, FileUnusable."""
    from xenoovs.openflow.text import parse_dump

    return tuple(parse_dump(read_text(path)))


def recorded_evidence(log: Path | None = None, *, version: str | None = None, config: Path | None = None) -> Evidence:
    """Return the evidence for a recorded dump. Raises OSError, FileUnusable.

    A dump does not show how long its host keeps megaflows, so none is judged by its age. `log`: of the same
    ovs-vswitchd. `version`: of Open vSwitch; from the log if None. `config`: the file of the config, for commands.
    """
    # Imported here: most commands read other files.
    from xenoovs.evidence.command_target import CommandTarget
    from xenoovs.evidence.evidence import UNREAD_HOST, Evidence

    target = CommandTarget(config=None if config is None or str(config) == "-" else str(config))
    evidence = Evidence(is_recorded=True, max_idle_s=inf, given_version=version, target=target)
    if log is None:
        return evidence
    from xenoovs.datapath.fact import NOT_READ
    from xenoovs.datapath.host import Daemon
    from xenoovs.switch.vswitchd import judge_offload, logged_version, parse_history

    text = read_text(log)
    history = parse_history(text)
    state = judge_offload(upcall_show="", statistics=NOT_READ, history=history)
    host = replace(UNREAD_HOST, daemon=Daemon(offload=state, history=history, flow_limit=NOT_READ))
    return replace(evidence, host=host, logs=(text,), given_version=version or logged_version(text))
