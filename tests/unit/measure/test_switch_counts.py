"""The counters of Open vSwitch beside those of interfaces."""

from __future__ import annotations

import pytest

from xenoovs.errors import MeasureError
from xenoovs.measure.counters import CountedFrames
from xenoovs.measure.switch_counts import SwitchCounts, SwitchedFrames, parse_switch_counts, switched_frames

TEXT = """\
OFPST_AGGREGATE reply (OF1.4) (xid=0x2): packet_count=32778 byte_count=1966680 flow_count=1
ufid:0c7a1bd5-0000-0000-0000-000000000001, skb_priority(0/0),in_port(p0),packet_type(ns=0,id=0),eth_type(0x0800),\
ipv4(src=0.0.0.0/0.0.0.1), packets:20000, bytes:920000, used:0.1s, offloaded:yes, dp:tc, actions:p1
ufid:0c7a1bd5-0000-0000-0000-000000000002, skb_priority(0/0),in_port(p0),packet_type(ns=0,id=0),eth_type(0x0800),\
ipv4(src=0.0.0.1/0.0.0.1), packets:12778, bytes:587788, used:0.1s, dp:ovs, actions:p1
"""


def test_packets_of_flows_of_megaflows_and_of_the_nic_are_read() -> None:
    found = parse_switch_counts(TEXT)
    assert (found.matched, sum(found.megaflows.values()), sum(found.offloaded.values())) == (32778, 32778, 20000)


@pytest.mark.parametrize("text", ["", "OFPST_AGGREGATE reply (OF1.4) (xid=0x2): flow_count=1\n", "Killed\n"])
def test_an_answer_without_counters_is_an_error(text: str) -> None:
    with pytest.raises(MeasureError, match="dump-aggregate printed no counters"):
        parse_switch_counts(text)


def test_a_recreated_megaflow_counts_from_zero() -> None:
    before = SwitchCounts(100, {"a": 90, "b": 10}, {"a": 90})
    after = SwitchCounts(160, {"a": 20, "b": 50, "c": 5}, {"a": 20})
    assert switched_frames(before, after) == SwitchedFrames(60, 65, 20)
    assert switched_frames(after, before).matched == 0


@pytest.mark.parametrize(
    ("matched", "received", "reason"),
    [
        (1000, 900, ""),
        (1000, 1000, ""),
        (
            500,
            900,
            "the backends received 900 frames, and the flows of the service matched 500: others come another way",
        ),
        (
            1500,
            900,
            "the flows of the service matched 1500 packets, and the generator sent 1000: others send too",
        ),
    ],
)
def test_counters_that_disagree_make_a_sample_suspect(matched: int, received: int, reason: str) -> None:
    frames = CountedFrames(1000, {"a": received}, 1000, ())
    assert [*SwitchedFrames(matched, matched, 0).doubts(frames)] == ([reason] if reason else [])
