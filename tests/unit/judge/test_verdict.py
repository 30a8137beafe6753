"""Where a megaflow runs, judged by its own line."""

from __future__ import annotations

import pytest

from xenoovs.datapath.megaflow import Verdict, verdict_of
from xenoovs.datapath.parse import parse_megaflow

LINE = "in_port(p0), packets:1, bytes:98, used:0.100s{}, actions:p1"


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (", offloaded:yes, dp:tc", Verdict.HW),
        (", offloaded:yes, dp:doca", Verdict.HW),
        (", offloaded:partial, dp:ovs", Verdict.PARTIAL),
        (", dp:tc", Verdict.TC_SW),
        (", dp:ovs", Verdict.SW),
        (", dp:dpdk", Verdict.SW),
    ],
)
def test_the_verdict_follows_from_layer_and_offloaded(text: str, verdict: Verdict) -> None:
    assert verdict_of(parse_megaflow(LINE.format(text))) is verdict


def test_the_dummy_provider_is_no_nic() -> None:
    """`offloaded:yes, dp:dummy` was counted as forwarded by the NIC."""
    line = "in_port(p0),eth_type(0x0800), packets:1, bytes:1, used:0.1s, offloaded:yes, dp:dummy, actions:p1"
    assert verdict_of(parse_megaflow(line)) is Verdict.SW


def test_verdicts_are_ordered_from_absent_to_the_worst() -> None:
    """By this a block with several megaflows has its verdict."""
    worst_last = sorted(Verdict, key=lambda verdict: verdict.badness)
    assert [verdict.value for verdict in worst_last] == [
        *("ABSENT", "HW", "UNCONFIRMED", "PARTIAL", "TC_SW", "IDLE_HW", "SW", "CONTRADICTED")
    ]
