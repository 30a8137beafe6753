"""Descriptions and counters of a switch, its tables and its ports (OpenFlow 1.4.0, 7.3.5.1, 7.3.5.4, 7.3.5.6)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from struct import Struct

from xenoovs.openflow.wire.reader import Reader

_DESCRIPTION = Struct("!256s256s256s32s256s")
_TABLE = Struct("!B3xIQQ")
_PORT = Struct("!H2x3I8Q")
_NANOSECONDS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Description:
    """Texts of at most 255 bytes, the serial number of 31."""

    manufacturer: str
    hardware: str
    software: str
    serial_number: str
    datapath: str


@dataclass(frozen=True, slots=True)
class TableStats:
    table: int
    flows: int
    lookups: int
    matches: int


@dataclass(frozen=True, slots=True)
class PortStats:
    """port: number. Counters that a switch does not have are all ones. duration_ns: since the port is there.

    properties: bytes as they came (errors of Ethernet, mostly).
    """

    port: int
    duration_ns: int
    rx_packets: int
    tx_packets: int
    rx_bytes: int
    tx_bytes: int
    rx_dropped: int
    tx_dropped: int
    rx_errors: int
    tx_errors: int
    properties: bytes = b""


def encode_description(texts: Description) -> bytes:
    parts = (texts.manufacturer, texts.hardware, texts.software, texts.serial_number, texts.datapath)
    return _DESCRIPTION.pack(*(part.encode("utf-8", "replace") for part in parts))


def decode_description(body: Reader) -> Description:
    """Raises WireError."""
    parts = body.unpack(_DESCRIPTION, "the description of a switch")
    body.expect_end("the end of a description")
    return Description(*(part.split(b"\0", 1)[0].decode("utf-8", "backslashreplace") for part in parts))


def encode_table_stats(tables: Iterable[TableStats]) -> bytes:
    return b"".join(_TABLE.pack(table.table, table.flows, table.lookups, table.matches) for table in tables)


def decode_table_stats(body: Reader) -> Iterator[TableStats]:
    """All tables up to the end. Raises WireError."""
    while body.left:
        yield TableStats(*body.unpack(_TABLE, "the counters of a table"))


def encode_port_stats(ports: Iterable[PortStats]) -> bytes:
    return b"".join(map(_encode_port, ports))


def decode_port_stats(body: Reader) -> Iterator[PortStats]:
    """All ports up to the end. Raises WireError."""
    while body.left:
        start = body.offset
        length, port, seconds, rest, *counters = body.unpack(_PORT, "the counters of a port")
        properties = body.take(length - _PORT.size, f"the properties of a port, {length} bytes from byte {start}")
        rx_packets, tx_packets, rx_bytes, tx_bytes, rx_dropped, tx_dropped, rx_errors, tx_errors = counters
        traffic = (rx_packets, tx_packets, rx_bytes, tx_bytes)
        lost = (rx_dropped, tx_dropped, rx_errors, tx_errors)
        yield PortStats(port, seconds * _NANOSECONDS + rest, *traffic, *lost, properties)


def _encode_port(stats: PortStats) -> bytes:
    traffic = (stats.rx_packets, stats.tx_packets, stats.rx_bytes, stats.tx_bytes)
    lost = (stats.rx_dropped, stats.tx_dropped, stats.rx_errors, stats.tx_errors)
    time = divmod(stats.duration_ns, _NANOSECONDS)
    return _PORT.pack(_PORT.size + len(stats.properties), stats.port, *time, *traffic, *lost) + stats.properties
