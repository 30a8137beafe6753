"""What a metric is: its declaration, and how its samples are read from a snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

from xenoovs.agent.snapshot import BlockView, Snapshot

Sample = tuple[tuple[str, ...], float]
"""Values of the labels, in their order, and the number."""

Reader = Callable[[Snapshot], Iterable[Sample]]

BlockReader = Callable[[Snapshot, Callable[[str], tuple[BlockView, ...]]], Iterable[Sample]]
"""Reads a snapshot, and the blocks of a service by its name."""


class Kind(Enum):
    """Types of the Prometheus exposition format."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Detail(Enum):
    """When metrics are shown. Those of blocks are thousands of series, so they are optional."""

    ALWAYS = "always"
    BLOCKS = "with `--metrics-blocks`"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: As in queries: counters end in `_total`, and units are part of the name.
        kind: Its type.
        help: What it says, a sentence.
        origin: Where the number comes from.
        labels: Their names.
        unit: Of the number; empty for a count.
        read: Reads the samples; None for a histogram and with `read_blocks`.
        detail: When it is shown.
        buckets: Of a histogram.
        read_blocks: Reads the samples of blocks.
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
