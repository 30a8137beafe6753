"""The dump compared with traffic control: which of them decides, and what is an anomaly."""

from __future__ import annotations

from dataclasses import replace

import pytest

from xenoovs.datapath.megaflow import Verdict
from xenoovs.datapath.parse import parse_megaflow
from xenoovs.datapath.tc import TcCounters, TcFilter, cookie_of_ufid
from xenoovs.evidence.samples import NO_GROWTH, DatapathSample, Growth, id_of, sampled
from xenoovs.judge.findings import Anomaly
from xenoovs.judge.offload import MegaflowState, state_of

UFID = "43d31ab9-4e39-4fcc-bd80-4aaf34dc5a32"
COOKIE = cookie_of_ufid(UFID) or ""


def _line(where: str, *, packets: int = 10) -> str:
    keys = "in_port(p0),eth_type(0x0800)"
    return f"ufid:{UFID}, {keys}, packets:{packets}, bytes:{packets * 100}, used:0.1s{where}, actions:p1"


def _filter(
    *, in_hw: bool | None, counters: TcCounters | None = None, active_s: int | None = None
) -> dict[str, TcFilter]:
    return {COOKIE: TcFilter("ip", 2, 0, 1, COOKIE, in_hw=in_hw, counters=counters, active_s=active_s)}


def _seen(
    where: str, filters: dict[str, TcFilter] | None, before: TcCounters | None = None, *, contradicted: str = ""
) -> MegaflowState:
    megaflow = parse_megaflow(_line(where))
    sample = None if before is None else DatapathSample({id_of(megaflow): sampled(megaflow, before)})
    found = state_of(megaflow, filters, sample, {contradicted})
    assert found is not None
    return found


IN_HW = ", offloaded:yes, dp:tc"


@pytest.mark.parametrize(
    ("where", "in_hw", "verdict", "anomalies"),
    [
        (IN_HW, True, Verdict.HW, ()),
        (IN_HW, False, Verdict.TC_SW, (Anomaly.NOT_IN_HW,)),
        (IN_HW, None, Verdict.UNCONFIRMED, ()),
        (", dp:tc", False, Verdict.TC_SW, ()),
    ],
)
def test_the_kernel_decides(where: str, in_hw: bool | None, verdict: Verdict, anomalies: tuple[Anomaly, ...]) -> None:
    found = _seen(where, _filter(in_hw=in_hw))
    assert (found.verdict, found.anomalies) == (verdict, anomalies)
    assert found.is_counted == (in_hw is not None)


def test_a_filter_with_both_counters_shows_what_the_nic_forwarded() -> None:
    found = _seen(IN_HW, _filter(in_hw=True, counters=TcCounters(20, 1900, 15, 1500)))
    assert (found.packets, found.bytes, found.hw_packets, found.hw_bytes) == (20, 1900, 15, 1500)


@pytest.mark.parametrize(
    ("before", "now", "active_s", "verdict"),
    [
        (None, TcCounters(31, 2666, None), None, Verdict.UNCONFIRMED),
        # Packets that came before the NIC held the rule went by software; so did all others, if they came long after.
        (None, TcCounters(31, 2666), 0, Verdict.UNCONFIRMED),
        (None, TcCounters(31, 2666), None, Verdict.UNCONFIRMED),
        (None, TcCounters(31, 2666), 24, Verdict.IDLE_HW),
        (None, TcCounters(272, 27200, 48, 4800), 24, Verdict.UNCONFIRMED),
        (None, TcCounters(272, 27200, 200, 20000), 24, Verdict.HW),
        (None, TcCounters(0, 0), 0, Verdict.HW),
        # Two samples are judged by what grew between them.
        (TcCounters(1000, 1, 1000), TcCounters(1224, 1, 1000), None, Verdict.IDLE_HW),
        (TcCounters(31, 1, 0), TcCounters(1031, 1, 1000), None, Verdict.HW),
        (TcCounters(31, 1, 0), TcCounters(1034, 1, 1000), None, Verdict.HW),
        (TcCounters(31, 1, 0), TcCounters(36, 1, 4), None, Verdict.TC_SW),
        (TcCounters(96, 1, 96), TcCounters(192, 1, 156), None, Verdict.TC_SW),
        (TcCounters(1000, 1, 1000), TcCounters(1000, 1, 1000), None, Verdict.HW),
        (TcCounters(1000, 1, 1000), TcCounters(40, 1, 10), None, Verdict.UNCONFIRMED),
    ],
)
def test_the_verdict_by_counters(
    before: TcCounters | None, now: TcCounters, active_s: int | None, verdict: Verdict
) -> None:
    found = _seen(IN_HW, _filter(in_hw=True, counters=now, active_s=active_s), before)
    assert (found.verdict, found.is_counted) == (verdict, now.hw_packets is not None)


@pytest.mark.parametrize(
    ("stray", "verdict"), [(1, Verdict.UNCONFIRMED), (9, Verdict.UNCONFIRMED), (200, Verdict.IDLE_HW)]
)
def test_a_stray_packet_in_software_is_no_idle_rule_under_steady_traffic(stray: int, verdict: Verdict) -> None:
    """The NIC refreshes its counters every 10 s; 100 packets a second, one stray: IDLE_HW [confirmed]."""
    [(cookie, rule)] = _filter(in_hw=True, counters=TcCounters(3000 + stray, 1, 3000)).items()
    found = _seen(IN_HW, {cookie: replace(rule, age_s=30)}, TcCounters(3000, 1, 3000))
    assert (found.verdict, found.growth) == (verdict, Growth(stray, 0) if verdict is Verdict.IDLE_HW else NO_GROWTH)


def test_the_counter_of_a_port_outweighs_the_nic() -> None:
    before, now = TcCounters(10, 1, 10), TcCounters(110, 1, 110)
    filters = _filter(in_hw=True, counters=now)
    assert _seen(IN_HW, filters, before, contradicted="p0").verdict is Verdict.CONTRADICTED
    assert _seen(IN_HW, filters, before, contradicted="p1").verdict is Verdict.HW
    assert _seen(IN_HW, filters, now, contradicted="p0").verdict is Verdict.HW


@pytest.mark.parametrize(
    ("where", "verdict", "anomalies"),
    [
        (IN_HW, Verdict.HW, (Anomaly.WITHOUT_FILTER,)),
        (", dp:ovs", Verdict.SW, ()),
        (", offloaded:yes, dp:doca", Verdict.HW, ()),
        (", offloaded:partial, dp:ovs", Verdict.PARTIAL, ()),
    ],
)
def test_without_a_filter_the_dump_decides(where: str, verdict: Verdict, anomalies: tuple[Anomaly, ...]) -> None:
    """It is an anomaly of traffic control alone: other layers have none."""
    found = _seen(where, {})
    assert (found.verdict, found.anomalies) == (verdict, anomalies)
