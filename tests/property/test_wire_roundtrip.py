"""Law: decode(encode(x)) == x for every message."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.property.flows import flows
from tests.property.wire_messages import NAMES, OFPORTS, messages
from xenoovs.openflow.flow import Bundle, Command, Flow, FlowMod
from xenoovs.openflow.wire.frame import VERSION, Frames
from xenoovs.openflow.wire.message import (
    BundleAdd,
    BundleControl,
    BundleStep,
    Message,
    Received,
    decode,
    encode,
    encode_bundle,
)


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(message=messages(), xid=st.integers(0, 0xFFFFFFFF))
def test_what_is_encoded_is_decoded(message: Message, xid: int) -> None:
    assert decode(encode(message, xid=xid, ofports=OFPORTS), names=NAMES) == Received(VERSION, xid, message)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(sent=st.lists(messages(), max_size=4), cut=st.integers(0, 60))
def test_a_stream_is_cut_where_messages_end(sent: list[Message], cut: int) -> None:
    whole = [encode(message, xid=n, ofports=OFPORTS) for n, message in enumerate(sent)]
    stream = b"".join(whole)
    at = max(0, len(stream) - cut)
    frames = Frames()
    assert [*frames.feed(stream[:at]), *frames.feed(stream[at:])] == whole


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(wanted=st.lists(flows(), max_size=5, unique_by=lambda flow: flow.key))
def test_a_bundle_is_its_flows_between_open_and_commit(wanted: list[Flow]) -> None:
    mods = tuple(FlowMod(Command.ADD, flow) for flow in wanted)
    sent = [decode(m) for m in encode_bundle(Bundle(mods), bundle_id=9, first_xid=0xFFFFFFFE, ofports=OFPORTS)]
    assert [one.xid for one in sent] == [(0xFFFFFFFE + n) & 0xFFFFFFFF for n in range(len(mods) + 2)]
    assert sent[0].message == BundleControl(9, BundleStep.OPEN_REQUEST)
    assert sent[-1].message == BundleControl(9, BundleStep.COMMIT_REQUEST)
    inner = [one.message.inner for one in sent[1:-1] if isinstance(one.message, BundleAdd)]
    assert [decode(flow, names=NAMES) for flow in inner] == [
        Received(VERSION, one.xid, mod) for one, mod in zip(sent[1:-1], mods, strict=True)
    ]
