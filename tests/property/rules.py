"""Strategies: rules of one service that overlap as they like, and which of them each address meets."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from xenoovs.openflow.flow import ETH_IPV4, Field, Flow, FlowKey, Masked, Output, SetField, exact, match_of

BITS = 7
UNITS = range(1 << BITS)


@st.composite
def rules(draw: st.DrawFn) -> tuple[Flow, ...]:
    """Overlapping rules of any masks, no two of one priority; owner 0 is a drop."""
    masks = st.integers(0, (1 << BITS) - 1)
    drawn = draw(st.lists(st.tuples(masks, masks, st.integers(0, 3)), max_size=12))
    return tuple(rule(value & mask, mask, owner, priority) for priority, (value, mask, owner) in enumerate(drawn))


@st.composite
def nested_rules(draw: st.DrawFn) -> tuple[Flow, ...]:
    """As those of a service: masks of low bits, longest or shortest first, holes left."""
    sign = draw(st.sampled_from((1, -1)))
    blocks = st.integers(0, BITS).flatmap(lambda d: st.tuples(st.just(d), st.integers(0, (1 << d) - 1)))
    drawn = draw(st.lists(st.tuples(blocks, st.integers(1, 3)), max_size=12, unique_by=lambda r: r[0]))
    return tuple(rule(value, (1 << depth) - 1, owner, 1000 + sign * depth) for (depth, value), owner in drawn)


def rule(value: int, mask: int, owner: int, priority: int) -> Flow:
    match = match_of((exact(Field.DL_TYPE, ETH_IPV4), Masked(Field.NW_SRC, value, mask)))
    actions = (SetField(Field.DL_DST, owner), Output("p1")) if owner else ()
    return Flow(FlowKey(1, priority, match), 0, actions)


def owners(flows: Sequence[Flow]) -> list[int | None]:
    """For each unit the MAC of its rule of highest priority; None: dropped or no rule."""
    return [owner(flows, unit) for unit in UNITS]


def owner(flows: Sequence[Flow], unit: int) -> int | None:
    for flow in sorted(flows, key=lambda flow: -flow.priority):
        source = flow.match.get(Field.NW_SRC)
        if source is None or unit & source.mask == source.value:
            setting = flow.actions[0] if flow.actions else None
            return setting.value if isinstance(setting, SetField) else None
    return None
