"""The second reading of flows against counting every address one by one."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

from hypothesis import given

from tests.flow_oracle import moved, pieces, shares
from tests.property.rules import UNITS, nested_rules, owners, rules
from xenoovs.model.address import Mac
from xenoovs.model.next_hop import Direct
from xenoovs.openflow.flow import Flow


@given(rules() | nested_rules())
def test_shares_are_those_of_all_addresses(flows: tuple[Flow, ...]) -> None:
    counts = Counter(mac for mac in owners(flows) if mac is not None)
    wanted = {Direct(Mac(mac), "p1"): Fraction(count, len(UNITS)) for mac, count in counts.items()}
    assert shares(pieces(flows)) == wanted


@given(rules() | nested_rules())
def test_pieces_are_disjoint(flows: tuple[Flow, ...]) -> None:
    parts = pieces(flows)
    for unit in UNITS:
        assert sum(unit & piece.mask == piece.value for piece in parts) <= 1


@given(rules() | nested_rules(), rules() | nested_rules())
def test_moved_counts_clients_that_had_a_destination_and_get_another(
    before: tuple[Flow, ...], after: tuple[Flow, ...]
) -> None:
    pairs = zip(owners(before), owners(after), strict=True)
    wanted = sum(old is not None and old != new for old, new in pairs)
    assert moved(pieces(before), pieces(after)) == Fraction(wanted, len(UNITS))
