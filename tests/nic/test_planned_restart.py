"""A planned restart under traffic: the NIC forwards on for as long as no ovs-vswitchd runs; the new one empties it."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.nic.losses import SCENARIO, Window, windows_of
from tests.nic.recorded import BLOCKS, Story
from xenoovs.datapath.megaflow import Verdict

pytestmark = pytest.mark.parametrize("story", [SCENARIO], indirect=True)


def _windows(story: Story) -> dict[str, Window]:
    """By the mark that each begins with."""
    return {window.begins: window for window in windows_of(story.record["streams"][0])}


def test_nothing_is_lost_from_the_end_of_the_old_to_the_start_of_the_new(story: Story) -> None:
    windows = _windows(story)
    for begin in ("begun", "ordered to end", "gone"):
        window = windows[begin]
        assert window.sent > 0
        assert (window.lost, window.hit, window.miss) == (0, window.sent, 0), begin
        assert window.rules == BLOCKS, begin


def test_the_new_one_takes_the_rules_away_and_packets_are_lost_until_flows_and_rules_are_back(story: Story) -> None:
    windows = _windows(story)
    starting = [windows[begin] for begin in ("restarted", "runs")]
    sent, lost = sum(window.sent for window in starting), sum(window.lost for window in starting)
    assert 0 < lost < sent
    # Whatever was lost met no rule.
    assert lost <= sum(window.miss for window in starting)
    assert windows["restarted"].rules == 0


def test_nothing_is_lost_any_more_when_the_command_has_ended(story: Story) -> None:
    windows = _windows(story)
    assert [windows[begin].lost for begin in ("flows are back", "rules are back")] == [0, 0]
    last = windows["rules are back"]
    assert (last.hit, last.miss, last.rules) == (last.sent, 0, BLOCKS)


def test_no_packet_comes_twice_and_each_client_keeps_its_backend(story: Story) -> None:
    [stream] = story.record["streams"]
    delivered = stream["delivered"]
    assert set(Counter(packet["number"] for packet in delivered).values()) == {1}
    assert {packet["port"] for packet in delivered} == {"p1"}
    clients = len(stream["sources"])
    owners = {(packet["number"] % clients, packet["mac"]) for packet in delivered}
    assert len(owners) == clients


def test_everything_is_in_hardware_again(story: Story) -> None:
    for look in story.looks:
        assert Counter(look.verdicts().values()) == {Verdict.HW: BLOCKS}, look.label
