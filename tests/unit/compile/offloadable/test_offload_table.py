"""The table: no gaps, no contradictions, and the example of every row leads to that row."""

from __future__ import annotations

import pytest

from tests.judged import check_flow
from xenoovs.compile.offloadable.openflow_topics import parse_groups
from xenoovs.compile.offloadable.table import (
    DATAPATH_ACTIONS,
    DATAPATH_KEYS,
    DATAPATH_SETS,
    EXAMPLE_GROUPS,
    FIELD_FAMILIES,
    OLDEST,
    OPENFLOW_ACTIONS,
    TOPIC_OF,
    TOPICS,
    TableRow,
    Topic,
    TopicKind,
    Version,
    _row,
)
from xenoovs.openflow.text import parse_flow

VERSIONS: tuple[Version, ...] = (*((2, minor) for minor in range(13, 18)), *((3, minor) for minor in range(8)), (4, 0))
ROWS = [(topic, row) for topic in TOPICS for row in topic.rows]
EXAMPLES = [(topic, row) for topic, row in ROWS if topic.example is not None]


def _name(value: object) -> str:
    if isinstance(value, Topic):
        return value.name
    assert isinstance(value, TableRow)
    return f"{value.profile.value}-{value.offload.value}-{value.first or OLDEST}"


@pytest.mark.parametrize("topic", [t for t in TOPICS if t.kind is not TopicKind.ENVIRONMENT], ids=_name)
def test_versions_leave_no_gap_and_no_overlap(topic: Topic) -> None:
    for profile in {row.profile for row in topic.rows}:
        rows = [row for row in topic.rows if row.profile is profile]
        assert [sum(row.covers(version) for row in rows) for version in VERSIONS] == [1] * len(VERSIONS)


@pytest.mark.parametrize(("topic", "row"), EXAMPLES, ids=_name)
def test_the_example_of_a_row_is_judged_by_that_row(topic: Topic, row: TableRow) -> None:
    assert topic.example is not None
    version = next(version for version in VERSIONS if row.covers(version))
    found = check_flow(parse_flow(topic.example), row.profile, version, groups=parse_groups(EXAMPLE_GROUPS))
    assert [each.row for each in found if each.topic is topic] == [row]


def test_names_are_unique_each_row_has_reason_and_source_and_those_of_doca_name_no_version() -> None:
    assert len({topic.name for topic in TOPICS}) == len(TOPICS)
    assert all(row.text and row.source for _, row in ROWS)
    assert all(row.first is row.last is None for _, row in ROWS if row.profile.is_doca)


def test_every_word_of_a_flow_has_a_topic_of_the_table() -> None:
    words = (OPENFLOW_ACTIONS, DATAPATH_KEYS, DATAPATH_SETS, DATAPATH_ACTIONS)
    topics = {topic for by_word in words for topic in by_word.values()}
    topics |= {family.match for family in FIELD_FAMILIES} | {family.set for family in FIELD_FAMILIES if family.set}
    assert topics <= set(TOPIC_OF)


def test_an_unknown_key_in_the_data_is_an_error() -> None:
    with pytest.raises(TypeError):
        _row(profile="tc", offload="HW", text="", source="tc-key", sources="tc-key")
    with pytest.raises(ValueError, match="HARDWARE"):
        _row(profile="tc", offload="HARDWARE", text="", source="tc-key")
