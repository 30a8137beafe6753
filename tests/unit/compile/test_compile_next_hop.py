"""Next hops in OpenFlow's actions, there and back."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Address

import pytest

from xenoovs.compile.encoding import arrives, deliver, hop_of
from xenoovs.model.address import Mac
from xenoovs.model.next_hop import Direct, NextHop, SourcePort, ToAddress, Unchanged, parse_next_hop
from xenoovs.openflow.flow import Action, Field
from xenoovs.openflow.text import parse_flow

HOP, SAME = Direct(Mac(2), "p1"), Unchanged("p1")
BY_PORT, BY_ADDRESS = SourcePort(50_001, "p1"), ToAddress(IPv4Address("192.168.201.1"), "p1")


def fields(**values: int) -> Callable[[Field], int]:
    """Fields of a packet; those that are not given are 7."""
    return lambda field: values.get(field.ovs_name, 7)


def actions_of(text: str) -> tuple[Action, ...]:
    return parse_flow(f"actions={text}").actions


@pytest.mark.parametrize("hop", [HOP, SAME, BY_PORT, BY_ADDRESS])
@pytest.mark.parametrize("source_mac", [None, Mac(9)])
def test_where_actions_deliver_is_read_out_of_them(hop: NextHop, source_mac: Mac | None) -> None:
    assert hop_of(deliver(hop, source_mac)) == hop


@pytest.mark.parametrize("hop", [HOP, SAME, BY_PORT, BY_ADDRESS])
def test_a_next_hop_is_read_from_its_text(hop: NextHop) -> None:
    assert parse_next_hop(str(hop)) == hop


@pytest.mark.parametrize("text", ["drop", "NORMAL", "mod_dl_dst:00:00:00:00:00:02", "resubmit(,2)"])
def test_other_actions_deliver_to_no_next_hop(text: str) -> None:
    assert hop_of(actions_of(text)) is None


@pytest.mark.parametrize(("dl_dst", "port"), [(2, "p9"), (3, "p1"), (2, None)])
def test_a_packet_arrives_with_the_mac_by_the_port(dl_dst: int, port: str | None) -> None:
    assert arrives(HOP, port="p1", sent=fields(dl_dst=2), original=fields())
    assert not arrives(HOP, port=port, sent=fields(dl_dst=dl_dst), original=fields())


@pytest.mark.parametrize(("dl_dst", "port", "is_there"), [(5, "p1", True), (2, "p1", False), (5, "p2", False)])
def test_a_packet_arrives_unchanged_with_the_mac_that_it_had(dl_dst: int, port: str, *, is_there: bool) -> None:
    assert arrives(SAME, port=port, sent=fields(dl_dst=dl_dst), original=fields(dl_dst=5)) is is_there


def test_a_path_by_source_port_is_known_by_the_port_and_one_by_address_by_the_destination() -> None:
    assert arrives(BY_PORT, port="p1", sent=fields(tp_src=50_001), original=fields())
    assert not arrives(BY_PORT, port="p1", sent=fields(tp_src=50_002), original=fields())
    address = int(IPv4Address("192.168.201.1"))
    assert arrives(BY_ADDRESS, port="p1", sent=fields(nw_dst=address), original=fields())
    assert not arrives(BY_ADDRESS, port="p1", sent=fields(), original=fields())
    assert not arrives(SAME, port="p1", sent=fields(nw_dst=address), original=fields())
