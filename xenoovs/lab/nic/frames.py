"""The protocol between host and guest on a port of the virtual machine: frames of kind, length and payload."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cache
from secrets import token_hex
from typing import TYPE_CHECKING

from xenoovs.records import dataclass, field

if TYPE_CHECKING:
    from pydantic import TypeAdapter

PORTS = 4
"""How many commands can run in the guest at a time."""

PORT_NAME = "xenoovs."
"""Ports are called xenoovs.0, xenoovs.1, ... in /sys/class/virtio-ports."""

_HEAD = struct.Struct("!cI")


class FrameKind(Enum):
    """Host to guest: CALL to SIGNAL. Guest to host: BEGIN to EXIT."""

    CALL = b"C"
    """A Request as JSON. The guest ends the command that still runs."""
    INPUT = b"I"
    END_OF_INPUT = b"Z"
    SIZE = b"W"
    """Rows and columns of the terminal, as text."""
    SIGNAL = b"S"
    """Its number, as text."""
    BEGIN = b"B"
    """The token of the request."""
    OUTPUT = b"O"
    ERROR = b"E"
    EXIT = b"X"
    """The exit status, as text."""


@dataclass(frozen=True, slots=True)
class GuestCommand:
    """A command to run in the guest.

    Attributes:
        files: Text of files by absolute path, which are written before the command starts.
        terminal: Rows and columns, where the command gets a terminal of its own.
        token: The host skips everything before the frame that repeats it, which belongs to an earlier command.
    """

    argv: tuple[str, ...]
    directory: str = "/"
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    files: Mapping[str, str] = field(default_factory=dict, hash=False)
    terminal: tuple[int, int] | None = None
    token: str = field(default_factory=token_hex)


@cache
def _command_adapter() -> TypeAdapter[GuestCommand]:
    # Imported here: commands that have --lab would wait for it in their --help.
    from pydantic import TypeAdapter

    return TypeAdapter(GuestCommand)


def render_command(command: GuestCommand) -> bytes:
    """Return the payload of CALL."""
    return _command_adapter().dump_json(command)


def parse_command(payload: bytes) -> GuestCommand:
    """Return the inverse of `render_command`."""
    return _command_adapter().validate_json(payload)


def render_frame(kind: FrameKind, payload: bytes = b"") -> bytes:
    """Return one frame."""
    return _HEAD.pack(kind.value, len(payload)) + payload


class FrameReader:
    """Assembles frames from pieces of any size."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, piece: bytes) -> Iterator[tuple[FrameKind, bytes]]:
        """Yield the frames that are complete with this piece. Raises ValueError when it is no stream of frames."""
        self._pending += piece
        while len(self._pending) >= _HEAD.size:
            letter, length = _HEAD.unpack_from(self._pending)
            kind, end = FrameKind(letter), _HEAD.size + length
            if len(self._pending) < end:
                return
            payload = bytes(self._pending[_HEAD.size : end])
            del self._pending[:end]
            yield kind, payload

    def seek(self, piece: bytes, start: bytes) -> bool:
        """Drop everything up to the frame `start` and that frame; return False when it has not come yet."""
        self._pending += piece
        at = self._pending.find(start)
        if at >= 0:
            del self._pending[: at + len(start)]
        return at >= 0
