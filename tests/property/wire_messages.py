"""Strategies: flows with all that the codec supports, and bytes of every message that it decodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hypothesis import strategies as st

from tests.openflow_replies import flows_reply
from tests.property.flows import PORTS, flows
from xenoovs.openflow.flow import Foreign, ObservedFlow
from xenoovs.openflow.wire.frame import HEADER, VERSION, decode_error, decode_hello
from xenoovs.openflow.wire.message import (
    decode_count,
    decode_features,
    decode_flows,
    decode_packet_in,
    decode_port_status,
    decode_ports,
    decode_role,
    has_more,
)

OFPORTS = {name: number for number, name in enumerate(PORTS, 1)}
NAMES = {number: name for name, number in OFPORTS.items()}

U64 = st.integers(0, (1 << 64) - 1)
OPTIONS = ("idle_timeout=10", "hard_timeout=3", "send_flow_rem", "check_overlap", "importance=7")
_FOREIGN = (
    "group:5",
    "CONTROLLER:128",
    "FLOOD",
    "ALL",
    "TABLE",
    "wire:0013000888470000",
    "instruction:0006000800000001",
)
_CONDITIONS = (
    *("dl_vlan_pcp=3", "nw_ecn=2", "nw_ttl=64"),
    *("reg7=0x1/0xf", "nd_target=fd00::1", "nd_target=fd00::/8", "nd_sll=02:00:00:00:00:01", "ct_mark=0x7"),
    "oxm:0001d408000000210000002f",
)

DECODERS: tuple[tuple[int, Callable[[bytes], object]], ...] = (
    (0, decode_hello),
    (1, decode_error),
    (6, decode_features),
    (10, lambda frame: decode_packet_in(frame, NAMES)),
    (12, decode_port_status),
    (19, lambda frame: tuple(decode_flows(frame, NAMES))),
    (19, decode_count),
    (19, decode_ports),
    (19, has_more),
    (25, decode_role),
)
"""Type and decoder of each message that a switch sends."""


_FLOWS = flows()
_SOME_CONDITIONS = st.sets(st.sampled_from(_CONDITIONS), max_size=2)
_SOME_FOREIGN = st.lists(st.sampled_from(_FOREIGN), max_size=2)
_SOME_OPTIONS = st.sets(st.sampled_from(OPTIONS))
_DURATIONS = st.integers(0, (1 << 30) - 1).map(lambda ms: ms / 1000)


@st.composite
def observed(draw: st.DrawFn) -> ObservedFlow:
    """Also with options, and with conditions and actions that xenoovs does not write."""
    flow = draw(_FLOWS)
    foreign = tuple(sorted(draw(_SOME_CONDITIONS)))
    more = tuple(map(Foreign, draw(_SOME_FOREIGN)))
    options = draw(_SOME_OPTIONS)
    key = replace(flow.key, match=replace(flow.match, foreign=foreign))
    chosen = tuple(option for option in OPTIONS if option in options)
    whole = replace(flow, key=key, actions=flow.actions + more, options=chosen)
    return ObservedFlow(whole, draw(U64), draw(U64), draw(_DURATIONS))


# As Open vSwitch 3.1.0 sent them: a port status, a packet-in, features, a role, two ports, a number of flows, an error.
_RECORDED = tuple(
    map(
        bytes.fromhex,
        (
            "050c0050000000000200000000000000 0000000100480000 020000000001 0000 70300000000000000000000000000000"
            "00000000 00000004 0000002000000000 00000000000000000000000000000000 00000000",
            "050a0044000000000000000000000000 ffffffff 0004 01 00 0000000000000009 0001000c8000000400000001 00000000"
            "0000 ffffffffffff0200000000010806",
            "0506002000000002 0000aabbccddeeff 00000000fe000000 0000004f00000000",
            "0519001800000003 00000002 00000000 0000000000000005",
            "0513002800000fff 0002000000000000 00000000000000010000000000000064 00000001 00000000",
            "05010014000000070005000105 0e0038 00000007",
        ),
    )
)


_DUMPS = st.lists(observed(), max_size=4).map(lambda flows: flows_reply(flows, OFPORTS))
recorded = st.sampled_from(_RECORDED).map(lambda frame: frame[:2] + len(frame).to_bytes(2, "big") + frame[4:]) | _DUMPS
"""Good messages of a switch."""
_CHANGES = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 3), st.binary(max_size=3)), min_size=1, max_size=4)
_IS_RIGHT = st.booleans()


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A good message with some bytes changed, cut out or put in; the length in its header may be right again."""
    data = bytearray(draw(recorded))
    for place, cut, put in draw(_CHANGES):
        at = round(place * len(data))
        data[at : at + cut] = put
    if draw(_IS_RIGHT) and len(data) >= HEADER.size:
        data[2:4] = len(data).to_bytes(2, "big")
    return bytes(data)


@st.composite
def any_message(draw: st.DrawFn) -> bytes:
    """A good header before any body, so that each decoder is reached."""
    body = draw(st.binary(max_size=120))
    return HEADER.pack(VERSION, draw(st.sampled_from(DECODERS))[0], HEADER.size + len(body), 1) + body
