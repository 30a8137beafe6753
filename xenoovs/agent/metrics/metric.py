"""What a metric is: its declaration, and how its samples are read off a snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

from xenoovs.agent.snapshot import BlockView, Snapshot

Sample = tuple[tuple[str, ...], float]
"""Values of the labels in their order, and the number."""

Reader = Callable[[Snapshot], Iterable[Sample]]

BlockReader = Callable[[Snapshot, Callable[[str], tuple[BlockView, ...]]], Iterable[Sample]]
"""`blocks` as of Glance."""


class Kind(Enum):
    """Types of the Prometheus exposition format."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Detail(Enum):
    """Which metrics are shown: those of blocks are thousands of series, so only when asked for."""

    ALWAYS = "always"
    BLOCKS = "with `--metrics-blocks`"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric under the name that queries use: counters end in `_total`, and units stand in the name.

    unit:   of the number; empty for a count.
    origin: where the number comes from.
    read:   None for a histogram, which is fed as things happen, and where `read_blocks` reads blocks.
    """

    name: str
    kind: Kind
    help: str
    origin: str
    labels: tuple[str, ...] = ()
    unit: str = ""
    read: Reader | None = None
    detail: Detail = Detail.ALWAYS
    buckets: tuple[float, ...] = ()
    read_blocks: BlockReader | None = None
