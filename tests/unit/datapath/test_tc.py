"""Filters of traffic control, as tc prints them in JSON, and their join with megaflows."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.judged import assert_recorded
from xenoovs.datapath.tc import (
    TcCounters,
    TcFilter,
    cookie_of_ufid,
    has_hw_counters,
    parse_tc_json,
    with_known_counters,
)
from xenoovs.errors import ParseError

COOKIE = "b91ad343cc4f394eaf4a80bd325adc34"


@pytest.mark.parametrize(
    ("ufid", "cookie"),
    [
        ("43d31ab9-4e39-4fcc-bd80-4aaf34dc5a32", COOKIE),
        ("05288fd2-cfe9-4c02-a4b1-8d28d1c0e002", "d28f2805024ce9cf288db1a402e0c0d1"),
        ("1", None),
    ],
)
def test_a_ufid_is_a_cookie_with_each_word_reversed(ufid: str, cookie: str | None) -> None:
    assert cookie_of_ufid(ufid) == cookie


def _filter(stats: dict[str, int], **action: object) -> TcFilter:
    options = {"handle": 1, "in_hw": True, "actions": [{"kind": "mirred", "stats": stats, **action}]}
    (found,) = parse_tc_json(json.dumps([{"protocol": "ip", "pref": 2, "kind": "flower", "options": options}]))
    return found


@pytest.mark.parametrize(
    ("packets", "size", "hw_packets", "hw_bytes", "true_hw_packets"),
    [
        # The numbers of the change that iproute2 6.14 has for this.
        (5760767071, 368689092544, 1465799775, 368689092544, 5760767071),
        (5760767071, 368689092544, 5760767071, 368689092544, 5760767071),
        (9 << 32, 100 * (9 << 32) - 14 * (1 << 31), (9 << 32) - (1 << 31) & 0xFFFFFFFF, 100 * ((9 << 32) - (1 << 31)),
         (9 << 32) - (1 << 31)),
        (6 << 32, 100 * (6 << 32) - 14 * (3 << 32), 0, 100 * (3 << 32), 3 << 32),
        (6 << 32, 86 * (6 << 32), 0, 0, 0),
        (272, 27200, 48, 4800, 48),
    ],
)  # fmt: skip
def test_hardware_packets_beyond_32_bits_are_known_by_their_bytes(
    packets: int, size: int, hw_packets: int, hw_bytes: int, true_hw_packets: int
) -> None:
    """tc before iproute2 6.14 prints 1465799775 of 5760767071 packets, which was reported as 25 % in hardware."""
    stats = {"packets": packets, "bytes": size, "hw_packets": hw_packets, "hw_bytes": hw_bytes}
    assert _filter(stats).counters == TcCounters(packets, size, true_hw_packets, hw_bytes)


def test_a_hardware_counter_that_tc_leaves_out_is_0_if_the_kernel_has_one() -> None:
    """Rules that are in_hw and forward nothing were reported as 100 % in hardware."""
    none = _filter({"packets": 31, "bytes": 2666})
    seen = _filter({"packets": 3, "bytes": 294, "hw_packets": 3, "hw_bytes": 294})
    used = _filter({"packets": 31, "bytes": 2666}, used_hw_stats=["delayed"], installed=12, last_used=2)
    assert none.counters == used.counters == TcCounters(31, 2666, None)
    assert with_known_counters([none]) == (none,)
    for both in (with_known_counters([none, seen]), with_known_counters([none], is_known=True)):
        assert both[0].counters == TcCounters(31, 2666, 0)
    known = with_known_counters([used])[0]
    assert (known.counters, known.active_s) == (TcCounters(31, 2666, 0), 10)
    assert none.active_s is None


@pytest.mark.parametrize(
    ("kernel", "iproute2", "has_them"),
    [
        ("6.1.0-18-amd64", "tc utility, iproute2-6.1.0, libbpf 1.1.0", True),
        ("4.20.0", "tc utility, iproute2-ss190107", True),
        ("5.4.0-1042-bluefield", "tc utility, iproute2-ss181023", False),
        ("4.19.0-26-amd64", "tc utility, iproute2-6.1.0", False),
        ("4.9.0", "tc utility, iproute2-v4.9.0", False),
        ("weird", "tc utility, iproute2-6.1.0", False),
        ("6.1.0", "BusyBox", False),
    ],
)
def test_counters_of_hardware_came_with_4_20(kernel: str, iproute2: str, has_them: bool) -> None:
    assert has_hw_counters(kernel, iproute2) is has_them


def test_no_filter_is_no_text() -> None:
    assert parse_tc_json("") == parse_tc_json("[]") == ()


def test_police_of_old_releases_is_no_json() -> None:
    with pytest.raises(ParseError, match="JSON as `tc -j -s filter show`"):
        parse_tc_json(
            '[{"protocol":"all","pref":1,"options":{"handle":1,"actions":[{"order":1 police 0x10000000 rate 1Mbit'
        )


@pytest.mark.parametrize(
    "text", ["{}x", "3", '{"a":1}', '[{"options":{"handle":{}}}]', '[{"options":{"handle":1}}]', "[1]"]
)
def test_json_of_another_shape_is_a_parse_error(text: str) -> None:
    with pytest.raises(ParseError):
        parse_tc_json(text)


def _nested(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    keys = st.sampled_from(["options", "handle", "actions", "stats", "cookie", "packets", "bytes", "protocol", "pref"])
    return st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=5)


@given(st.text() | st.recursive(st.none() | st.booleans() | st.integers() | st.text(), _nested).map(json.dumps))
def test_any_text_gives_filters_or_a_parse_error(text: str) -> None:
    with suppress(ParseError):
        parse_tc_json(text)


def _row(keys: Mapping[str, object], *actions: Mapping[str, object]) -> dict[str, object]:
    options = {"handle": 1, "keys": keys, "in_hw": True, "actions": list(actions)}
    return {"protocol": "ip", "pref": 2, "kind": "flower", "options": options}


# Written after tc/f_flower.c, tc/m_pedit.c and tc/m_mirred.c of iproute2 6.1, with the numbers of a recorded filter.
_COUNTED = {"bytes": 294, "packets": 3, "hw_bytes": 294, "hw_packets": 3}
_PEDIT: dict[str, object] = {"order": 1, "kind": "pedit", "stats": {"bytes": 280, "packets": 4}}
_MIRRED: dict[str, object] = {"order": 2, "kind": "mirred", "stats": _COUNTED, "cookie": COOKIE}
_SENT: dict[str, object] = {"kind": "mirred", "mirred_action": "redirect", "to_dev": "genev_sys_6081"}
_HEAD = {"protocol": "ip", "pref": 2, "kind": "flower"}
FILTERS: dict[str, list[dict[str, object]]] = {
    "a head, and a filter in hardware": [{**_HEAD, "chain": 0}, _row({"eth_type": "ipv4"}, _PEDIT, _MIRRED)],
    "one that is not in hardware": [
        {**_HEAD, "options": {"handle": 2, "keys": {}, "not_in_hw": True, "actions": [{"order": 1, "kind": "gact"}]}}
    ],
    "an old kernel reports neither": [{**_HEAD, "options": {"handle": 1, "actions": []}}],
}


def test_what_tc_prints_of_filters(*, update_golden: bool) -> None:
    shown = {
        title: "\n".join(
            f"{each.name}: {getattr(found, each.name)!r}"
            for found in parse_tc_json(json.dumps(rows))
            for each in dataclasses.fields(found)
        )
        for title, rows in FILTERS.items()
    }
    assert_recorded("parsed/tc.txt", shown, update=update_golden)
