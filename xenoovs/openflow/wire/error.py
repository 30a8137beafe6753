"""What a switch refused and why (OpenFlow 1.4.0, 7.5.4)."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from xenoovs.openflow.wire.error_names import EXPERIMENTER, NICIRA, error_name
from xenoovs.openflow.wire.frame import HEADER
from xenoovs.openflow.wire.reader import U32, Reader

_ERROR = Struct("!HH")


@dataclass(frozen=True, slots=True)
class Error:
    """kind, code: ofp_error_msg.type and .code. data: as it came: the start of the refused message, mostly.

    The errors of Open vSwitch's own have kind 0xffff and 4 bytes of the vendor before the data.
    """

    kind: int
    code: int
    data: bytes = b""

    @property
    def vendor(self) -> int | None:
        """Of an experimenter's error (7.5.4.18), else None."""
        return int.from_bytes(self.data[: U32.size]) if self.kind == EXPERIMENTER else None

    @property
    def name(self) -> str:
        """As Open vSwitch calls it, such as OFPFMFC_TABLE_FULL; numbers for one without a name."""
        return error_name(self.kind, self.code, vendor=self.vendor)

    @property
    def refused(self) -> bytes:
        """The start of the refused message: at least 64 bytes of it, for a HELLO a text instead."""
        return self.data[U32.size :] if self.kind == EXPERIMENTER else self.data

    @property
    def refused_xid(self) -> int | None:
        """xid of the refused message; None where too little of it came."""
        return HEADER.unpack_from(self.refused)[3] if len(self.refused) >= HEADER.size else None


def encode_error(error: Error) -> bytes:
    return _ERROR.pack(error.kind, error.code) + error.data


def decode_error(body: Reader) -> Error:
    """Raises WireError."""
    kind, code = body.unpack(_ERROR, "type and code of an error")
    return Error(kind, code, body.rest())


def nicira_error(code: int, refused: bytes) -> Error:
    """An error of Open vSwitch's own, such as a test's switch would send."""
    return Error(EXPERIMENTER, code, U32.pack(NICIRA) + refused)
