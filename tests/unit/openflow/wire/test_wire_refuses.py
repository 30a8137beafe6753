"""What cannot be said by OpenFlow 1.4 is refused by name, before anything is sent."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from xenoovs.errors import NotEncodable, ParseError, WireError
from xenoovs.openflow.flow import (
    Action,
    Command,
    Field,
    Flow,
    FlowKey,
    FlowMod,
    Foreign,
    Match,
    Output,
    SetField,
    exact,
    match_of,
)
from xenoovs.openflow.text import parse_flow
from xenoovs.openflow.wire.frame import EchoRequest
from xenoovs.openflow.wire.message import Port, PortReason, PortStatus, decode, encode


def _flow(*actions: Action, match: Match = Match(), priority: int = 1, options: tuple[str, ...] = ()) -> FlowMod:  # noqa: B008
    return FlowMod(Command.ADD, Flow(FlowKey(0, priority, match), 0, actions, options))


@pytest.mark.parametrize(
    ("mod", "part"),
    [
        (_flow(Output("p7")), "port p7"),
        (_flow(match=Match(in_port="p7")), "port p7"),
        (_flow(Foreign("ct(commit)")), "ct(commit)"),
        (_flow(match=Match(foreign=("vlan_tci=0x1005",))), "vlan_tci=0x1005"),
        (_flow(match=Match(foreign=("vlan_tci=0x1005/0xffff",))), "vlan_tci=0x1005/0xffff"),
        (_flow(Foreign("wire:xyz")), "wire:xyz"),
        (_flow(Foreign("wire:00")), "wire:00"),
        (_flow(Foreign("instruction:xyz")), "instruction:xyz"),
        (_flow(match=Match(foreign=("ct_state=+new",))), "ct_state=+new"),
        (_flow(match=Match(foreign=("oxm:xyz",))), "oxm:xyz"),
        (_flow(match=match_of((exact(Field.TP_DST, 53),))), "tp_dst"),
        (_flow(match=match_of((exact(Field.ICMP_TYPE, 8),))), "icmp_type"),
        (_flow(options=("idle_timeout=70000",)), "idle_timeout=70000"),
        (_flow(options=("bundled",)), "bundled"),
        (_flow(SetField(Field.REG0, 1 << 32)), "0x100000000"),
        (_flow(priority=1 << 16), "priority=65536 actions=drop"),
    ],
)
def test_a_flow_that_has_no_bytes(mod: FlowMod, part: str) -> None:
    with pytest.raises(NotEncodable) as refused:
        encode(mod, xid=1)
    assert refused.value.part == part


def test_a_flow_that_is_too_long() -> None:
    with pytest.raises(NotEncodable, match="more than 65535 bytes"):
        encode(_flow(*[Output("ofport 1")] * 5000), xid=1)


@pytest.mark.parametrize(
    "send",
    [
        lambda: encode(EchoRequest(bytes(1 << 16)), xid=1),
        lambda: encode(PortStatus(PortReason.ADD, Port(1, "a-name-of-16-byt", 0)), xid=1),
        lambda: encode(PortStatus(PortReason.ADD, Port(1 << 32, "p0", 0)), xid=1),
        lambda: encode(PortStatus(PortReason.ADD, Port(1, "p0", 1 << 48)), xid=1),
    ],
)
def test_a_message_that_has_no_bytes(send: Callable[[], bytes]) -> None:
    with pytest.raises(NotEncodable):
        send()


@pytest.mark.parametrize(
    ("message", "offset", "expected"),
    [
        ("", 0, "the header of a message"),
        ("0502000900000001", 2, "the length 8"),
        ("0402000800000001", 0, "version 5 of OpenFlow"),
        ("0501000a000000010001", 8, "type and code of an error"),
        ("0506000c0000000100000000", 8, "the features of a switch"),
        ("0515000c0000000100000000", 8, "the end of the message"),
        ("0518001800000001 00000009 00000000 0000000000000000", 8, "a role of a controller"),
        ("05210010000000010000000700090003", 12, "a step of a bundle"),
        ("05130012000000010001000000000000 0030", 16, "a flow"),
    ],
)
def test_bytes_that_are_no_message(message: str, offset: int, expected: str) -> None:
    with pytest.raises(WireError) as refused:
        decode(bytes.fromhex(message))
    assert (refused.value.offset, refused.value.expected) == (offset, expected)
    assert isinstance(refused.value, ParseError)
    assert f"byte {offset}: expected {expected}" in str(refused.value)


def test_a_condition_is_read_to_its_end_only() -> None:
    """A condition whose length reaches over the end of the match."""
    whole = bytearray(encode(FlowMod(Command.ADD, parse_flow("ip actions=drop")), xid=1))
    whole[55] = 0x7F
    with pytest.raises(WireError, match="a condition and its whole value"):
        decode(bytes(whole))
