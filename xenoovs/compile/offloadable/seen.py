"""What was seen in a flow or megaflow, by the names of the table's topics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Seen:
    """`topic`: a name of the table. `evidence`: the condition, action or key as it is written."""

    topic: str
    evidence: str


@dataclass(frozen=True, slots=True)
class Width:
    """How many bytes a match compares; what NVIDIA calls the match size."""

    size_bytes: int

    def seen(self) -> Iterator[Seen]:
        """One rule of OVS-DOCA matches 32 bytes."""
        if self.size_bytes > _DOCA_MATCH_BYTES:
            yield Seen("wide-match", f"{self.size_bytes} bytes")


_DOCA_MATCH_BYTES = 32
_MOST_ACTIONS = 16
"""TCA_ACT_MAX_NUM in lib/tc.h."""

_L4_SETS = frozenset(("set-l4-port", "set-ip", "set-ipv6"))
"""What makes TC mend the checksum of TCP or UDP (tc_will_add_l4_checksum() in lib/netdev-offload-tc.c)."""

_FRAGMENTS = frozenset(("fragment", "fragment-ipv6"))


def combinations(found: Iterable[Seen], *, outputs: int, actions: int) -> Iterator[Seen]:
    """What several things of one flow make together. `actions`: of the datapath, outputs included."""
    topics = {seen.topic: seen for seen in found}
    if outputs > 1:
        yield Seen("several-outputs", f"{outputs} outputs")
    if actions > _MOST_ACTIONS:
        yield Seen("many-actions", f"{actions} actions")
    fragment = next((seen for name, seen in topics.items() if name in _FRAGMENTS), None)
    written = next((seen for name, seen in topics.items() if name in _L4_SETS), None)
    if fragment is not None and written is not None:
        yield Seen("set-port-of-fragment", f"{fragment.evidence} with {written.evidence}")


def without_repetition(found: Iterable[Seen]) -> tuple[Seen, ...]:
    """Each topic once, with its first evidence, in the order of `found`."""
    return tuple({seen.topic: seen for seen in reversed(tuple(found))}.values())[::-1]
