"""The whole table: what of a flow can be offloaded, by profile and version of Open vSwitch."""

from __future__ import annotations

from types import MappingProxyType

from xenoovs.compile.offloadable.row import Topic
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
