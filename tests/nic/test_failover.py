"""Failover in the switch: after the representor of a port went down, each client's packets take one entry elsewhere."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from tests.nic.guest.bench import CLIENTS
from tests.nic.guest.scenarios.failing_over import CONFIG, DOWN, PLAIN, PORT
from tests.nic.judged import judged_at
from tests.nic.losses import windows_of
from tests.nic.recorded import Seen, Story
from xenoovs.datapath.megaflow import Verdict

pytestmark = pytest.mark.parametrize("story", ["failover"], indirect=True)

_FIPS2, _FIPS3, _FIPS4 = (f"02:00:5e:10:00:0{number}" for number in (2, 3, 4))


def _entries(look: Seen, *, is_whole: bool = True) -> list[Any]:
    """What the NIC's entries match, and with `is_whole` what they do."""
    return sorted((sorted(map(str, rule.match.items())), rule.actions if is_whole else ()) for rule in look.rules)


def _routes(story: Story) -> dict[int, list[str]]:
    """By client, the backends that its packets reached while the port went down and came back, each once in a row."""
    found = dict[int, list[str]]()
    for stream in story.record["streams"]:
        for packet in sorted(stream["delivered"], key=lambda packet: packet["number"]):
            found.setdefault(packet["number"] % len(CLIENTS), []).append(packet["mac"])
    return {client: [there[0], *(b for a, b in pairwise(there) if a != b)] for client, there in found.items()}


def test_groups_take_no_entries_and_change_none(story: Story) -> None:
    plain, groups = story.look(PLAIN), story.look(CONFIG)
    assert _entries(groups) == _entries(plain)
    assert set(groups.verdicts().values()) == {Verdict.HW}


def test_afterwards_the_same_entries_lead_to_the_other_port(story: Story) -> None:
    whole, down = story.look(CONFIG), story.look(DOWN)
    assert _entries(down, is_whole=False) == _entries(whole, is_whole=False)
    assert {rule.outputs for rule in whole.rules} == {("p1",), (PORT,)}
    assert {rule.outputs for rule in down.rules} == {("p1",)}
    assert {rule.dl_dst for rule in down.rules} == {int(mac.replace(":", ""), 16) for mac in (_FIPS2, _FIPS3)}


def test_verify_offload_says_hardware_and_which_next_hop_is_in_use(story: Story) -> None:
    judged = judged_at(story, DOWN)
    assert judged.verify["conclusion"] == "in_hardware"
    assert {block["verdict"] for block in judged.verify["blocks"]} == {"HW"}
    assert f"dns: 1 block of fips4: the switch sends to fips2, as {PORT} is dead" in judged.verify["remarks"]


def test_each_client_of_the_port_moves_once_and_returns_once(story: Story) -> None:
    routes = _routes(story)
    assert len(routes) == len(CLIENTS)
    moved = [route for route in routes.values() if _FIPS4 in route]
    assert len(moved) == len(CLIENTS) // 2
    assert Counter(map(len, routes.values())) == {1: len(CLIENTS) - len(moved), 3: len(moved)}
    assert all(route[0] == route[2] == _FIPS4 for route in moved)


def test_packets_are_lost_only_until_the_nic_has_its_new_entries(story: Story) -> None:
    for stream in story.record["streams"]:
        lost = {window.begins: window.lost for window in windows_of(stream) if window.begins not in ("down", "up")}
        assert set(lost.values()) == {0}, lost
