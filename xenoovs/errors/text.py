"""Text or bytes that cannot be read or written."""

from __future__ import annotations

from xenoovs.errors.base import XenoovsError


class ParseError(XenoovsError):
    """Text from a tool that does not have the form it should; `offset` counts characters into `text`."""

    def __init__(self, *, text: str, offset: int, expected: str, line: int | None = None) -> None:
        self.text, self.offset, self.expected, self.line = text, offset, expected, line
        at = f"line {line}, column {offset + 1}" if line is not None else f"column {offset + 1}"
        seen = text[offset : offset + 40] or "end of line"
        super().__init__(f"{at}: expected {expected}, found {seen!r} in: {text[:200]!r}")


class FileUnusable(XenoovsError):
    """A recorded file that is not read, or not to its end."""

    def __init__(self, *, file: str, reason: str) -> None:
        self.file, self.reason = file, reason
        super().__init__(f"{file}: {reason}")


class UnknownTableName(ParseError):
    """A dump calls a table by a name (Flow_Table of ovs-vswitchd.conf.db(5)) whose number the reader was not told."""


class WireError(ParseError):
    """Bytes of a peer that are no OpenFlow message as it should be; `offset` counts bytes into `data`."""

    def __init__(self, *, data: bytes, offset: int, expected: str) -> None:
        self.data = data
        XenoovsError.__init__(
            self, f"byte {offset}: expected {expected}, found {data[offset : offset + 16].hex(' ') or 'the end'}"
        )
        self.text, self.offset, self.expected, self.line = data.hex(), offset, expected, None


class NotEncodable(XenoovsError):
    """A value that has no bytes in OpenFlow 1.4. `part`: what cannot be written; `reason`: why."""

    def __init__(self, *, part: str, reason: str) -> None:
        self.part, self.reason = part, reason
        super().__init__(f"{part[:200]} cannot be sent by OpenFlow 1.4: {reason}")
