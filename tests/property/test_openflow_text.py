"""Law: parse(render(x)) == x; any text gives flows or a ParseError, nothing else."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import example, given
from hypothesis import strategies as st

from tests.openflow_replies import flows_reply
from tests.property.flows import flows
from tests.property.wire_messages import DECODERS, NAMES, OFPORTS, OPTIONS, any_message, damaged, observed
from tests.strategies import damaged as damaged_text
from xenoovs.errors import ParseError, WireError
from xenoovs.openflow.flow import Bundle, Command, Flow, FlowMod, ObservedFlow
from xenoovs.openflow.text import parse_dump, parse_flow, render_flow
from xenoovs.openflow.wire.flow import encode_flow_mod
from xenoovs.openflow.wire.frame import HEADER, Frames
from xenoovs.openflow.wire.message import decode_flows, encode_bundle, has_more

_DUMP_WORDS = (
    *(" cookie=0x1, ", "duration=1.5s, ", "table=3, ", 'table="a b", ', "n_packets=1, n_bytes=2, ", "idle_timeout=1, "),
    *(
        "send_flow_rem ",
        "priority=7,",
        "priority=70000,",
        "in_port=p0",
        'in_port="p-1"',
        ",",
        "ip,nw_src=1.2.3.4/0.0.0.1",
    ),
    *("udp,tp_dst=0x10/0x10", "ipv6,ipv6_src=::/::1", " actions=", "drop", "output:p1", "resubmit(,2)", "resubmit(,x)"),
    *("load:0x5->NXM_NX_REG0[]", "mod_dl_dst:00:00:00:00:00:01", "learn(table=1,load:1->X[],output:Y[])", "(", '"'),
    *("NXST_FLOW reply (xid=0x4):\n", "\n", "set_field:5->reg0", "goto_table:4", "dl_vlan=5", "=", "/", " ", "\\"),
)


@given(flow=flows(), options=st.sets(st.sampled_from(OPTIONS)))
def test_what_is_rendered_is_read_back(flow: Flow, options: set[str]) -> None:
    whole = Flow(flow.key, flow.cookie, flow.actions, tuple(option for option in OPTIONS if option in options))
    assert parse_flow(render_flow(whole)) == whole


_PIECES = st.sampled_from(_DUMP_WORDS) | st.text(max_size=3)
_DAMAGED = flows().map(render_flow).flatmap(lambda line: damaged_text(line, _PIECES, longest=len(line)))


@given(text=st.text() | st.lists(st.sampled_from(_DUMP_WORDS)).map("".join) | _DAMAGED)
@example(text="actions=")
@example(text="cookie=0x0,  actions= actions=0")
@example(text=" cookie=0x1, duration=1.0s, table=0, n_packets=0, n_bytes=0, priority=1,ip actions=")
@example(text='in_port="\\x" actions=drop')
@example(text='in_port="\\ud800" actions=output:"\\ud800"')
@example(text="table=９, actions=drop")
@example(text="ip,nw_src=1.2.3.4/99 actions=drop")
@example(text="tcp,arp actions=drop")
def test_any_text_is_flows_or_a_parse_error(text: str) -> None:
    found, refused = list[Flow](), None
    try:
        found = [seen.flow for seen in parse_dump(text)]
    except ParseError as error:
        refused = error
    assert refused is None or text.split("\n")[(refused.line or 0) - 1] == refused.text
    assert [parse_flow(render_flow(flow)) for flow in found] == found


@given(seen=st.lists(observed(), max_size=4), more=st.booleans())
def test_a_dump_lists_the_flows_that_were_encoded(seen: list[ObservedFlow], more: bool) -> None:
    reply = flows_reply(seen, OFPORTS, more=more)
    assert list(decode_flows(reply, NAMES)) == seen
    assert has_more(reply) is more


@given(sent=st.lists(flows(), max_size=4), cut=st.integers(0, 60))
def test_a_stream_is_split_where_messages_end(sent: list[Flow], cut: int) -> None:
    whole = [encode_flow_mod(FlowMod(Command.ADD, flow), xid=n, ofports=OFPORTS) for n, flow in enumerate(sent)]
    stream = b"".join(whole)
    at = max(0, len(stream) - cut)
    frames = Frames()
    assert [*frames.feed(stream[:at]), *frames.feed(stream[at:])] == whole


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


@given(data=st.binary(max_size=64) | any_message() | damaged())
@example(data=b"")
@example(data=bytes.fromhex("05130010000000010001000000000000"))
@example(data=bytes.fromhex("05000010000000010001000000000000"))
def test_any_bytes_are_a_message_or_a_wire_error(data: bytes) -> None:
    for _, decode in DECODERS:
        refused = None
        try:
            decode(data)
        except WireError as error:
            refused = error
        assert refused is None or (0 <= refused.offset <= len(data) and refused.data == data)


@given(data=st.binary(max_size=200))
def test_any_stream_is_split_or_refused(data: bytes) -> None:
    frames, whole = Frames(), list[bytes]()
    with suppress(WireError):
        whole.extend(frames.feed(data))
    joined = b"".join(whole)
    assert data.startswith(joined)
    assert all(int.from_bytes(message[2:4], "big") == len(message) for message in whole)
