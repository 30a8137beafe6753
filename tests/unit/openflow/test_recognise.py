"""Known flows are found in a dump by their text; the rest is parsed."""

from __future__ import annotations

import pytest

from xenoovs.errors import ParseError
from xenoovs.openflow.text import parse_flow, recognise, render_flow

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
