"""The closed union of all messages that the codec tells apart, and what was received."""

from __future__ import annotations

from dataclasses import dataclass

from xenoovs.openflow.bundle import FlowMod
from xenoovs.openflow.wire.bundle import BundleAdd, BundleControl
from xenoovs.openflow.wire.echo import BarrierReply, BarrierRequest, EchoReply, EchoRequest
from xenoovs.openflow.wire.error import Error
from xenoovs.openflow.wire.events import AsyncReply, AsyncRequest, SetAsync
from xenoovs.openflow.wire.features import ConfigReply, ConfigRequest, FeaturesReply, FeaturesRequest, SetConfig
from xenoovs.openflow.wire.flow_removed import FlowRemoved
from xenoovs.openflow.wire.hello import Hello
from xenoovs.openflow.wire.multipart import Reply, Request
from xenoovs.openflow.wire.packet import PacketIn, PacketOut
from xenoovs.openflow.wire.port import PortStatus
from xenoovs.openflow.wire.role import RoleReply, RoleRequest, RoleStatus


@dataclass(frozen=True, slots=True)
class Unknown:
    """A message of which only its type is known (7.1.1, enum ofp_type). body: the bytes behind the header."""

    kind: int
    body: bytes


Greeting = Hello | Error | EchoRequest | EchoReply | BarrierRequest | BarrierReply
Switch = FeaturesRequest | FeaturesReply | ConfigRequest | ConfigReply | SetConfig
Controllers = RoleRequest | RoleReply | RoleStatus | AsyncRequest | AsyncReply | SetAsync
Happening = PacketIn | FlowRemoved | PortStatus
Change = PacketOut | FlowMod | BundleControl | BundleAdd
Message = Greeting | Switch | Controllers | Happening | Change | Request | Reply | Unknown


@dataclass(frozen=True, slots=True)
class Received:
    """version: of the header; other than 5 for a HELLO or an error of a peer that speaks another one alone."""

    version: int
    xid: int
    message: Message
