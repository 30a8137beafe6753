"""The part of TRex's stateless API that profiles use: its names and parameters, without the generator.

They are those of trex_stl_streams.py and trex_stl_packet_builder_scapy.py (interactive/trex/stl) in
https://github.com/cisco-system-traffic-generator/trex-core/tree/master/scripts/automation/trex_control_plane,
which `trex_stl_lib.api` exports together with the layers of Scapy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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
        made.layers = list(self.layers)
        if isinstance(inner, str):
            made.payload = inner
        else:
            made.layers += inner.layers
        return made

    def __len__(self) -> int:
        return sum(layer.size for layer in self.layers) + len(self.payload)

    def layer(self, name: str) -> Layer:
        return next(layer for layer in self.layers if layer.name == name)


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
    L4_TYPE_IP = 17


@dataclass
class STLVmFlowVar:
    name: str
    init_value: int | None = None
    min_value: int = 0
    max_value: int = 255
    size: int = 4
    step: int = 1
    op: str = "inc"


@dataclass
class STLVmFlowVarRepeatableRandom:
    name: str
    size: int = 4
    limit: int = 100
    seed: int | None = None
    min_value: int = 0
    max_value: int | None = None
    split_to_cores: bool = True
    next_var: str | None = None


@dataclass
class STLVmWrMaskFlowVar:
    fv_name: str
    pkt_offset: str | int
    pkt_cast_size: int = 1
    mask: int = 0xFF
    shift: int = 0
    add_value: int = 0
    offset_fixup: int = 0
    is_big: bool = True


@dataclass
class STLVmFixChecksumHw:
    l3_offset: str | int
    l4_offset: str | int
    l4_type: int


@dataclass
class STLScVmRaw:
    list_of_commands: list[Any] = field(default_factory=list)
    cache_size: int | None = None


@dataclass
class STLPktBuilder:
    pkt: Layer | None = None
    pkt_buffer: bytes | None = None
    vm: STLScVmRaw | None = None
    path_relative_to_profile: bool = False
    build_raw: bool = False
    remove_fcs: bool = True


class STLTXCont:
    def __init__(
        self,
        *,
        pps: float | None = None,
        bps_L1: float | None = None,  # noqa: N803 - TRex's names
        bps_L2: float | None = None,  # noqa: N803
        percentage: float | None = None,
    ) -> None:
        self.pps = pps


@dataclass
class STLStream:
    name: str | None = None
    packet: STLPktBuilder | None = None
    mode: STLTXCont | None = None
    enabled: bool = True
    self_start: bool = True
    isg: float = 0.0
    flow_stats: object = None
    next: str | None = None
    stream_id: int | None = None
    action_count: int = 0
    random_seed: int = 0
