"""Shares and moved clients against counting every address one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from tests.flow_oracle import moved, pieces, shares
from xenoovs.model.address import Mac
from xenoovs.model.next_hop import Direct
from xenoovs.openflow.action import Output, SetField
from xenoovs.openflow.field import ETH_IPV4, Field
from xenoovs.openflow.flow import Flow, FlowKey
from xenoovs.openflow.match import Masked, exact, match_of

_BITS = 7
_UNITS = range(1 << _BITS)


@st.composite
def rules(draw: st.DrawFn) -> tuple[Flow, ...]:
    """Overlapping rules of any masks, no two of one priority; owner 0 is a drop."""
    masks = st.integers(0, (1 << _BITS) - 1)
    drawn = draw(st.lists(st.tuples(masks, masks, st.integers(0, 3)), max_size=12))
    return tuple(rule(value & mask, mask, owner, priority) for priority, (value, mask, owner) in enumerate(drawn))


@st.composite
def nested_rules(draw: st.DrawFn) -> tuple[Flow, ...]:
    """As those of a service: masks of low bits, longest or shortest first, holes left."""
    sign = draw(st.sampled_from((1, -1)))
    blocks = st.integers(0, _BITS).flatmap(lambda d: st.tuples(st.just(d), st.integers(0, (1 << d) - 1)))
    drawn = draw(st.lists(st.tuples(blocks, st.integers(1, 3)), max_size=12, unique_by=lambda r: r[0]))
    return tuple(rule(value, (1 << depth) - 1, owner, 1000 + sign * depth) for (depth, value), owner in drawn)


def rule(value: int, mask: int, owner: int, priority: int) -> Flow:
    match = match_of((exact(Field.DL_TYPE, ETH_IPV4), Masked(Field.NW_SRC, value, mask)))
    actions = (SetField(Field.DL_DST, owner), Output("p1")) if owner else ()
    return Flow(FlowKey(1, priority, match), 0, actions)


def owners(flows: Sequence[Flow]) -> list[int | None]:
    """For each unit the MAC of its rule of highest priority; None: dropped or no rule."""
    return [owner(flows, unit) for unit in _UNITS]


def owner(flows: Sequence[Flow], unit: int) -> int | None:
    for flow in sorted(flows, key=lambda flow: -flow.priority):
        source = flow.match.get(Field.NW_SRC)
        if source is None or unit & source.mask == source.value:
            setting = flow.actions[0] if flow.actions else None
            return setting.value if isinstance(setting, SetField) else None
    return None


@given(rules() | nested_rules())
def test_shares_are_those_of_all_addresses(flows: tuple[Flow, ...]) -> None:
    counts = Counter(mac for mac in owners(flows) if mac is not None)
    wanted = {Direct(Mac(mac), "p1"): Fraction(count, len(_UNITS)) for mac, count in counts.items()}
    assert shares(pieces(flows)) == wanted


@given(rules() | nested_rules())
def test_pieces_are_disjoint(flows: tuple[Flow, ...]) -> None:
    parts = pieces(flows)
    for unit in _UNITS:
        assert sum(unit & piece.mask == piece.value for piece in parts) <= 1


@given(rules() | nested_rules(), rules() | nested_rules())
def test_moved_is_who_had_a_destination_and_gets_another(before: tuple[Flow, ...], after: tuple[Flow, ...]) -> None:
    pairs = zip(owners(before), owners(after), strict=True)
    wanted = sum(old is not None and old != new for old, new in pairs)
    assert moved(pieces(before), pieces(after)) == Fraction(wanted, len(_UNITS))
