"""Results from counters: loss by backend, and what makes a sample suspect."""

from __future__ import annotations

import pytest

from xenoovs.errors import MeasureError
from xenoovs.measure.counters import CountedFrames, InterfaceCounts, counted_frames, parse_counts
from xenoovs.measure.switch_counts import SwitchCounts, SwitchedFrames, parse_switch_counts, switched_frames
from xenoovs.measure.switch_load import parse_reading

STATISTICS = "rx_packets 10\ntx_packets 20\nrx_dropped 0\ntx_dropped 0\n"


def counts(**numbers: tuple[int, int]) -> dict[str, InterfaceCounts]:
    return {role: InterfaceCounts(rx, tx, is_physical=False) for role, (rx, tx) in numbers.items()}


BEFORE = counts(generator=(0, 100), dpu=(100, 0), a=(5, 0), b=(7, 0))


def test_loss_is_what_was_sent_and_reached_no_backend() -> None:
    after = counts(generator=(0, 1100), dpu=(1100, 0), a=(605, 0), b=(307, 0))
    found = counted_frames(BEFORE, after, backends=("a", "b"))
    assert (found.sent, found.switched, found.received) == (1000, 1000, 900)
    assert found.received_by_backend == {"a": 600, "b": 300}
    assert found.loss_share == pytest.approx(0.1)
    assert found.suspect == ()


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        (
            counts(generator=(0, 50), dpu=(1100, 0), a=(605, 0), b=(307, 0)),
            "the tx counter of generator went back from 100 to 50: it wrapped, or was reset",
        ),
        (
            counts(generator=(0, 1100), dpu=(1100, 0), a=(605, 0), b=(0, 0)),
            "the rx counter of b went back from 7 to 0: it wrapped, or was reset",
        ),
        (
            counts(generator=(0, 1100), dpu=(1100, 0), a=(1505, 0), b=(7, 0)),
            "the backends received 1500 frames and the generator sent 1000: other traffic reaches them",
        ),
        (
            counts(generator=(0, 1100), dpu=(2100, 0), a=(605, 0), b=(307, 0)),
            "the switch received 2000 frames and the generator sent 1000: others send to it too",
        ),
    ],
)
def test_counters_that_cannot_be_right_make_a_sample_suspect(after: dict[str, InterfaceCounts], reason: str) -> None:
    found = counted_frames(BEFORE, after, backends=("a", "b"))
    assert found.suspect == (reason,)
    assert found.loss_share >= 0


def test_frames_of_another_kind_are_no_reason() -> None:
    after = counts(generator=(0, 1100), dpu=(1105, 0), a=(605, 0), b=(419, 0))
    assert counted_frames(BEFORE, after, backends=("a", "b")).suspect == ()


def test_counters_at_the_wire_are_preferred() -> None:
    physical = "     rx_packets_phy: 11\n     tx_packets_phy: 22\n"
    found = parse_counts(f"== generator\n{STATISTICS}== a b\n{STATISTICS}{physical}")
    assert found == {
        "generator": InterfaceCounts(10, 20, is_physical=False),
        "a b": InterfaceCounts(11, 22, is_physical=True),
    }


def test_an_interface_without_counters_is_named() -> None:
    with pytest.raises(MeasureError, match="the interface of b shows no rx_packets"):
        parse_counts(f"== a\n{STATISTICS}== b\n")


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


TEXT_SWITCH_LOAD = """\
100
cpu  1000 0 2000 90000 10 0 345 0 0 0
4711 (ovs-vswitchd) S 1 4711 4711 0 -1 4194560 900 0 0 0 1234 766 0 0 20 0 9 0 8800 1000000 5000 18446744073709551615
VmRSS:\t   20480 kB
netdev@ovs-netdev:
  lookups: hit:998 missed:2 lost:0
  flows: 2
system@ovs-system:
  lookups: hit:10 missed:40 lost:3
limit 7
sw_flow              1000   1200    768   42    8 : tunables    0    0    0
nf_conntrack           10     64    256   16    1 : tunables    0    0    0
"""


def test_all_datapaths_are_added_up() -> None:
    reading = parse_reading(TEXT_SWITCH_LOAD, at_s=5.0)
    assert (reading.missed, reading.lost, reading.limit_hits) == (42, 3, 7)
    assert (reading.vswitchd_cpu_s, reading.softirq_cpu_s) == (20.0, 3.45)
    assert (reading.rss_bytes, reading.kernel_bytes) == (20480 * 1024, 1000 * 768 + 10 * 256)


def test_what_a_kernel_does_not_show_is_none() -> None:
    shown = "".join(
        f"{line}\n" for line in TEXT_SWITCH_LOAD.splitlines() if not line.startswith(("sw_flow", "nf_conn", "limit"))
    )
    reading = parse_reading(shown, at_s=5.0)
    assert (reading.limit_hits, reading.kernel_bytes) == (0, 0)


def test_the_cost_of_a_packet_is_cpu_time_of_switch_and_kernel() -> None:
    before = parse_reading(TEXT_SWITCH_LOAD, at_s=5.0)
    after = parse_reading(TEXT_SWITCH_LOAD.replace("1234 766", "1244 776").replace("missed:40", "missed:90"), at_s=7.0)
    values = after.since(before, packets=1000)
    assert values["cpu_us"] == pytest.approx(200.0)
    assert values["upcalls_pps"] == 25.0
