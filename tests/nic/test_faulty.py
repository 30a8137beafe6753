"""A NIC that does not use its rules, and a driver that lies: the verdicts are those of the packets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.nic.guest.scenarios.faulty import BEYOND_32_BITS, PHASES
from tests.nic.recorded import BLOCKS, Story
from tests.nic.truth import parse_ports

_TOLERATED = 12
"""Packets that prove nothing."""


def _verified(story: Story) -> dict[str, tuple[int, dict[str, Any]]]:
    """The exit status and the document of `verify-offload` by phase."""
    said = story.said("verify-offload")
    return {label: (each["exit_code"], json.loads(each["stdout"])) for label, each in zip(PHASES, said, strict=True)}


def _verdicts(document: dict[str, Any]) -> dict[str, int]:
    return {verdict: count for verdict, count in document["blocks_total"]["blocks"].items() if count}


def _truth(story: Story, label: str) -> tuple[int, int]:
    """Packets that rules of p0 forwarded, and packets that the CPU got, while the phase was judged."""
    [stream] = story.record["streams"]
    marks = {mark["label"]: parse_ports(mark["port_counters"])["p0"] for mark in stream["marks"]}
    begin, end = marks[f"{label}: begin"], marks[f"{label}: end"]
    return end.hit - begin.hit, end.miss - begin.miss


@pytest.mark.parametrize(
    ("label", "verdict", "status"),
    [
        ("no fault", "HW", 0),
        ("never used", "IDLE_HW", 2),
        ("reset", "IDLE_HW", 2),
        ("each third packet", "TC_SW", 2),
        ("counted by the driver", "CONTRADICTED", 2),
        ("counted twice", "CONTRADICTED", 2),
        ("no fault any more", "HW", 0),
        ("not refreshed", "HW", 0),
        ("beyond 32 bits", "HW", 0),
    ],
)
def test_faulty(story: Story, label: str, verdict: str, status: int) -> None:
    found, document = _verified(story)[label]
    assert (_verdicts(document), found) == ({verdict: BLOCKS}, status)


@pytest.mark.parametrize("label", [label for label in PHASES if label not in ("counted twice", "not refreshed")])
def test_faulty__the_share_between_two_samples_is_that_of_the_packets(story: Story, label: str) -> None:
    _, document = _verified(story)[label]
    hit, miss = _truth(story, label)
    true_share = hit / (hit + miss)
    if label == "counted by the driver":
        # Each packet is counted by its rule, and the CPU got it all the same.
        assert hit == miss > 0
        assert document["growth"]["hw_share"] == 1
    else:
        assert document["growth"]["hw_share"] == pytest.approx(true_share, abs=0.05)


def test_faulty__the_port_contradicts_the_driver_with_both_numbers(story: Story) -> None:
    [port] = _verified(story)["counted by the driver"][1]["ports"]
    assert (port["port"], port["contradicted"], port["explained"]) == ("p0", True, 0)
    assert _TOLERATED < port["received_by_cpu"] <= _truth(story, "counted by the driver")[1]


def test_faulty__a_driver_that_counts_what_traffic_control_forwards_is_contradicted_by_the_wire(story: Story) -> None:
    """Each packet counted twice, once in software: "the NIC forwards only a part", half in hardware, confirmed."""
    hit, miss = _truth(story, "counted twice")
    _, document = _verified(story)["counted twice"]
    [port] = document["ports"]
    assert (hit, port["port"], port["contradicted"], document["growth"]["hw_share"]) == (
        0,
        "p0",
        True,
        pytest.approx(0.5, abs=0.05),
    )
    assert _TOLERATED < port["counted_twice"] <= miss


def test_faulty__counters_that_are_not_refreshed_are_no_idle_rules(story: Story) -> None:
    _, document = _verified(story)["not refreshed"]
    assert document["growth"] == {"packets": 0, "hw_packets": 0, "hw_share": None}
    assert "it refreshes its counters more rarely" in " ".join(document["remarks"])


@pytest.mark.parametrize("label", [label for label in PHASES if not label.startswith("counted")])
def test_faulty__the_port_agrees_otherwise(story: Story, label: str) -> None:
    for port in _verified(story)[label][1]["ports"]:
        assert (port["contradicted"], port["silent_because"]) == (False, None)


def test_faulty__hardware_packets_beyond_32_bits_are_counted(story: Story) -> None:
    """tc printed 1465799775 of 5760767071 packets, which is 25 %."""
    _, document = _verified(story)["beyond 32 bits"]
    assert all(block["hw_packets"] > BEYOND_32_BITS for block in document["blocks"])
    assert document["hw_share"] > 0.999
