"""Reading bytes of a message in order. Nothing is read beyond its end: what is short is a WireError."""

from __future__ import annotations

from struct import Struct
from typing import Any

from xenoovs.errors import WireError

Layout = Struct
"""A fixed part of a message, in network byte order."""

U16, U32, U64 = Struct("!H"), Struct("!I"), Struct("!Q")


class Reader:
    """A place in the bytes of one message, and the end of the part that is being read."""

    __slots__ = ("data", "end", "offset")

    def __init__(self, data: bytes, *, offset: int = 0, end: int | None = None) -> None:
        self.data, self.offset = data, offset
        self.end = len(data) if end is None else end

    @property
    def left(self) -> int:
        """Bytes from here to the end."""
        return self.end - self.offset

    def unpack(self, layout: Struct, expected: str) -> tuple[Any, ...]:
        """The values of a fixed part, which is passed. Raises WireError."""
        if self.left < layout.size:
            raise self.error(expected)
        values = layout.unpack_from(self.data, self.offset)
        self.offset += layout.size
        return values

    def take(self, size: int, expected: str) -> bytes:
        """The next `size` bytes, which are passed. Raises WireError."""
        if not 0 <= size <= self.left:
            raise self.error(expected)
        start, self.offset = self.offset, self.offset + size
        return self.data[start : self.offset]

    def rest(self) -> bytes:
        """All bytes up to the end."""
        return self.take(self.left, "the rest")

    def part(self, size: int, expected: str) -> Reader:
        """A reader of the next `size` bytes alone, which are passed here. Raises WireError."""
        if not 0 <= size <= self.left:
            raise self.error(expected)
        start, self.offset = self.offset, self.offset + size
        return Reader(self.data, offset=start, end=self.offset)

    def expect_end(self, expected: str) -> None:
        """Raises WireError unless all bytes were read."""
        if self.left:
            raise self.error(expected)

    def error(self, expected: str) -> WireError:
        return WireError(data=self.data, offset=self.offset, expected=expected)


def padding(size: int) -> bytes:
    """What fills up to the next multiple of 8 bytes."""
    return bytes(-size % 8)


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)
