"""Next hops in OpenFlow's actions, there and back."""

from __future__ import annotations

import pytest

from xenoovs.compile.encoding import arrives, deliver, hop_of
from xenoovs.model.address import Mac
from xenoovs.model.next_hop import Direct, NextHop, Unchanged, parse_next_hop
from xenoovs.openflow.flow import Action
from xenoovs.openflow.text import parse_flow

HOP, SAME = Direct(Mac(2), "p1"), Unchanged("p1")


def actions_of(text: str) -> tuple[Action, ...]:
    return parse_flow(f"actions={text}").actions


@pytest.mark.parametrize("hop", [HOP, SAME])
@pytest.mark.parametrize("source_mac", [None, Mac(9)])
def test_where_actions_deliver_is_read_out_of_them(hop: NextHop, source_mac: Mac | None) -> None:
    assert hop_of(deliver(hop, source_mac)) == hop


@pytest.mark.parametrize("hop", [HOP, SAME])
def test_a_next_hop_is_read_from_its_text(hop: NextHop) -> None:
    assert parse_next_hop(str(hop)) == hop


@pytest.mark.parametrize("text", ["drop", "NORMAL", "mod_dl_dst:00:00:00:00:00:02", "resubmit(,2)"])
def test_other_actions_deliver_to_no_next_hop(text: str) -> None:
    assert hop_of(actions_of(text)) is None


@pytest.mark.parametrize(("dl_dst", "port"), [(2, "p9"), (3, "p1"), (2, None)])
def test_a_packet_arrives_with_the_mac_by_the_port(dl_dst: int, port: str | None) -> None:
    assert arrives(HOP, dl_dst=2, port="p1", original=5)
    assert not arrives(HOP, dl_dst=dl_dst, port=port, original=5)


@pytest.mark.parametrize(("dl_dst", "port", "is_there"), [(5, "p1", True), (2, "p1", False), (5, "p2", False)])
def test_a_packet_arrives_unchanged_with_the_mac_that_it_had(dl_dst: int, port: str, *, is_there: bool) -> None:
    assert arrives(SAME, dl_dst=dl_dst, port=port, original=5) is is_there
