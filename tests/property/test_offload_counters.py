"""Counters of backends never fall, and miss or invent no packet where dumps are merely torn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from xenoovs.agent.offload import MegaflowCounters

_BYTES = 100
_OTHER = "ufid:other, in_port(p0), packets:0, bytes:0, used:never, dp:ovs, actions:p1"
"""Another megaflow: a dump without any is no torn one."""


@dataclass(frozen=True, slots=True)
class Look:
    """The change of one megaflow before a dump, and how often the dump shows it: 0, 1 or 2 times."""

    packets: int
    is_evicted: bool
    shown: int


looks = st.builds(Look, st.integers(0, 1000), st.booleans(), st.integers(0, 2))
torn = st.builds(Look, st.integers(0, 1000), st.just(value=False), st.sampled_from((1, 2)))
missed = st.builds(Look, st.integers(0, 1000), st.just(value=False), st.just(0))


def growth(history: list[Look]) -> Iterator[int]:
    """What each dump adds."""
    counters, packets = MegaflowCounters(), 0
    for look in history:
        packets = look.packets if look.is_evicted else packets + look.packets
        line = f"ufid:{0:036}, in_port(p0), packets:{packets}, bytes:{packets * _BYTES}, used:0.1s, dp:ovs, actions:p1"
        added = 0
        for increment in counters.increments([_OTHER, *[line] * look.shown]):
            added += int(increment.partition("packets:")[2].partition(",")[0])
        yield added


@given(st.lists(looks, max_size=30))
def test_nothing_is_ever_taken_back_and_no_more_is_counted_than_was_sent(history: list[Look]) -> None:
    added = list(growth(history))
    assert all(more >= 0 for more in added)
    # A megaflow missing from two dumps in a row counts as new: its packets are counted again.
    if not any(a.shown == b.shown == 0 for a, b in pairwise(history)):
        assert sum(added) <= sum(look.packets for look in history)


@given(st.lists(st.tuples(torn, missed) | st.tuples(torn), max_size=20))
def test_dumps_that_miss_or_repeat_a_megaflow_lose_nothing(pairs: list[tuple[Look, ...]]) -> None:
    history = [look for pair in pairs for look in pair]
    whole = [*history, Look(0, is_evicted=False, shown=1)]
    assert sum(growth(whole)) == sum(look.packets for look in whole)
