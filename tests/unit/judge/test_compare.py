"""Two records compared: which traffic left the NIC, what changed, and what comes first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from xenoovs.datapath.database import BridgeState, Database, PortState
from xenoovs.datapath.host import Device, Feature
from xenoovs.evidence.evidence import UNREAD_HOST, Evidence
from xenoovs.judge.compare import Comparison, Side, side_of, to_json

BRIDGE = BridgeState("ovsbr1", ports=tuple(PortState(name, ofport=1, type="system") for name in ("p0", "p1")))
IN_NIC = "offloaded:yes, dp:tc"


def _line(
    number: int, where: str, packets: int, *, in_port: str = "p0", actions: str = "set(eth(dst=02::1)),p1"
) -> str:
    return (
        f"ufid:0000000{number}-0000-4000-8000-000000000000, recirc_id(0),in_port({in_port}),eth_type(0x0800),"
        f"ipv4(src=0.0.0.{number}/0.0.0.3,frag=no), packets:{packets}, bytes:{packets * 98}, used:0.1s, {where}, "
        f"actions:{actions.replace('02::1', '02:00:00:00:00:01')}\n"
    )


def _side(
    *lines: str, config: Mapping[str, str] | None = None, switch_id: str | None = "a1", versions: Mapping[str, str] = {}
) -> Side:
    devices = {
        name: Device(
            name, is_up=True, mtu=1500, switch_id=switch_id if name == "p1" else "a1", hw_tc_offload=Feature(True)
        )
        for name in ("p0", "p1")
    }
    host = replace(UNREAD_HOST, database=Database(config or {}, (BRIDGE,)), devices=devices)
    return side_of(Evidence(host, lines, bridges=(BRIDGE,)), versions)


BEFORE = _side(_line(0, IN_NIC, 62), _line(1, IN_NIC, 38, in_port="p1", actions="p0"))


def test_the_headline_is_the_share_that_left_and_the_most_likely_cause() -> None:
    after = _side(
        _line(0, IN_NIC, 620),
        _line(1, "dp:tc", 380, in_port="p1", actions="p0"),
        config={"max-idle": "300000"},
        switch_id=None,
        versions={"iproute2": "6.9"},
    )
    found = Comparison(BEFORE, after)
    assert found.headline == "38 % of packets left the NIC: port p1 is no longer on the eSwitch"
    assert [str(kind) for kind in found.worse] == ["ovsbr1: p1 -> p0 [output]"]
    assert [each.name for each in found.changes] == ["device p1: eSwitch", "other_config:max-idle", "iproute2"]
    classes: Any = to_json(found)["classes"]
    first, second = classes
    assert (first["in_port"], first["worse"]) == ("p0", None)
    assert second["after"] == {"verdict": "TC_SW", "megaflows": 1, "packets": 380, "hw_packets": 0, "hw_share": 0.0} | {
        "reasons": second["after"]["reasons"]
    }


def test_without_a_changed_fact_the_traffic_itself_is_named_with_its_new_reason() -> None:
    after = _side(
        _line(0, "dp:ovs", 62, actions="hash(l4(0)),recirc(0x3)"), _line(1, IN_NIC, 38, in_port="p1", actions="p0")
    )
    found = Comparison(BEFORE, after)
    assert found.headline.startswith(
        "62 % of packets left the NIC: ovsbr1: p0 -> (recirculated) [hash,recirc]: new, and SW"
    )


TURNED_OFF = {"hw-offload": "false"}
OFF = "other_config:hw-offload is false, was not there"
KEPT = _line(0, IN_NIC, 620)
WORSE = "SW, was HW; {} in hardware, was 100%"
FINE = "no traffic got worse: 100% of packets in hardware, before {}%"


@pytest.mark.parametrize(
    ("before", "after", "worse", "headline"),
    [
        (BEFORE, BEFORE, [], FINE.format(100)),
        # A setting comes before a version.
        (
            BEFORE,
            _side(_line(0, "dp:ovs", 100), config=TURNED_OFF, versions={"iproute2": "6.9"}),
            [WORSE.format("0%"), "no packets, was 38% of all, 100% of it in hardware"],
            f"100 % of packets left the NIC: {OFF}",
        ),
        # Bug: nothing can be compared, with exit status 2, as no packet was counted yet.
        (
            _side(KEPT),
            _side(_line(0, "dp:ovs", 0), config=TURNED_OFF),
            [WORSE.format("-")],
            f"1 class of traffic got worse: {OFF}",
        ),
        (_side(_line(0, "dp:ovs", 10)), _side(_line(0, IN_NIC, 10)), [], FINE.format(0)),
        # What was dropped or little is not missed.
        (_side(KEPT, _line(1, IN_NIC, 38, actions="drop")), _side(KEPT), [], FINE.format(100)),
        (_side(KEPT, _line(1, IN_NIC, 1, in_port="p1", actions="p0")), _side(KEPT), [], FINE.format(100)),
    ],
    ids=["nothing changed", "a setting", "no packet yet", "it came back", "dropped", "little"],
)
def test_what_got_worse_and_why(before: Side, after: Side, worse: list[str], headline: str) -> None:
    found = Comparison(before, after)
    assert (list(found.worse.values()), found.headline) == (worse, headline)
    assert (bool(found.changes), found.is_silent) == (OFF in headline, headline.startswith("1 class"))


@pytest.mark.parametrize(("before", "after", "name"), [((), BEFORE, "before"), (BEFORE, (), "after")])
def test_a_record_without_traffic_proves_nothing(before: Side | tuple[()], after: Side | tuple[()], name: str) -> None:
    found = Comparison(before or _side(), after or _side())
    assert found.is_silent
    assert found.headline == f"the record {name} has no traffic: nothing can be compared"


def test_traffic_that_is_gone_is_worse_if_nothing_new_has_its_packets() -> None:
    """Bug: a class that had packets and has none was shown and never counted, also where its port was gone."""
    kept, drop = _line(0, IN_NIC, 620), _line(2, IN_NIC, 380, in_port="p1", actions="drop")
    idle = _line(1, IN_NIC, 0, in_port="p1", actions="p0")
    moved = _line(2, IN_NIC, 380, in_port="p1", actions="set(eth(dst=02::1)),p0")
    gone = "no packets, was 38% of all, 100% of it in hardware"
    for lines, worse in (([kept], [gone]), ([kept, idle], [gone]), ([kept, drop], [gone]), ([kept, moved], [])):
        found = Comparison(BEFORE, _side(*lines))
        assert list(found.worse.values()) == worse, lines
    assert (
        Comparison(BEFORE, _side(kept)).headline == f"1 class of traffic got worse: ovsbr1: p1 -> p0 [output]: {gone}"
    )
