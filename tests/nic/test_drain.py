"""A drain on the NIC: what it takes, what the plan said of that, and what is left."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from tests.nic.guest.bench import CLIENTS
from tests.nic.guest.scenarios.draining import NEW_CLIENTS, NEW_PORTS, OPEN
from tests.nic.judged import judged_at
from tests.nic.recorded import Seen, Story
from xenoovs.datapath.megaflow import Verdict

pytestmark = pytest.mark.parametrize("story", ["drain"], indirect=True)

_MOVING = ((7, 3), (15, 7), (63, 63))
"""The blocks of fips4 in balancers/web.yaml: mask and value of the low bits of the source address."""
_STAYING = 4
"""Blocks of the others."""


def _of_moving_blocks(clients: tuple[str, ...]) -> int:
    low = [int(client.rpartition(".")[2]) for client in clients]
    return sum(any(bits & mask == value for mask, value in _MOVING) for bits in low)


OLD, OPENED = _of_moving_blocks(CLIENTS), _of_moving_blocks(NEW_CLIENTS)


def _kinds(look: Seen) -> Counter[tuple[bool, bool]]:
    """Entries of the NIC: whether they are for a single connection, whether they match the flags of TCP."""
    return Counter(("tp_src" in rule.match, "tcp_flags" in rule.match) for rule in look.rules)


def test_each_connection_of_a_moving_block_has_an_entry_and_each_new_one_another_for_its_syn(story: Story) -> None:
    look = story.look("while it lasts")
    assert _kinds(look) == {(False, False): _STAYING, (True, True): OLD + OPENED, (True, False): OPENED}
    assert Counter(look.verdicts().values()) == {Verdict.HW: len(look.rules)}


def test_no_more_entries_come_than_the_plan_has_said(story: Story) -> None:
    assert _kinds(story.look("before")) == {(False, False): _STAYING + len(_MOVING)}
    [drain] = json.loads(story.said("plan")[0]["stdout"])["drains"]
    assert drain["blocks"] == len(_MOVING)
    more = len(story.look("while it lasts").rules) - len(story.look("before").rules)
    assert 0 < more <= drain["extra_hardware_entries_estimate"]


def test_verify_offload_counts_the_entries_of_single_connections(story: Story) -> None:
    report = judged_at(story, "while it lasts").verify
    assert report["conclusion"] == "in_hardware"
    assert report["blocks_total"]["megaflows"] == len(story.look("while it lasts").rules)
    # The one packet of a SYN is the one that made the megaflow.
    assert report["blocks_total"]["anomalies"] == {"drained": OLD + 2 * OPENED, "without_packets": OPENED}


def test_a_nic_that_knows_no_flags_has_only_the_new_connections(story: Story) -> None:
    """The megaflow of what was learned matches none; those of open connections and of SYNs have to."""
    look = story.look("without flags of TCP")
    assert _kinds(look) == {(False, False): _STAYING, (True, False): OPENED}
    assert Counter(look.verdicts().values())[Verdict.TC_SW] == OLD + OPENED
    judged = judged_at(story, "without flags of TCP")
    assert judged.causes() == {"refused-by-driver"}
    assert judged.exit_codes["verify-offload"] == 2


def test_open_connections_stay_and_new_ones_do_not(story: Story) -> None:
    bursts = [burst for burst in story.record["bursts"] if burst["packets_each"] == 5]
    ports = [OPEN.source_port, NEW_PORTS[0], OPEN.source_port, NEW_PORTS[1]]
    assert [burst["kind"]["source_port"] for burst in bursts] == ports
    assert [_packets_to_fips4(burst) for burst in bursts] == [5 * OLD, 0] * 2


def _packets_to_fips4(burst: dict[str, Any]) -> int:
    fips4 = "02:00:5e:10:00:04"
    return sum(one["packets"] for one in burst["arrived"]["p1"] if one["frame"]["mac"] == fips4)


def test_entries_of_connections_stay_after_it_as_long_as_they_are_used(story: Story) -> None:
    """Open vSwitch keeps a megaflow that is narrower than it needs to be."""
    assert _kinds(story.look("after it"))[True, False] == OPENED


def test_afterwards_there_are_as_many_as_predicted(story: Story) -> None:
    said = story.said("verify-offload")[-1]
    total = json.loads(said["stdout"])["blocks_total"]
    look = story.look("after it, all idle once")
    assert (said["exit_code"], total["anomalies"]) == (0, {})
    assert total["megaflows"] == total["predicted_megaflows"] == len(look.rules) == _STAYING
    assert set(_kinds(look)) == {(False, False)}
