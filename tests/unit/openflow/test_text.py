"""Values and masks as Open vSwitch writes them; the samples are what ovs-ofctl 3.1.0 dumped."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xenoovs.errors import ParseError, UnknownTableName
from xenoovs.openflow.flow import (
    ANSWER_OWNER,
    FOREIGN,
    LEASE_OWNER,
    OURS,
    OWNER,
    Action,
    Command,
    Field,
    Flow,
    FlowMod,
    Foreign,
    Masked,
    Normal,
    Output,
    Resubmit,
    SetField,
    exact,
    is_foreign,
    is_ours,
    match_of,
)
from xenoovs.openflow.text import (
    parse_dump,
    parse_flow,
    parse_observed,
    recognise,
    render_flow,
    render_flow_mod,
    render_flow_to_send,
    render_match,
)


@pytest.mark.parametrize(
    "conditions",
    [
        *("ipv6,ipv6_src=::", "ipv6,ipv6_src=::1", "ipv6,ipv6_src=::ffff", "ipv6,ipv6_src=::0.1.0.0"),
        *("ipv6,ipv6_src=::ffff:1.2.3.4", "ipv6,ipv6_src=::ffff:0.0.0.0", "ipv6,ipv6_src=::1:0:5"),
        *("ipv6,ipv6_src=2001:db8::ff", "ipv6,ipv6_src=1::1:0"),
        *("ipv6,ipv6_src=::1/::ff", "ipv6,ipv6_src=fd00::/64", "ipv6,ipv6_src=::1/::0.15.255.255"),
        *("ip,nw_src=0.0.0.1/0.0.0.3", "ip,nw_src=0.5.0.1/0.255.0.1", "ip,nw_src=10.0.0.0/24"),
        *("tcp,tp_dst=0x50/0xfff0", "tcp,tp_src=0x0/0x1", "metadata=0/0x1", "metadata=0x5/0xff"),
        "vlan_tci=0x0004/0x000c",
        *("dl_dst=00:00:00:00:00:05/00:00:00:00:00:ff", "reg0=0", "dl_type=0x0600", "rarp"),
        # Marks stand before the keyword, registers after it.
        "pkt_mark=0x3,ip,reg0=0x1,in_port=p0",
    ],
)
def test_conditions_are_written_as_open_vswitch_does(conditions: str) -> None:
    assert render_match(parse_flow(f"priority=1,{conditions} actions=drop").match) == conditions


def test_a_value_of_ipv6_has_its_bits() -> None:
    flow = parse_flow("ipv6,ipv6_src=::ffff:1.2.3.4/::ffff:ffff:ffff actions=drop")
    assert flow.match.get(Field.IPV6_SRC) == Masked(Field.IPV6_SRC, 0xFFFF01020304, 0xFFFFFFFFFFFF)


def test_one_field_is_matched_once_and_an_ipv6_address_not_set_at_once() -> None:
    with pytest.raises(ValueError, match="nw_src is matched twice"):
        match_of((exact(Field.NW_SRC, 1), exact(Field.NW_SRC, 2)))
    with pytest.raises(ValueError, match="more than 64 bits"):
        SetField(Field.IPV6_SRC, 1)


def test_bug_ovs_ofctl_took_a_mask_that_starts_with_zero_for_a_prefix_length() -> None:
    flow = parse_flow("priority=5,ipv6,ipv6_src=0:4::/0:4:0:1000:: actions=output:p1")
    assert "ipv6_src=0:4::/0:4:0:1000:: " in render_flow(flow)
    assert "ipv6_src=0:4::/::4:0:1000:0:0:0:0 " in render_flow_mod(FlowMod(Command.ADD, flow))
    assert render_flow_mod(FlowMod(Command.DELETE, flow)).endswith("/::4:0:1000:0:0:0:0")
    assert parse_flow(render_flow_to_send(flow)) == flow
    # Others are sent as Open vSwitch prints them.
    mac = "dl_dst=00:00:00:00:00:05/00:00:00:00:00:0f"
    for text in ("ipv6,ipv6_src=::/a000:0:1::", "ipv6,ipv6_src=::/::3", "ipv6,ipv6_src=::/64", mac):
        other = parse_flow(f"priority=5,{text} actions=drop")
        assert render_flow_to_send(other) == render_flow(other)
    for mask in ("0:0:1::", "0:ffff:ffff:ffff:ffff:ffff:ffff:ffff"):
        sent = render_flow_to_send(parse_flow(f"priority=5,ipv6,ipv6_src=::/{mask} actions=drop"))
        assert "/::" in sent
        assert mask in render_flow(parse_flow(sent))


_NEAR = st.sampled_from((OWNER, LEASE_OWNER, ANSWER_OWNER, OWNER + 1, OWNER ^ 0x8000, 0))
COOKIES = st.integers(0, (1 << 64) - 1) | st.builds(
    lambda owner, rest: owner << 48 | rest, _NEAR, st.integers(0, (1 << 48) - 1)
)


@given(cookie=COOKIES)
def test_masks_select_the_owner_of_a_flow(cookie: int) -> None:
    """Of one mask alone."""
    assert sum(cookie in mask for mask in OURS) == is_ours(cookie)
    assert sum(cookie in mask for mask in FOREIGN) == is_foreign(cookie)


_OF14 = " cookie=0x0, duration=0.009s, table=0, n_packets=3, n_bytes=294, "
_LEARN = (
    "learn(table=1,idle_timeout=10,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],"
    "load:NXM_OF_IN_PORT[]->NXM_NX_REG0[0..15],output:NXM_OF_IN_PORT[])"
)
_CT = "ct(commit,zone=5,exec(load:0x1->NXM_NX_CT_MARK[],nat(src=10.0.0.1-10.0.0.9:1-20)))"


def test_bug_options_of_a_flow_were_taken_for_its_match() -> None:
    """So a plan would have added the flow and deleted it again."""
    seen = parse_observed(
        f"{_OF14}idle_timeout=60, hard_timeout=70, send_flow_rem check_overlap importance=7, priority=103 actions=drop"
    )
    options = ("idle_timeout=60", "hard_timeout=70", "send_flow_rem", "check_overlap", "importance=7")
    assert (seen.flow.options, seen.flow.key) == (options, parse_flow("priority=103 actions=drop").key)
    assert (seen.packets, seen.bytes, seen.duration_s) == (3, 294, 0.009)


MAC = SetField(Field.DL_DST, 0xC6467A3332B5)
SET_BY_OTHERS = "set_field:2001:db8::20->ipv6_dst"


@pytest.mark.parametrize(
    ("text", "actions"),
    [
        (f"tcp actions={_LEARN},{_CT},resubmit(,1)", (Foreign(_LEARN), Foreign(_CT), Resubmit(1))),
        (
            'ip actions=output:"x\\"y",clone(output:"a)b"),output:"actions="',
            (Output('x"y'), Foreign('clone(output:"a)b")'), Output("actions=")),
        ),
        ("ip actions=mod_dl_dst:c6:46:7a:33:32:b5,load:0x5->NXM_NX_REG0[]", (MAC, SetField(Field.REG0, 5))),
        ("ip actions=set_field:c6:46:7a:33:32:b5->eth_dst,set_field:0x5->reg0", (MAC, SetField(Field.REG0, 5))),
        # Bug: an address of IPv6 that others set made the dump unreadable.
        (f"ipv6 actions={SET_BY_OTHERS},output:p1", (Foreign(SET_BY_OTHERS), Output("p1"))),
        ("ip actions=NORMAL", (Normal(),)),
    ],
    ids=["nested commas", "quoted syntax", "the old spelling", "the new spelling", "an address of IPv6", "NORMAL"],
)
def test_actions(text: str, actions: tuple[Action, ...]) -> None:
    flow = parse_flow(f"{_OF14}priority=1,{text}")
    assert flow.actions == actions
    assert parse_flow(render_flow(flow)) == flow


def test_unknown_conditions_and_quoted_names_stay_and_ages_are_left_out() -> None:
    ages = "idle_age=5, hard_age=65534, "
    flow = parse_flow(f'{_OF14}{ages}priority=1,ct_state=+est+trk,tcp,tcp_flags=+syn-ack,in_port="a,(b" actions=NORMAL')
    assert (flow.match.foreign, flow.match.in_port, flow.options) == (("ct_state=+est+trk",), "a,(b", ())
    assert flow.match.get(Field.TCP_FLAGS) == Masked(Field.TCP_FLAGS, 0x002, 0x012)
    assert flow.match.get(Field.NW_PROTO) == exact(Field.NW_PROTO, 6)


@pytest.mark.parametrize(
    "action",
    [
        "output:NXM_NX_REG0[0..15]",
        "output(port=p0,max_len=100)",
        "load:0x5->NXM_NX_REG1[0..7]",
        "set_field:0x5/0xff->reg1",
        "resubmit(1,2)",
        "resubmit(p0,)",
        "CONTROLLER:65535",
        "note:00.01.00.00.00.00",
        "check_pkt_larger(1500)->NXM_NX_REG0[0]",
        "multipath(symmetric_l4,1024,modulo_n,16,0,NXM_NX_REG1[0..3])",
        "group:7",
        "FLOOD",
    ],
)
def test_unknown_actions_stay(action: str) -> None:
    flow = parse_flow(f"priority=1 actions={action},output:p1")
    assert flow.actions == (Foreign(action), Output("p1"))
    assert render_flow(flow) == f"priority=1 actions={action},output:p1"


@pytest.mark.parametrize(
    "line",
    [
        "priority=1,ip",
        "priority=1,ip actions=",
        "priority=1ip actions=drop",
        "priority=65536 actions=drop",
        "table=255, priority=1 actions=drop",
        "cookie=0x12345678123456781, priority=1 actions=drop",
        "priority=1,ip,nw_src=10.0.0.300 actions=drop",
        "priority=1,ip,nw_src=10.0.0.0/33 actions=drop",
        "priority=1,ip,nw_src=0.0.0.2/0.0.0.1 actions=drop",
        "priority=1,ip,nw_src=1.2.3.4,nw_src=1.2.3.5 actions=drop",
        "priority=1,tcp,arp actions=drop",
        "priority=1,,ip actions=drop",
        "priority=1 actions=output:p0,,output:p1",
        "priority=1 actions=output:p0,drop",
        'priority=1,in_port="p0 actions=drop',
        "priority=1 actions=ct(commit,output:p0",
        "priority=1 actions=mod_dl_dst:00:00:00:00:00",
        "priority=1 actions=load:0x100000000->NXM_NX_REG0[]",
        "priority=1 actions=resubmit(,255)",
        "flow flow flow",
    ],
)
def test_impossible_lines(line: str) -> None:
    with pytest.raises(ParseError) as caught:
        list(parse_dump(f"OFPST_FLOW reply (OF1.4) (xid=0x2):\n priority=1 actions=drop\n{line}\n"))
    assert caught.value.line == 3


@pytest.mark.parametrize("line", ["table=classify, priority=1 actions=drop", 'priority=1 actions=resubmit(,"a b")'])
def test_a_table_with_an_unknown_name(line: str) -> None:
    with pytest.raises(UnknownTableName):
        parse_flow(line)


def test_a_table_with_a_known_name() -> None:
    (seen,) = parse_dump('table="a b", priority=1 actions=resubmit(,x),goto_table:x', tables={"a b": 3, "x": 4})
    assert seen.flow.table == 3
    assert seen.flow.actions == (Resubmit(4), Resubmit(4))


def test_a_port_with_the_name_of_a_number_is_another_one() -> None:
    texts = ["priority=5,in_port=2 actions=output:2", 'priority=5,in_port="2" actions=output:"2"']
    gone, named = map(parse_flow, texts)
    assert [render_flow(gone), render_flow(named)] == texts
    assert gone.key != named.key


BLOCK = parse_flow(
    "cookie=0x786f010100000001, table=1, priority=999,ip,reg0=0x1 actions=mod_dl_dst:02:00:00:00:00:01,output:p1"
)
OTHER = parse_flow("cookie=0x786f010000000000, priority=1,in_port=p0 actions=output:p1")
KNOWN = {render_flow(flow): flow for flow in (BLOCK, OTHER)}


SPELLED_OTHERWISE = [
    text.replace("mod_dl_dst:02:00:00:00:00:01", "set_field:02:00:00:00:00:01->eth_dst") for text in KNOWN
]
CHANGED = render_flow(BLOCK).replace("00:01,output", "00:02,output")


@pytest.mark.parametrize(
    ("lines", "missing", "others"),
    [
        (list(KNOWN), [], ()),
        (SPELLED_OTHERWISE, [], ()),
        (["NXST_FLOW reply (xid=0x4):", CHANGED, render_flow(OTHER)], [BLOCK], (parse_flow(CHANGED),)),
        ([], [BLOCK, OTHER], ()),
    ],
    ids=["all are there", "as OpenFlow 1.4 spells the MAC", "one is missing, one is strange", "an empty dump"],
)
def test_known_flows_are_recognised(lines: list[str], missing: list[Flow], others: tuple[Flow, ...]) -> None:
    seen = recognise("\n".join(lines), KNOWN)
    assert (list(seen.missing.values()), seen.others) == (missing, others)
