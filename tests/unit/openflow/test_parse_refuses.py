"""Lines that no ovs-ofctl prints are refused with their number, not guessed."""

from __future__ import annotations

import pytest

from xenoovs.errors import ParseError, UnknownTableName
from xenoovs.openflow.flow import Resubmit
from xenoovs.openflow.text import parse_dump, parse_flow


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
