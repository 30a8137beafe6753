"""Flows that others wrote, as ovs-ofctl 3.1.0 dumped them: unknown parts are preserved verbatim."""

from __future__ import annotations

import pytest

from xenoovs.errors import ParseError, UnknownTableName
from xenoovs.openflow.flow import Field, Foreign, Masked, Normal, Output, Resubmit, SetField, exact
from xenoovs.openflow.text import parse_dump, parse_flow, parse_observed, recognise, render_flow

_OF14 = " cookie=0x0, duration=0.009s, table=0, n_packets=3, n_bytes=294, "
_LEARN = (
    "learn(table=1,idle_timeout=10,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],"
    "load:NXM_OF_IN_PORT[]->NXM_NX_REG0[0..15],output:NXM_OF_IN_PORT[])"
)
_CT = "ct(commit,zone=5,exec(load:0x1->NXM_NX_CT_MARK[],nat(src=10.0.0.1-10.0.0.9:1-20)))"


def test_timeouts_flags_and_importance_are_content() -> None:
    seen = parse_observed(
        f"{_OF14}idle_timeout=60, hard_timeout=70, send_flow_rem check_overlap importance=7, priority=103 actions=drop"
    )
    assert seen.flow.options == (
        *("idle_timeout=60", "hard_timeout=70", "send_flow_rem", "check_overlap", "importance=7"),
    )
    assert seen.flow.match == parse_flow("priority=103 actions=drop").match
    assert (seen.packets, seen.bytes, seen.duration_s) == (3, 294, 0.009)


def test_ages_of_openflow_1_0_are_left_out() -> None:
    assert parse_flow(f"{_OF14}idle_age=5, hard_age=65534, priority=1 actions=drop").options == ()


def test_nested_commas_do_not_divide_actions() -> None:
    flow = parse_flow(f"{_OF14}priority=1,tcp actions={_LEARN},{_CT},resubmit(,1)")
    assert flow.actions == (Foreign(_LEARN), Foreign(_CT), Resubmit(1))


def test_quoted_names_may_hold_syntax() -> None:
    flow = parse_flow(f'{_OF14}in_port="a,(b" actions=output:"x\\"y",clone(output:"a)b"),output:"actions="')
    assert flow.match.in_port == "a,(b"
    assert flow.actions == (Output('x"y'), Foreign('clone(output:"a)b")'), Output("actions="))


def test_unknown_conditions_stay() -> None:
    flow = parse_flow(f"{_OF14}priority=1,ct_state=+est+trk,tcp,tcp_flags=+syn-ack actions=NORMAL")
    assert flow.match.foreign == ("ct_state=+est+trk",)
    assert flow.match.get(Field.TCP_FLAGS) == Masked(Field.TCP_FLAGS, 0x002, 0x012)
    assert flow.match.get(Field.NW_PROTO) == exact(Field.NW_PROTO, 6)
    assert flow.actions == (Normal(),)


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


def test_both_spellings_of_a_set_are_one_value() -> None:
    old = parse_flow("ip actions=mod_dl_dst:c6:46:7a:33:32:b5,load:0x5->NXM_NX_REG0[]")
    new = parse_flow("ip actions=set_field:c6:46:7a:33:32:b5->eth_dst,set_field:0x5->reg0")
    assert old.actions == new.actions == (SetField(Field.DL_DST, 0xC6467A3332B5), SetField(Field.REG0, 5))


def test_bug_an_ipv6_address_set_by_others_made_the_dump_unreadable() -> None:
    text = "ipv6 actions=set_field:2001:db8::20->ipv6_dst,output:p1"
    assert parse_flow(text).actions == (Foreign("set_field:2001:db8::20->ipv6_dst"), Output("p1"))
    assert render_flow(parse_flow(text)) == text


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


GONE = "cookie=0x1, table=0, priority=5,in_port=2 actions=output:2"
NAMED_LIKE_A_NUMBER = 'cookie=0x1, table=0, priority=5,in_port="2" actions=output:"2"'


def test_numbers_stay_numbers_and_names_stay_names() -> None:
    for text in (GONE, NAMED_LIKE_A_NUMBER):
        (seen,) = parse_dump(f" {text}\n")
        assert render_flow(seen.flow) == text.replace("table=0, ", "")
    gone, named = (next(iter(parse_dump(f" {text}\n"))).flow for text in (GONE, NAMED_LIKE_A_NUMBER))
    assert gone.key != named.key


BLOCK = parse_flow(
    "cookie=0x786f010100000001, table=1, priority=999,ip,reg0=0x1 actions=mod_dl_dst:02:00:00:00:00:01,output:p1"
)
OTHER = parse_flow("cookie=0x786f010000000000, priority=1,in_port=p0 actions=output:p1")
KNOWN = {render_flow(flow): flow for flow in (BLOCK, OTHER)}


def test_everything_is_there() -> None:
    seen = recognise("".join(f" {text}\n" for text in KNOWN), KNOWN)
    assert (dict(seen.missing), seen.others) == ({}, ())


def test_openflow_14_spells_the_mac_otherwise() -> None:
    dump = "\n".join(KNOWN).replace("mod_dl_dst:02:00:00:00:00:01", "set_field:02:00:00:00:00:01->eth_dst")
    seen = recognise(dump, KNOWN)
    assert (dict(seen.missing), seen.others) == ({}, ())


def test_what_is_missing_and_what_is_strange() -> None:
    changed = render_flow(BLOCK).replace("00:01,output", "00:02,output")
    seen = recognise(f"NXST_FLOW reply (xid=0x4):\n {changed}\n {render_flow(OTHER)}\n", KNOWN)
    assert list(seen.missing.values()) == [BLOCK]
    assert seen.others == (parse_flow(changed),)


def test_an_empty_dump() -> None:
    seen = recognise("", KNOWN)
    assert (list(seen.missing.values()), seen.others) == ([BLOCK, OTHER], ())


def test_garbage_is_an_error() -> None:
    with pytest.raises(ParseError):
        recognise("flow flow flow\n", KNOWN)
