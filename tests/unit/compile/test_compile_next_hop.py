"""Next hops in OpenFlow's actions, there and back."""

from __future__ import annotations

import pytest

from xenoovs.compile.encoding import arrives, deliver, hop_of
from xenoovs.model.address import Mac
from xenoovs.model.next_hop import Direct
from xenoovs.openflow.flow import Action
from xenoovs.openflow.text import parse_flow

HOP = Direct(Mac(2), "p1")


def actions_of(text: str) -> tuple[Action, ...]:
    return parse_flow(f"actions={text}").actions


@pytest.mark.parametrize("source_mac", [None, Mac(9)])
def test_where_actions_deliver_is_read_out_of_them(source_mac: Mac | None) -> None:
    actions = deliver(HOP, source_mac)
    assert hop_of(actions) == HOP


@pytest.mark.parametrize("text", ["drop", "NORMAL", "output:p1", "mod_dl_dst:00:00:00:00:00:02", "resubmit(,2)"])
def test_other_actions_deliver_to_no_next_hop(text: str) -> None:
    assert hop_of(actions_of(text)) is None


@pytest.mark.parametrize(("dl_dst", "port"), [(2, "p9"), (3, "p1"), (2, None)])
def test_a_packet_arrives_with_the_mac_by_the_port(dl_dst: int, port: str | None) -> None:
    assert arrives(HOP, dl_dst=2, port="p1")
    assert not arrives(HOP, dl_dst=dl_dst, port=port)
