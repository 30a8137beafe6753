"""The part of TRex's stateless API that profiles use: those names and parameters alone, without the generator.

They are those of trex_stl_streams.py and trex_stl_packet_builder_scapy.py (interactive/trex/stl) in
https://github.com/cisco-system-traffic-generator/trex-core/tree/master/scripts/automation/trex_control_plane,
which `trex_stl_lib.api` exports together with the layers of Scapy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


class Layer:
    """A layer of Scapy: `a / b` puts b into a."""

    name = ""
    size = 0

    def __init__(self, **fields: Any) -> None:
        self.layers: list[Layer] = [self]
        self.fields = fields
        self.payload = ""

    def __truediv__(self, inner: Layer | str) -> Layer:
        made = Layer()
        made.layers = [*self.layers, *([] if isinstance(inner, str) else inner.layers)]
        made.payload = inner if isinstance(inner, str) else ""
        return made

    def __len__(self) -> int:
        return sum(layer.size for layer in self.layers) + len(self.payload)


class Ether(Layer):
    name, size = "Ethernet", 14


class IP(Layer):
    name, size = "IP", 20


class IPv6(Layer):
    name, size = "IPv6", 40


class UDP(Layer):
    name, size = "UDP", 8


class TCP(Layer):
    name, size = "TCP", 20


class CTRexVmInsFixHwCs:
    L4_TYPE_UDP = 11
    L4_TYPE_TCP = 13


@dataclass
class STLVmFlowVar:
    name: str
    min_value: int
    max_value: int
    size: int
    op: str


@dataclass
class STLVmFlowVarRepeatableRandom:
    name: str
    size: int
    limit: int
    min_value: int
    max_value: int


@dataclass
class STLVmWrMaskFlowVar:
    fv_name: str
    pkt_offset: str
    pkt_cast_size: int
    mask: int
    offset_fixup: int = 0


@dataclass
class STLVmFixChecksumHw:
    l3_offset: str
    l4_offset: str
    l4_type: int


@dataclass
class STLScVmRaw:
    list_of_commands: list[Any]


@dataclass
class STLPktBuilder:
    pkt: Layer
    vm: STLScVmRaw


@dataclass
class STLTXCont:
    pps: float


@dataclass
class STLStream:
    name: str
    packet: STLPktBuilder
    mode: STLTXCont
