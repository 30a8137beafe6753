"""Law: flows that are encoded and listed by a switch decode to the same flows."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.openflow_replies import flows_reply
from tests.property.flows import flows
from tests.property.wire_messages import NAMES, OFPORTS, observed
from xenoovs.openflow.flow import Bundle, Command, Flow, FlowMod, ObservedFlow
from xenoovs.openflow.wire.flow import encode_flow_mod, note_action, note_of
from xenoovs.openflow.wire.frame import HEADER, Frames
from xenoovs.openflow.wire.message import decode_flows, encode_bundle, has_more


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(seen=st.lists(observed(), max_size=4), more=st.booleans())
def test_a_dump_lists_the_flows_that_were_encoded(seen: list[ObservedFlow], more: bool) -> None:
    reply = flows_reply(seen, OFPORTS, more=more)
    assert list(decode_flows(reply, NAMES)) == seen
    assert has_more(reply) is more


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(sent=st.lists(flows(), max_size=4), cut=st.integers(0, 60))
def test_a_stream_is_split_where_messages_end(sent: list[Flow], cut: int) -> None:
    whole = [encode_flow_mod(FlowMod(Command.ADD, flow), xid=n, ofports=OFPORTS) for n, flow in enumerate(sent)]
    stream = b"".join(whole)
    at = max(0, len(stream) - cut)
    frames = Frames()
    assert [*frames.feed(stream[:at]), *frames.feed(stream[at:])] == whole


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(wanted=st.lists(flows(), max_size=5, unique_by=lambda flow: flow.key))
def test_a_bundle_is_its_flow_mods_between_open_and_commit(wanted: list[Flow]) -> None:
    mods = tuple(FlowMod(Command.ADD, flow) for flow in wanted)
    sent = list(encode_bundle(Bundle(mods), bundle_id=9, first_xid=0xFFFFFFFE, ofports=OFPORTS))
    xids = [HEADER.unpack_from(message)[3] for message in sent]
    assert xids == [(0xFFFFFFFE + n) & 0xFFFFFFFF for n in range(len(mods) + 2)]
    assert sent[0][8:] == bytes.fromhex("00000009 0000 0003")
    assert sent[-1][8:] == bytes.fromhex("00000009 0004 0003")
    for xid, mod, message in zip(xids[1:], mods, sent[1:-1], strict=False):
        assert message[8:16] == bytes.fromhex("00000009 0000 0003")
        assert message[16:] == encode_flow_mod(mod, xid=xid, ofports=OFPORTS)


@given(data=st.binary(max_size=100))
def test_a_note_is_read_back_with_zeros_behind_it(data: bytes) -> None:
    read = note_of(note_action(data))
    assert read is not None
    assert read.startswith(data)
    assert not any(read[len(data) :])
    assert (10 + len(read)) % 8 == 0
