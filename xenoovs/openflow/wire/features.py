"""What a switch is, and how many bytes of a packet it sends (OpenFlow 1.4.0, 7.3.1 and 7.3.2)."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from xenoovs.openflow.wire.reader import Reader

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
