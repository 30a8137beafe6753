"""Rules of other programs in traffic control: packets of which blocks match them before the rules of Open vSwitch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from xenoovs.compile.program import compile_config
from xenoovs.datapath.tc import TcFilter, parse_tc_json
from xenoovs.judge.expected import expected_services
from xenoovs.judge.foreign import PreemptingRule, preempting_rules
from xenoovs.model.load import load_config

SERVICES = expected_services(compile_config(load_config(Path(__file__).parents[2] / "golden" / "verify" / "dns.yaml")))
(DNS,) = (service for service in SERVICES if service.name == "dns")
OWN = TcFilter("ip", 2, 0, 1, "00" * 16, in_hw=True, counters=None)


def _rule(keys: dict[str, Any], *, pref: int = 1, protocol: str = "ip", kind: str = "flower", **more: Any) -> TcFilter:
    action = {
        "order": 1,
        "kind": "gact",
        "control_action": {"type": more.pop("action", "drop")},
        "stats": {"packets": 0, "bytes": 0, **more},
    }
    options = {"handle": 1, "keys": keys, "in_hw": True, "actions": [action]}
    row = {"protocol": protocol, "pref": pref, "kind": kind, "chain": 0, "options": options}
    (found,) = parse_tc_json(json.dumps([row]))
    return found


def _found(rule: TcFilter, *own: TcFilter, device: str = "p0") -> tuple[PreemptingRule, ...]:
    return preempting_rules(SERVICES, [(device, one) for one in (rule, *own)])


@pytest.mark.parametrize(
    ("keys", "blocks"),
    [
        ({"ip_proto": "udp", "dst_ip": "10.3.10.45", "dst_port": 53}, len(DNS.blocks)),
        ({"ip_proto": "udp"}, len(DNS.blocks)),
        ({}, len(DNS.blocks)),
        ({"src_ip": "198.18.0.64"}, 1),
        ({"src_ip": "0.0.0.0/0.0.0.1"}, 1),
        ({"dst_ip": "10.3.10.0/24", "some_new_key": "7"}, len(DNS.blocks)),
        ({"ip_proto": "tcp"}, 0),
        ({"dst_ip": "10.3.10.46"}, 0),
        ({"ip_proto": "udp", "dst_port": 54}, 0),
    ],
)
def test_the_blocks_that_a_rule_matches(keys: dict[str, Any], blocks: int) -> None:
    assert [len(rule.blocks) for rule in _found(_rule(keys), OWN)] == ([blocks] if blocks else [])


@pytest.mark.parametrize(
    ("protocol", "is_met"), [("all", True), ("ip", True), ("ipv6", False), ("arp", False), ("802.1Q", False)]
)
def test_protocols(protocol: str, is_met: bool) -> None:
    assert bool(_found(_rule({}, protocol=protocol, kind="matchall"), OWN)) is is_met


def test_a_rule_after_those_of_open_vswitch_does_not_count() -> None:
    assert _found(_rule({}, pref=3), OWN) == ()


def test_without_rules_of_open_vswitch_any_comes_first() -> None:
    assert [rule.pref for rule in _found(_rule({}, pref=40000))] == [40000]


def test_a_rule_that_continues_with_the_next_ones_does_not_count() -> None:
    assert _found(_rule({}, action="continue"), OWN) == ()


def test_a_rule_of_another_port_does_not_count() -> None:
    assert _found(_rule({}), device="p1") == ()


def test_a_rule_is_described_with_its_packets() -> None:
    (rule,) = _found(_rule({"src_ip": "198.18.0.64"}, packets=36), OWN)
    assert rule.is_effective
    assert rule.describe() == (
        f"pref 1 flower src_ip 198.18.0.64 -> drop (in the NIC) meets 1 block of dns ({rule.blocks[0].backend}) before "
        "Open vSwitch does; it took 36 packets"
    )
