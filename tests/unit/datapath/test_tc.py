"""Filters of traffic control, as tc prints them in JSON and in text, and their join with megaflows."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xenoovs.datapath.tc import TcCounters, TcFilter, cookie_of_ufid, parse_tc_json, parse_tc_text
from xenoovs.errors import ParseError

COOKIE = "b91ad343cc4f394eaf4a80bd325adc34"

# Written after tc/f_flower.c, tc/m_pedit.c and tc/m_mirred.c of iproute2 6.1, with the numbers of a recorded filter.
TEXT = """filter protocol ip pref 2 flower chain 0
filter protocol ip pref 2 flower chain 0 handle 0x1
  dst_mac 02:5e:00:00:00:64
  eth_type ipv4
  dst_ip 198.18.5.100
  src_ip 198.18.5.33/0.0.0.3
  ip_flags nofrag
  in_hw in_hw_count 1
\taction order 1:  pedit action pipe keys 2
 \t index 1 ref 1 bind 1 installed 12 sec used 11 sec
\t key #0  at eth+0: val c6467a33 mask 00000000
 \tAction statistics:
\tSent 280 bytes 4 pkt (dropped 0, overlimits 0 requeues 0)
\tbacklog 0b 0p requeues 0

\taction order 2: mirred (Egress Redirect to device p1) stolen
 \tindex 1 ref 1 bind 1 installed 12 sec used 11 sec
 \tAction statistics:
\tSent 294 bytes 3 pkt (dropped 0, overlimits 0 requeues 0)
\tSent software 0 bytes 0 pkt
\tSent hardware 294 bytes 3 pkt
\tbacklog 0b 0p requeues 0
\tcookie b91ad343cc4f394eaf4a80bd325adc34
\tused_hw_stats delayed

filter protocol ip pref 2 flower chain 0 handle 0x2
  eth_type ipv4
  not_in_hw
\taction order 1: gact action drop
\t random type none pass val 0
\t index 2 ref 1 bind 1 installed 5 sec used 5 sec
"""

EXPECTED = (
    TcFilter("ip", 2, 0, 1, COOKIE, in_hw=True, in_hw_count=1, counters=TcCounters(3, 294, 3, 294)),
    TcFilter("ip", 2, 0, 2, None, in_hw=False, in_hw_count=0, counters=None),
)


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


def test_text_gives_the_same_as_json() -> None:
    assert parse_tc_text(TEXT) == EXPECTED


def test_json_of_the_same_filters() -> None:
    stats = {"bytes": 294, "packets": 3, "hw_bytes": 294, "hw_packets": 3}
    actions = [
        {"order": 1, "kind": "pedit", "stats": {"bytes": 280, "packets": 4}},
        {"order": 2, "kind": "mirred", "stats": stats, "cookie": COOKIE},
    ]
    first = {"handle": 1, "keys": {"eth_type": "ipv4"}, "in_hw": True, "in_hw_count": 1, "actions": actions}
    second = {"handle": 2, "keys": {}, "not_in_hw": True, "actions": [{"order": 1, "kind": "gact"}]}
    head = {"protocol": "ip", "pref": 2, "kind": "flower", "chain": 0}
    assert parse_tc_json(json.dumps([head, {**head, "options": first}, {**head, "options": second}])) == EXPECTED


def test_an_old_kernel_says_neither() -> None:
    row = {"protocol": "ip", "pref": 2, "kind": "flower", "options": {"handle": 1, "actions": []}}
    (found,) = parse_tc_json(json.dumps([row]))
    assert (found.in_hw, found.cookie, found.counters) == (None, None, None)


def test_no_filter_is_no_text() -> None:
    assert parse_tc_json("") == parse_tc_json("[]") == parse_tc_text("") == ()


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


def test_other_text_is_a_parse_error() -> None:
    with pytest.raises(ParseError, match="line 1"):
        parse_tc_text("Cannot find device\n")


def _nested(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    keys = st.sampled_from(["options", "handle", "actions", "stats", "cookie", "packets", "bytes", "protocol", "pref"])
    return st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=5)


@given(st.text() | st.recursive(st.none() | st.booleans() | st.integers() | st.text(), _nested).map(json.dumps))
def test_any_text_gives_filters_or_a_parse_error(text: str) -> None:
    for parse in (parse_tc_json, parse_tc_text):
        try:
            parse(text)
        except ParseError:
            continue
