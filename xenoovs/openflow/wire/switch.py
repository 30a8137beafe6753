"""Descriptions and counters of a switch, of its tables and of its ports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from struct import Struct

from xenoovs.openflow.wire.frame import Reader

# What a switch is, and how many bytes of a packet it sends (OpenFlow 1.4.0, 7.3.1 and 7.3.2).


_FEATURES = Struct("!QIBB2xII")
_CONFIG = Struct("!HH")

NO_BUFFER = 0xFFFFFFFF
"""ofp_packet_in.buffer_id of a packet that the switch does not keep (7.4.1, OFP_NO_BUFFER)."""

WHOLE_PACKET = 0xFFFF
"""miss_send_len and max_len of a packet that is sent uncut (7.3.2, OFPCML_NO_BUFFER)."""


@dataclass(frozen=True, slots=True)
class FeaturesRequest:
    pass


@dataclass(frozen=True, slots=True)
class FeaturesReply:
    """datapath_id: 64 bits. tables: how many. capabilities: OFPC_* bits. auxiliary_id: 0 for a main connection."""

    datapath_id: int
    buffers: int = 0
    tables: int = 254
    auxiliary_id: int = 0
    capabilities: int = 0
    reserved: int = 0


@dataclass(frozen=True, slots=True)
class ConfigRequest:
    pass


@dataclass(frozen=True, slots=True)
class ConfigReply:
    """flags: what is done with fragments (OFPC_FRAG_*). miss_send_len: bytes."""

    flags: int
    miss_send_len: int


@dataclass(frozen=True, slots=True)
class SetConfig:
    """As ConfigReply.

    At its management socket Open vSwitch tells of ports, packets and flows only after it was given a miss_send_len that
    is not 0 (ofconn_receives_async_msg() in ofproto/connmgr.c); controllers are told anyhow.
    """

    flags: int
    miss_send_len: int


def encode_features(reply: FeaturesReply) -> bytes:
    counts = (reply.buffers, reply.tables, reply.auxiliary_id)
    return _FEATURES.pack(reply.datapath_id, *counts, reply.capabilities, reply.reserved)


def decode_features(body: Reader) -> FeaturesReply:
    return FeaturesReply(*body.unpack(_FEATURES, "the features of a switch"))


def encode_config(config: ConfigReply | SetConfig) -> bytes:
    return _CONFIG.pack(config.flags, config.miss_send_len)


def decode_config(body: Reader) -> tuple[int, int]:
    """flags, miss_send_len."""
    flags, miss_send_len = body.unpack(_CONFIG, "the configuration of a switch")
    return flags, miss_send_len


# Descriptions and counters of a switch, its tables and its ports (OpenFlow 1.4.0, 7.3.5.1, 7.3.5.4, 7.3.5.6).


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
