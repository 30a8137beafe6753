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


def test_without_a_counter_of_hardware_nothing_is_confirmed() -> None:
    found = _seen(IN_HW, _filter(in_hw=True, counters=TcCounters(31, 2666, None)))
    assert (found.verdict, found.is_counted) == (Verdict.UNCONFIRMED, False)


@pytest.mark.parametrize(
    ("counters", "active_s", "verdict"),
    [
        # Packets that came before the NIC held the rule went by software; so did all others, if they came long after.
        (TcCounters(31, 2666), 0, Verdict.UNCONFIRMED),
        (TcCounters(31, 2666), None, Verdict.UNCONFIRMED),
        (TcCounters(31, 2666), 24, Verdict.IDLE_HW),
        (TcCounters(272, 27200, 48, 4800), 24, Verdict.UNCONFIRMED),
        (TcCounters(272, 27200, 200, 20000), 24, Verdict.HW),
        (TcCounters(0, 0), 0, Verdict.HW),
    ],
)
def test_one_sample_reports_when_it_cannot_decide(counters: TcCounters, active_s: int | None, verdict: Verdict) -> None:
    assert _seen(IN_HW, _filter(in_hw=True, counters=counters, active_s=active_s)).verdict is verdict


@pytest.mark.parametrize(
    ("before", "now", "verdict"),
    [
        (TcCounters(1000, 1, 1000), TcCounters(1224, 1, 1000), Verdict.IDLE_HW),
        (TcCounters(31, 1, 0), TcCounters(1031, 1, 1000), Verdict.HW),
        (TcCounters(31, 1, 0), TcCounters(1034, 1, 1000), Verdict.HW),
        (TcCounters(31, 1, 0), TcCounters(36, 1, 4), Verdict.TC_SW),
        (TcCounters(96, 1, 96), TcCounters(192, 1, 156), Verdict.TC_SW),
        (TcCounters(1000, 1, 1000), TcCounters(1000, 1, 1000), Verdict.HW),
        (TcCounters(1000, 1, 1000), TcCounters(40, 1, 10), Verdict.UNCONFIRMED),
    ],
)
def test_two_samples_are_judged_by_what_grew_between_them(
    before: TcCounters, now: TcCounters, verdict: Verdict
) -> None:
    assert _seen(IN_HW, _filter(in_hw=True, counters=now), before).verdict is verdict


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


def test_a_megaflow_without_filter_is_an_anomaly_and_judged_by_the_dump() -> None:
    found = _seen(", offloaded:yes, dp:tc", {})
    assert (found.verdict, found.anomalies) == (Verdict.HW, (Anomaly.WITHOUT_FILTER,))


@pytest.mark.parametrize("where", [", dp:ovs", ", offloaded:yes, dp:doca", ", offloaded:partial, dp:ovs"])
def test_other_layers_have_no_filters(where: str) -> None:
    assert _seen(where, {}).anomalies == ()
