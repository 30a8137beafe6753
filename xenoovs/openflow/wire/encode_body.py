"""What stands behind the header of each message: values to a type and bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from xenoovs.openflow.bundle import FlowMod
from xenoovs.openflow.wire import bundle, events, features, flow_mod, flow_removed, kinds, multipart, packet, port, role
from xenoovs.openflow.wire.bundle import BundleAdd, BundleControl
from xenoovs.openflow.wire.echo import BarrierReply, BarrierRequest, EchoReply, EchoRequest
from xenoovs.openflow.wire.error import Error, encode_error
from xenoovs.openflow.wire.events import AsyncReply, AsyncRequest, SetAsync
from xenoovs.openflow.wire.features import ConfigReply, ConfigRequest, FeaturesReply, FeaturesRequest, SetConfig
from xenoovs.openflow.wire.flow_removed import FlowRemoved
from xenoovs.openflow.wire.frame import HEADER
from xenoovs.openflow.wire.hello import Hello, encode_hello
from xenoovs.openflow.wire.message import (
    Change,
    Controllers,
    Greeting,
    Happening,
    Message,
    Switch,
    Unknown,
)
from xenoovs.openflow.wire.multipart import Reply, Request
from xenoovs.openflow.wire.packet import PacketIn, PacketOut
from xenoovs.openflow.wire.port import PortStatus
from xenoovs.openflow.wire.role import RoleReply, RoleRequest, RoleStatus

_Ofports = Mapping[str, int]


def encode_body(message: Message, ofports: _Ofports) -> tuple[int, bytes]:
    """The type of a message and its bytes behind the header. Raises NotEncodable and struct.error."""
    if isinstance(message, Unknown):
        return message.kind, message.body
    if isinstance(message, Greeting):
        return _greeting(message)
    if isinstance(message, Switch):
        return _switch(message)
    if isinstance(message, Controllers):
        return _controllers(message)
    if isinstance(message, Happening):
        return _happening(message, ofports)
    if isinstance(message, Request):
        return kinds.MULTIPART_REQUEST, multipart.encode_request(message, ofports)
    if isinstance(message, Reply):
        return kinds.MULTIPART_REPLY, multipart.encode_reply(message, ofports)
    return _change(message, ofports)


def _greeting(message: Greeting) -> tuple[int, bytes]:
    match message:
        case Hello():
            return kinds.HELLO, encode_hello(message)
        case Error():
            return kinds.ERROR, encode_error(message)
        case EchoRequest(data):
            return kinds.ECHO_REQUEST, data
        case EchoReply(data):
            return kinds.ECHO_REPLY, data
        case BarrierRequest():
            return kinds.BARRIER_REQUEST, b""
        case BarrierReply():
            return kinds.BARRIER_REPLY, b""
        case _:
            assert_never(message)


def _switch(message: Switch) -> tuple[int, bytes]:
    match message:
        case FeaturesRequest():
            return kinds.FEATURES_REQUEST, b""
        case FeaturesReply():
            return kinds.FEATURES_REPLY, features.encode_features(message)
        case ConfigRequest():
            return kinds.GET_CONFIG_REQUEST, b""
        case ConfigReply():
            return kinds.GET_CONFIG_REPLY, features.encode_config(message)
        case SetConfig():
            return kinds.SET_CONFIG, features.encode_config(message)
        case _:
            assert_never(message)


def _controllers(message: Controllers) -> tuple[int, bytes]:
    match message:
        case RoleRequest():
            return kinds.ROLE_REQUEST, role.encode_role(message)
        case RoleReply():
            return kinds.ROLE_REPLY, role.encode_role(message)
        case RoleStatus():
            return kinds.ROLE_STATUS, role.encode_role_status(message)
        case AsyncRequest():
            return kinds.GET_ASYNC_REQUEST, b""
        case AsyncReply():
            return kinds.GET_ASYNC_REPLY, events.encode_events(message)
        case SetAsync():
            return kinds.SET_ASYNC, events.encode_events(message)
        case _:
            assert_never(message)


def _happening(message: Happening, ofports: _Ofports) -> tuple[int, bytes]:
    match message:
        case PacketIn():
            return kinds.PACKET_IN, packet.encode_packet_in(message, ofports)
        case FlowRemoved():
            return kinds.FLOW_REMOVED, flow_removed.encode_flow_removed(message, ofports)
        case PortStatus():
            return kinds.PORT_STATUS, port.encode_port_status(message)
        case _:
            assert_never(message)


def _change(message: Change, ofports: _Ofports) -> tuple[int, bytes]:
    match message:
        case PacketOut():
            return kinds.PACKET_OUT, packet.encode_packet_out(message, ofports)
        case FlowMod():
            return kinds.FLOW_MOD, flow_mod.encode_flow_mod(message, xid=0, ofports=ofports)[HEADER.size :]
        case BundleControl():
            return kinds.BUNDLE_CONTROL, bundle.encode_control(message)
        case BundleAdd():
            return kinds.BUNDLE_ADD_MESSAGE, bundle.encode_add(message)
        case _:
            assert_never(message)
