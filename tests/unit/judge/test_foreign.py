"""Flows and rules of others: which packets of blocks they take, and which bits they un-wildcard."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.judged import assert_recorded, check_offload
from tests.unit.judge.programs import IN_HARDWARE, blocks, megaflow_of, shown, two_services
from xenoovs.compile.program import compile_config
from xenoovs.datapath.megaflow import Megaflow, match_of
from xenoovs.datapath.parse import parse_megaflow, scan_dump
from xenoovs.datapath.tc import TcFilter, parse_tc_json
from xenoovs.judge.expected import expected_services
from xenoovs.judge.findings import OffloadFindings, Unwildcarding
from xenoovs.judge.foreign import (
    OTHER_ACTIONS,
    attribute,
    extra_bits,
    preempting_rules,
    unwildcarding_flows,
)
from xenoovs.judge.offload import check_dump
from xenoovs.model.load import load_config
from xenoovs.openflow.flow import Flow
from xenoovs.openflow.text import parse_flow

PROGRAM = two_services()
SERVICES = expected_services(PROGRAM)
BLOCKS = blocks(PROGRAM)
OTHER_BITS = "recirc_id(0),in_port(p0),eth_type(0x0800),ipv4(src=0.0.0.7/0.0.0.15,proto=17,frag=no)"


def _megaflow(keys: str, actions: str, *, used: str = "0.1s") -> Megaflow:
    return parse_megaflow(f"{keys}, packets:3, bytes:180, used:{used}{IN_HARDWARE}, actions:{actions}")


def _check(*megaflows: Megaflow) -> OffloadFindings:
    return check_offload(SERVICES, megaflows)


V4, ODD = "eth_type(0x0800),ipv4", "src=0.0.0.7/0.0.0.15"
TO_B1 = "set(eth(dst=02:00:00:00:00:01)),p1"


def _overriding() -> dict[str, OffloadFindings]:
    return {
        **{
            f"overlaps blocks, {actions}": _check(_megaflow(OTHER_BITS, actions))
            for actions in ("set(eth(dst=02:00:00:00:00:77)),p1", "p9", "br0", "drop")
        },
        **{
            f"{actions} beside blocks in hardware": _check(*map(megaflow_of, BLOCKS), _megaflow(OTHER_BITS, actions))
            for actions in ("p9", "drop")
        },
        "delivery to one backend": _check(_megaflow(f"in_port(p0),{V4}(dst=10.3.10.46)", TO_B1)),
        "gone soon, so perhaps from before a change": _check(_megaflow(OTHER_BITS, "drop", used="9.9s")),
        "connection tracking, so undetermined": _check(_megaflow(OTHER_BITS, "ct(zone=1),recirc(0x3)")),
        **{
            f"without packets of a block: {keys}": _check(_megaflow(keys, "drop"))
            for keys in (
                f"in_port(p0),{V4}({ODD},dst=10.3.10.47)",
                f"in_port(p0),{V4}({ODD},dst=10.3.10.0/255.255.255.240)",
                f"in_port(p0),{V4}({ODD},dst=10.3.10.45,proto=6)",
                f"in_port(p0),{V4}(dst=10.3.10.45,proto=17),udp(dst=54)",
                f"in_port(p1),{V4}({ODD})",
                "in_port(p0),eth_type(0x86dd),ipv6(frag=no)",
                "in_port(p0),eth_type(0x0806),arp(tip=10.3.10.45)",
                f"recirc_id(0x3),in_port(p0),{V4}({ODD})",
            )
        },
        "a later fragment": _check(_megaflow(f"in_port(p0),{V4}(dst=10.3.10.45,proto=17,frag=later)", "p1")),
        # Delivered to the backend of the odd block of dns, which is another one than that of web.
        "the same backend is harmless": check_offload(
            SERVICES[:1],
            [_megaflow(f"in_port(p0),{V4}(src=0.0.0.1/0.0.0.1,proto=17),udp(dst=53)", TO_B1.replace(":01", ":02"))],
        ),
    }


def test_blocks_that_foreign_megaflows_override(*, update_golden: bool) -> None:
    recorded = {title: shown(found) for title, found in _overriding().items()}
    assert_recorded("judged/overrides.txt", recorded, update=update_golden)


LINE = "in_port(p0),eth_type(0x0800),ipv4(src=0.0.0.{}), packets:1, bytes:60, used:0.1s, dp:ovs, actions:{}"


@pytest.mark.parametrize(
    ("lines", "counts"),
    [
        ([LINE.format("7/0.0.0.15", f"p{n}") for n in [*range(10_000), 9, 9, 9]], [10_003 * 2]),
        # Of each service, two of four classes of addresses belong to the other backend.
        ([LINE.format(f"{n}/0.0.0.3", "set(eth(dst=02:00:00:00:00:01)),p1") for n in (0, 1, 2, 3, 0)], [4, 5, 6]),
    ],
    ids=["all different", "similar, but for the address"],
)
def test_lines_that_are_judged_together_are_judged_as_each_alone(lines: list[str], counts: list[int]) -> None:
    fast, each = check_dump(SERVICES, lines), check_offload(SERVICES, scan_dump(lines))
    assert fast == each
    assert sum(taking.megaflows for taking in fast.overrides) in counts


def test_overrides_beyond_the_limit_are_merged() -> None:
    findings = _check(*(_megaflow(OTHER_BITS, f"p{number}") for number in range(600)), _megaflow(OTHER_BITS, "drop"))
    by_actions = {(taking.service, taking.actions): taking.megaflows for taking in findings.overrides}
    assert len(by_actions) == 500 + 2 * 2
    assert {by_actions[service, OTHER_ACTIONS] for service in ("dns", "web")} == {350}
    assert {by_actions[service, "drop"] for service in ("dns", "web")} == {1}
    assert sum(by_actions.values()) == 601 * 2


PREFIX = ("nw_src", 0xFFFFFF00)


def _flow(text: str) -> Flow:
    return parse_flow(f"{text} actions=drop")


# Of flows beside those of the program: which are named for packets that a megaflow takes, and for bits of a field.
TAKING = {
    "the highest above ours that all these packets match": (
        "priority=4000,udp,nw_src=0.0.0.3/0.0.0.15",
        "priority=3500,udp,in_port=p1,nw_src=0.0.0.7/0.0.0.15",
        "priority=3000,udp,nw_src=0.0.0.7/0.0.0.15",
        "priority=2000,ip",
        "priority=1,ip",
    ),
    "none above ours": ("priority=1,ip",),
}
BELOW, ELSEWHERE = "priority=1,ip,nw_src=10.0.0.0/8", "priority=3000,ip,in_port=p1,nw_src=10.0.0.0/9"
WIDENING: dict[str, tuple[tuple[str, int], tuple[str, ...]]] = {
    **{
        f"above ours: {text}": (PREFIX, (BELOW, text, "priority=4000,ip,nw_dst=10.0.0.1", ELSEWHERE))
        for text in (
            "priority=3000,ip,nw_src=203.0.113.0/24",
            "priority=3000,ip,in_port=p0,nw_src=203.0.113.7",
            "table=1, priority=3000,ip,nw_src=203.0.113.0/24",
        )
    },
    "one below ours counts in a subtable with one above": (
        PREFIX,
        ("priority=3000,ip,nw_src=10.0.0.0/24", "priority=1,ip,nw_src=10.0.1.0/24"),
    ),
    "without a certain flow all candidates are named": (
        PREFIX,
        ("table=9, priority=1,ip,nw_src=10.0.0.0/24", "priority=5,ip,nw_src=0.0.0.1/0.0.0.1"),
    ),
    "unknown fields are compared by name": (("nw_ttl", 0xFF), ("priority=3000,ip,nw_ttl=64", "priority=3000,tcp")),
    "bits of the source port": (
        ("tp_src", 0xF000),
        ("priority=3000,udp,tp_src=0x1000/0xf000", "priority=3000,udp,tp_dst=9"),
    ),
    "bits of the TOS": (("nw_tos", 0xFC), ("priority=3000,ip,nw_tos=184", "priority=3000,tcp")),
}


def test_which_foreign_flows_are_named(*, update_golden: bool) -> None:
    shown = {}
    for title, texts in TAKING.items():
        found = attribute(_check(_megaflow(OTHER_BITS, "drop")), map(_flow, texts))
        lines = (f"{each.service}: {[text for text in texts if _flow(text) in each.flows]}" for each in found.overrides)
        shown[title] = "\n".join(lines)
    for title, (bits, texts) in WIDENING.items():
        named = unwildcarding_flows((bits,), list(map(_flow, texts)), service=SERVICES[0], in_port="p0")
        shown[title] = "\n".join(text for text in texts if _flow(text) in named) or "none"
    assert_recorded("judged/foreign_flows.txt", shown, update=update_golden)


def test_bits_of_the_tos_are_those_that_our_flows_do_not_match() -> None:
    fields = parse_megaflow(
        "eth_type(0x0800),ipv4(dst=1.2.3.4,tos=0/0xfc), packets:0, bytes:0, used:never, actions:drop"
    )
    assert extra_bits(match_of(fields), {"nw_dst": 0xFFFFFFFF, "dl_type": 0xFFFF}) == (("nw_tos", 0xFC),)


def test_bits_that_our_own_flows_match_are_not_unwildcarded() -> None:
    """Those of one service make Open vSwitch match more in the megaflows of another."""
    megaflow = parse_megaflow(
        "in_port(p0),eth(dst=c4:70:bd:a0:56:ac),eth_type(0x0800),ipv4(src=0.0.0.0/0.0.0.1,dst=10.3.10.46,proto=6), "
        "packets:1, bytes:1, used:0.1s, dp:tc, actions:set(eth(dst=02:00:00:00:00:01)),p1"
    )
    assert check_offload(SERVICES, [megaflow]).unwildcardings == (Unwildcarding("web", (("nw_proto", 0xFF),), 1, "p0"),)
    own = {"nw_src": 1, "nw_proto": 0xFF, "nw_dst": 0xFFFFFFFF, "dl_dst": 0xFFFFFFFFFFFF, "dl_type": 0xFFFF}
    assert check_offload(SERVICES, [megaflow], own_mask=lambda _: own).unwildcardings == ()


OF_FILE = expected_services(compile_config(load_config(Path(__file__).parents[2] / "golden" / "verify" / "dns.yaml")))
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


def _met(rule: TcFilter, *own: TcFilter, device: str = "p0") -> str:
    found = preempting_rules(OF_FILE, [(device, one) for one in (rule, *own)])
    return "\n".join(each.describe() + "; ineffective" * (not each.is_effective) for each in found) or "meets no block"


KEYS: tuple[dict[str, Any], ...] = (
    {"ip_proto": "udp", "dst_ip": "10.3.10.45", "dst_port": 53},
    {"ip_proto": "udp"},
    {},
    {"src_ip": "198.18.0.64"},
    {"src_ip": "0.0.0.0/0.0.0.1"},
    {"dst_ip": "10.3.10.0/24", "some_new_key": "7"},
    {"ip_proto": "tcp"},
    {"dst_ip": "10.3.10.46"},
    {"ip_proto": "udp", "dst_port": 54},
)


def test_the_blocks_whose_packets_meet_a_rule_first(*, update_golden: bool) -> None:
    kinds = ("all", "ip", "ipv6", "arp", "802.1Q")
    shown = {
        **{f"keys {keys}": _met(_rule(keys), OWN) for keys in KEYS},
        **{f"all of protocol {each}": _met(_rule({}, kind="matchall", protocol=each), OWN) for each in kinds},
        "behind those of Open vSwitch": _met(_rule({}, pref=3), OWN),
        "without those": _met(_rule({}, pref=40000)),
        "it continues with the next ones": _met(_rule({}, action="continue"), OWN),
        "of another port": _met(_rule({}), device="p1"),
        "with packets": _met(_rule({"src_ip": "198.18.0.64"}, packets=36), OWN),
    }
    assert_recorded("judged/preempting_rules.txt", shown, update=update_golden)
