"""Shares and moved clients of hand-written flows."""

from __future__ import annotations

from fractions import Fraction

from tests.flow_oracle import Piece, blocks_by_service, moved, pieces, shares
from xenoovs.model.address import Mac
from xenoovs.model.next_hop import Direct
from xenoovs.openflow.flow import Flow
from xenoovs.openflow.parse import parse_flow

B1, B2 = Direct(Mac(1), "p1"), Direct(Mac(2), "p1")


def block(source: str, mac: int, *, priority: int = 999, family: str = "ip") -> Flow:
    field = "nw_src" if family == "ip" else "ipv6_src"
    conditions = f"priority={priority},{family},reg0=0x1" + (f",{field}={source}" if source else "")
    actions = f"mod_dl_dst:00:00:00:00:00:0{mac},output:p1" if mac else "drop"
    return parse_flow(f"cookie=0x786f010100000001, table=1, {conditions} actions={actions}")


EVEN, ODD = block("0.0.0.0/0.0.0.1", 1), block("0.0.0.1/0.0.0.1", 2)


def test_halves() -> None:
    assert shares(pieces([EVEN, ODD])) == {B1: Fraction(1, 2), B2: Fraction(1, 2)}


def test_swapped_halves_move_everybody() -> None:
    swapped = [block("0.0.0.0/0.0.0.1", 2), block("0.0.0.1/0.0.0.1", 1)]
    assert moved(pieces([EVEN, ODD]), pieces(swapped)) == 1


def test_other_bits_move_half() -> None:
    by_second_bit = [block("0.0.0.0/0.0.0.2", 1), block("0.0.0.2/0.0.0.2", 2)]
    assert moved(pieces([EVEN, ODD]), pieces(by_second_bit)) == Fraction(1, 2)


def test_a_split_block_moves_what_it_gives() -> None:
    split = [EVEN, block("0.0.0.1/0.0.0.3", 2), block("0.0.0.3/0.0.0.3", 1)]
    assert moved(pieces([EVEN, ODD]), pieces(split)) == Fraction(1, 4)


def test_a_new_service_moves_nobody() -> None:
    assert moved(pieces([]), pieces([EVEN, ODD])) == 0


def test_clients_that_lose_their_backend_move() -> None:
    assert moved(pieces([EVEN, ODD]), pieces([EVEN])) == Fraction(1, 2)


def test_clients_that_were_dropped_had_no_backend_to_move_from() -> None:
    dropping = [EVEN, block("0.0.0.1/0.0.0.1", 0)]
    assert moved(pieces(dropping), pieces([EVEN, ODD])) == 0


def test_the_longest_match_wins() -> None:
    nested = [block("", 1, priority=1000), block("0.0.0.1/0.0.0.3", 2, priority=1002)]
    assert shares(pieces(nested)) == {B1: Fraction(3, 4), B2: Fraction(1, 4)}


def test_overlaps_that_leave_room_are_seen_as_well() -> None:
    """A half and a quarter inside it sum to less than everything."""
    nested = [block("0.0.0.1/0.0.0.1", 1, priority=1001), block("0.0.0.1/0.0.0.3", 2, priority=1002)]
    assert shares(pieces(nested)) == {B1: Fraction(1, 4), B2: Fraction(1, 4)}


def test_a_rule_of_all_128_bits_is_no_burden() -> None:
    pin = block("2001:db8::1/128", 2, priority=1128, family="ipv6")
    found = shares(pieces([block("", 1, priority=1000, family="ipv6"), pin]))
    assert found == {B1: 1 - Fraction(1, 1 << 128), B2: Fraction(1, 1 << 128)}


def test_of_two_ip_versions_one_stands_for_both() -> None:
    both = [EVEN, ODD, block("::/::1", 1, family="ipv6"), block("::1/::1", 2, family="ipv6")]
    assert pieces(both) == (Piece(0, 1, B1), Piece(1, 1, B2))


def test_blocks_are_found_by_the_cookie() -> None:
    classify = parse_flow("cookie=0x786f010000000001, priority=9,ip actions=resubmit(,1)")
    foreign = parse_flow("cookie=0x1, table=1, priority=9,ip actions=drop")
    assert blocks_by_service([classify, EVEN, foreign, ODD]) == {1: [EVEN, ODD]}
