"""What stands behind the header of each message: a type and bytes to values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from xenoovs.openflow.wire import bundle, events, features, kinds, multipart, role
from xenoovs.openflow.wire.echo import BarrierReply, BarrierRequest, EchoReply, EchoRequest
from xenoovs.openflow.wire.error import decode_error
from xenoovs.openflow.wire.events import AsyncReply, AsyncRequest, SetAsync
from xenoovs.openflow.wire.features import ConfigReply, ConfigRequest, FeaturesRequest, SetConfig
from xenoovs.openflow.wire.flow_mod import decode_flow_mod
from xenoovs.openflow.wire.flow_removed import decode_flow_removed
from xenoovs.openflow.wire.hello import decode_hello
from xenoovs.openflow.wire.message import Message
from xenoovs.openflow.wire.packet import decode_packet_in, decode_packet_out
from xenoovs.openflow.wire.port import decode_port_status
from xenoovs.openflow.wire.reader import Reader
from xenoovs.openflow.wire.role import RoleReply, RoleRequest

_Decode = Callable[[Reader], Message]
_DecodeNamed = Callable[[Reader, Mapping[int, str]], Message | None]


def decode_body(kind: int, body: Reader, names: Mapping[int, str]) -> Message | None:
    """None for a message of a type or form that xenoovs does not know. Raises WireError."""
    if (named := _NAMED.get(kind)) is not None:
        return named(body, names)
    decoder = _PLAIN.get(kind)
    if decoder is None:
        return None
    message = decoder(body)
    body.expect_end("the end of the message")
    return message


_NAMED: Mapping[int, _DecodeNamed] = MappingProxyType(
    {
        kinds.PACKET_IN: decode_packet_in,
        kinds.FLOW_REMOVED: decode_flow_removed,
        kinds.PACKET_OUT: decode_packet_out,
        kinds.FLOW_MOD: decode_flow_mod,
        kinds.MULTIPART_REQUEST: multipart.decode_request,
        kinds.MULTIPART_REPLY: multipart.decode_reply,
    }
)
"""Messages in which ports have names."""

_PLAIN: Mapping[int, _Decode] = MappingProxyType(
    {
        kinds.HELLO: decode_hello,
        kinds.ERROR: decode_error,
        kinds.ECHO_REQUEST: lambda body: EchoRequest(body.rest()),
        kinds.ECHO_REPLY: lambda body: EchoReply(body.rest()),
        kinds.FEATURES_REQUEST: lambda _: FeaturesRequest(),
        kinds.FEATURES_REPLY: features.decode_features,
        kinds.GET_CONFIG_REQUEST: lambda _: ConfigRequest(),
        kinds.GET_CONFIG_REPLY: lambda body: ConfigReply(*features.decode_config(body)),
        kinds.SET_CONFIG: lambda body: SetConfig(*features.decode_config(body)),
        kinds.PORT_STATUS: decode_port_status,
        kinds.BARRIER_REQUEST: lambda _: BarrierRequest(),
        kinds.BARRIER_REPLY: lambda _: BarrierReply(),
        kinds.ROLE_REQUEST: lambda body: RoleRequest(*role.decode_role(body)),
        kinds.ROLE_REPLY: lambda body: RoleReply(*role.decode_role(body)),
        kinds.GET_ASYNC_REQUEST: lambda _: AsyncRequest(),
        kinds.GET_ASYNC_REPLY: lambda body: AsyncReply(*events.decode_events(body)),
        kinds.SET_ASYNC: lambda body: SetAsync(*events.decode_events(body)),
        kinds.ROLE_STATUS: role.decode_role_status,
        kinds.BUNDLE_CONTROL: bundle.decode_control,
        kinds.BUNDLE_ADD_MESSAGE: bundle.decode_add,
    }
)
