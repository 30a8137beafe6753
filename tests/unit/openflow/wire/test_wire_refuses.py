"""What OpenFlow 1.4 cannot express is refused by name, before anything is sent."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ovs.scripted_switch import packet_in
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
from xenoovs.openflow.wire.flow import encode_flow_mod
from xenoovs.openflow.wire.frame import ECHO_REQUEST, HEADER, NO_NUMBERS, Frames, decode_error, message
from xenoovs.openflow.wire.message import (
    PacketOut,
    decode_count,
    decode_features,
    decode_flows,
    decode_packet_in,
    decode_ports,
    decode_role,
    encode_packet_out,
)


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
        encode_flow_mod(mod, xid=1, ofports=NO_NUMBERS)
    assert refused.value.part == part


def test_a_flow_that_is_too_long() -> None:
    with pytest.raises(NotEncodable, match="more than 65535 bytes"):
        encode_flow_mod(_flow(*[Output("ofport 1")] * 5000), xid=1, ofports=NO_NUMBERS)


@pytest.mark.parametrize(
    "send",
    [
        lambda: message(ECHO_REQUEST, bytes(1 << 16), xid=1),
        lambda: encode_packet_out(PacketOut((Output("p7"),), b""), NO_NUMBERS, xid=1),
    ],
)
def test_a_message_that_has_no_bytes(send: Callable[[], bytes]) -> None:
    with pytest.raises(NotEncodable):
        send()


@pytest.mark.parametrize(
    ("decode", "packed", "offset", "expected"),
    [
        (decode_error, "", 0, "the header of a message"),
        (decode_error, "0502000900000001", 2, "the length 8"),
        (decode_features, "0406000800000001", 0, "version 5 of OpenFlow"),
        (decode_role, "0502000800000001", 1, "a role reply"),
        (decode_error, "0501000a000000010001", 8, "type and code of an error"),
        (decode_features, "0506000c0000000100000000", 8, "the features of a switch"),
        (decode_features, f"0506002400000001{'00' * 28}", 32, "the end of the message"),
        (decode_role, "0519001800000001 00000009 00000000 0000000000000000", 8, "a role of a controller"),
        (decode_ports, "05130010000000010001000000000000", 8, "ports"),
        (decode_count, "05130010000000010002000000000000", 16, "sums over flows"),
        (lambda frame: list(decode_flows(frame, {})), "05130012000000010001000000000000 0030", 16, "a flow"),
    ],
)
def test_bytes_that_are_no_message(decode: Callable[[bytes], object], packed: str, offset: int, expected: str) -> None:
    with pytest.raises(WireError) as refused:
        decode(bytes.fromhex(packed))
    assert (refused.value.offset, refused.value.expected) == (offset, expected)
    assert isinstance(refused.value, ParseError)
    assert f"byte {offset}: expected {expected}" in str(refused.value)


def test_a_condition_is_read_to_its_end_only() -> None:
    """A condition whose length reaches over the end of the match."""
    whole = bytearray(packet_in(b""))
    whole[31] = 0x7F
    with pytest.raises(WireError, match="a condition and its whole value"):
        decode_packet_in(bytes(whole), {})


_messages = st.lists(st.binary(max_size=40), max_size=8).map(
    lambda bodies: [HEADER.pack(5, 2, HEADER.size + len(body), 7) + body for body in bodies]
)


@given(sent=_messages, cuts=st.lists(st.integers(1, 50)))
def test_messages_come_out_as_they_went_in(sent: list[bytes], cuts: list[int]) -> None:
    frames, stream, received = Frames(), b"".join(sent), list[bytes]()
    for cut in cuts:
        received += frames.feed(stream[:cut])
        stream = stream[cut:]
    received += frames.feed(stream)
    assert received == sent


@pytest.mark.parametrize("header", [HEADER.pack(5, 0, 7, 0), HEADER.pack(0, 0, 8, 0), HEADER.pack(0x47, 0, 8, 0)])
def test_what_no_message_starts_with(header: bytes) -> None:
    with pytest.raises(WireError):
        list(Frames().feed(header))
