"""The dump compared with traffic control: which of them decides, and what is an anomaly."""

from __future__ import annotations

import pytest

from xenoovs.datapath.megaflow import Verdict
from xenoovs.datapath.parse import parse_megaflow
from xenoovs.datapath.tc import TcCounters, TcFilter, cookie_of_ufid
from xenoovs.verify.check import MegaflowState, state_of
from xenoovs.verify.findings import Anomaly

UFID = "43d31ab9-4e39-4fcc-bd80-4aaf34dc5a32"
COOKIE = cookie_of_ufid(UFID) or ""


def _line(where: str, *, packets: int = 10) -> str:
    keys = "in_port(p0),eth_type(0x0800)"
    return f"ufid:{UFID}, {keys}, packets:{packets}, bytes:{packets * 100}, used:0.1s{where}, actions:p1"


def _filter(*, in_hw: bool | None, counters: TcCounters | None = None) -> dict[str, TcFilter]:
    return {COOKIE: TcFilter("ip", 2, 0, 1, COOKIE, in_hw=in_hw, in_hw_count=0, counters=counters)}


def _seen(where: str, filters: dict[str, TcFilter] | None) -> MegaflowState:
    found = state_of(parse_megaflow(_line(where)), filters)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("where", "in_hw", "verdict", "anomalies"),
    [
        (", offloaded:yes, dp:tc", True, Verdict.HW, ()),
        (", offloaded:yes, dp:tc", False, Verdict.TC_SW, (Anomaly.CONTRADICTED,)),
        (", offloaded:yes, dp:tc", None, Verdict.HW, (Anomaly.UNCONFIRMED,)),
        (", dp:tc", False, Verdict.TC_SW, ()),
    ],
)
def test_the_kernel_has_the_last_word(
    where: str, in_hw: bool | None, verdict: Verdict, anomalies: tuple[Anomaly, ...]
) -> None:
    found = _seen(where, _filter(in_hw=in_hw))
    assert (found.verdict, found.anomalies) == (verdict, anomalies)
    assert found.hw_packets == (10 if verdict is Verdict.HW else 0)


def test_a_filter_with_both_counters_shows_what_the_nic_forwarded() -> None:
    found = _seen(", offloaded:yes, dp:tc", _filter(in_hw=True, counters=TcCounters(20, 1900, 15, 1500)))
    assert (found.packets, found.bytes, found.hw_packets, found.hw_bytes) == (20, 1900, 15, 1500)


def test_a_filter_in_hw_without_hardware_counters_has_forwarded_nothing_there() -> None:
    """tc prints no hardware counter that is 0: packets that came before the NIC held the rule went by software."""
    found = _seen(", offloaded:yes, dp:tc", _filter(in_hw=True, counters=TcCounters(31, 2666)))
    assert (found.verdict, found.packets, found.hw_packets, found.hw_bytes) == (Verdict.HW, 31, 0, 0)


def test_a_megaflow_without_filter_is_an_anomaly_and_judged_by_the_dump() -> None:
    found = _seen(", offloaded:yes, dp:tc", {})
    assert (found.verdict, found.anomalies) == (Verdict.HW, (Anomaly.WITHOUT_FILTER,))


@pytest.mark.parametrize("where", [", dp:ovs", ", offloaded:yes, dp:doca", ", offloaded:partial, dp:ovs"])
def test_other_layers_have_no_filters(where: str) -> None:
    assert _seen(where, {}).anomalies == ()


def test_without_m_nothing_is_known() -> None:
    assert state_of(parse_megaflow(_line("")), {}) is None
