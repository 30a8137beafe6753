"""The whole table: what of a flow can be offloaded, by profile and version of Open vSwitch."""

from __future__ import annotations

import re
from types import MappingProxyType

from xenoovs.compile.offloadable.row import Row, Topic, Version
from xenoovs.compile.offloadable.topics_action import HEADER_ACTION_TOPICS, SET_TOPICS
from xenoovs.compile.offloadable.topics_forward import OUTPUT_TOPICS
from xenoovs.compile.offloadable.topics_group import COMBINATION_TOPICS, GROUP_TOPICS
from xenoovs.compile.offloadable.topics_match import HEADER_TOPICS
from xenoovs.compile.offloadable.topics_place import PLACE_TOPICS
from xenoovs.compile.offloadable.topics_state import STATE_TOPICS

TOPICS: tuple[Topic, ...] = (
    *HEADER_TOPICS,
    *STATE_TOPICS,
    *OUTPUT_TOPICS,
    *GROUP_TOPICS,
    *SET_TOPICS,
    *HEADER_ACTION_TOPICS,
    *COMBINATION_TOPICS,
    *PLACE_TOPICS,
)

TOPIC_OF = MappingProxyType({topic.name: topic for topic in TOPICS})
"""Topics by name."""


def topic_of_message(line: str, version: Version) -> tuple[Topic, Row] | None:
    """The topic that a line of Open vSwitch's log speaks about, and its row; None for a line of something else."""
    found = [
        (topic, row, row.message)
        for topic in TOPICS
        for row in topic.rows
        if row.message is not None and row.covers(version) and _says(line, row.message)
    ]
    # The longest is the most precise; of equal ones the first.
    best = max(found, key=lambda hit: len(hit[2]), default=None)
    return None if best is None else best[:2]


def _says(line: str, message: str) -> bool:
    """Whether the message stands in the line, and not as the start of a longer number."""
    return re.search(re.escape(message) + (r"(?![0-9])" if message[-1].isdigit() else ""), line) is not None
