"""What host and guest say to each other on a port of the virtual machine: frames of kind, length and payload.

Needs nothing but the standard library: the guest reads it before anything else.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum

PORTS = 4
"""So many commands can run in the guest at a time."""

PORT_NAME = "xenoovs."
"""Ports are called xenoovs.0, xenoovs.1, ... in /sys/class/virtio-ports."""

TOKEN_BYTES = 16

_HEAD = struct.Struct("!cI")


class Kind(Enum):
    """Host to guest: CALL to SIGNAL. Guest to host: BEGIN (carries the token of the call) to EXIT."""

    CALL = b"C"
    INPUT = b"I"
    END_OF_INPUT = b"Z"
    SIZE = b"W"
    SIGNAL = b"S"
    BEGIN = b"B"
    OUTPUT = b"O"
    ERROR = b"E"
    EXIT = b"X"


@dataclass(frozen=True, slots=True)
class Request:
    """A command for the guest. `files`: text of files by absolute path, put in place before it starts.

    token: hexadecimal, chosen by the host; what comes before the frame that returns it is of an earlier command.
    terminal: rows and columns where the command is to have a terminal of its own.
    """

    token: str
    argv: tuple[str, ...]
    directory: str
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    files: Mapping[str, str] = field(default_factory=dict, hash=False)
    terminal: tuple[int, int] | None = None


def render_request(request: Request) -> bytes:
    """As the payload of CALL."""
    return json.dumps(asdict(request)).encode()


def parse_request(payload: bytes) -> Request:
    """The inverse of `render_request`."""
    facts = json.loads(payload)
    terminal = (int(facts["terminal"][0]), int(facts["terminal"][1])) if facts["terminal"] else None
    return Request(**{**facts, "argv": tuple(facts["argv"]), "terminal": terminal})


def render_size(rows: int, columns: int) -> bytes:
    """As the payload of SIZE."""
    return struct.pack("!HH", rows, columns)


def parse_size(payload: bytes) -> tuple[int, int]:
    """Rows and columns."""
    rows, columns = struct.unpack("!HH", payload)
    return rows, columns


def render_frame(kind: Kind, payload: bytes = b"") -> bytes:
    """One frame."""
    return _HEAD.pack(kind.value, len(payload)) + payload


class FrameReader:
    """Puts frames together from pieces of any size."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, piece: bytes) -> Iterator[tuple[Kind, bytes]]:
        """The frames that are complete with this piece. Raises ValueError when it is no stream of frames."""
        self._pending += piece
        while len(self._pending) >= _HEAD.size:
            letter, length = _HEAD.unpack_from(self._pending)
            kind, end = Kind(letter), _HEAD.size + length
            if len(self._pending) < end:
                return
            payload = bytes(self._pending[_HEAD.size : end])
            del self._pending[:end]
            yield kind, payload

    def seek(self, piece: bytes, start: bytes) -> bool:
        """Drop everything before the frame `start`, which is dropped too; False: it has not come yet."""
        self._pending += piece
        at = self._pending.find(start)
        if at >= 0:
            del self._pending[: at + len(start)]
        return at >= 0
