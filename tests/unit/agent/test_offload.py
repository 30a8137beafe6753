"""Samples of hardware offload: totals that never fall, and blocks as they are shown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path

import pytest

from tests.compiled import compiled
from tests.fake_switch import FakeSwitch
from tests.unit import balancer as small
from tests.unit.balancer import balancer, claim, service
from xenoovs.agent.offload import FlowTotals, MegaflowCounters, OffloadSampler, RuleUse, SamplePace, parse_insertion
from xenoovs.agent.snapshot_builder import block_views
from xenoovs.agent.state import OffloadSample
from xenoovs.compile.program import Program
from xenoovs.datapath.megaflow import Verdict
from xenoovs.errors import SwitchUnreachable
from xenoovs.judge.expected import expected_services
from xenoovs.judge.findings import BlockOffload, OffloadFindings
from xenoovs.model.balancer import Protocol
from xenoovs.model.block_key import BlockKey, KeyField
from xenoovs.model.load import load_config
from xenoovs.openflow.flow import ObservedFlow
from xenoovs.show.snapshot import Counted, Insertion, Rate, hw_share

VERIFY = Path(__file__).parents[2] / "golden" / "verify"
DUMP = (VERIFY / "in_hardware.dump").read_text()


class TurnedClock:
    def __init__(self) -> None:
        self.time_s = 100.0

    def now_s(self) -> float:
        return self.time_s


def dns() -> Program:
    return compiled(load_config(VERIFY / "dns.yaml"))


@pytest.fixture
def clock() -> TurnedClock:
    return TurnedClock()


def watch_of(
    switch: FakeSwitch,
    clock: TurnedClock,
    program: Callable[[], Program | None] | None = None,
    *,
    is_always: bool = False,
) -> OffloadSampler:
    made, apart = dns(), RuleUse(lambda ports, is_brief: {}, lambda _: {})
    program, pace = program or (lambda: made), SamplePace()
    return OffloadSampler(switch, program=program, now_s=clock.now_s, pace=pace, rule_use=apart, is_always=is_always)


def hw_packets(sample: OffloadSample) -> int:
    return sum(each.hw_packets for each in sample.traffic.values())


def judged(watch: OffloadSampler) -> tuple[OffloadSample, OffloadFindings]:
    """Take a sample that has findings."""
    sample = watch.sample()
    assert sample is not None
    assert sample.findings is not None
    return sample, sample.findings


def line(ufid: str, packets: int, size: int) -> str:
    return f"ufid:{ufid}, in_port(p0),eth_type(0x0800), packets:{packets}, bytes:{size}, used:0.1s, dp:ovs, actions:p1"


A, B = "00000000-0000-0000-0000-00000000000a", "00000000-0000-0000-0000-00000000000b"


NO_UFID = "in_port(p0),eth_type(0x0800), packets:4, bytes:40, used:never, actions:p1"


@pytest.mark.parametrize(
    ("dumps", "growth"),
    [
        ([[line(A, 100, 10_000)], [line(A, 3, 300)]], line(A, 3, 300)),
        ([[line(A, 5, 500)], [], [line(A, 5, 500)]], line(A, 5, 500)),
        ([[line(A, 5, 500)], *[[line(B, 1, 100)]] * 2, [line(A, 6, 600)]], line(A, 6, 600)),
        ([[NO_UFID], [NO_UFID]], NO_UFID.replace("packets:4, bytes:40", "packets:0, bytes:0")),
        ([["flow-dump from the main thread:"]], "flow-dump from the main thread:"),
    ],
    ids=["made anew", "all were flushed", "it had expired", "told apart by its match", "a line of another form"],
)
def test_what_a_megaflow_grows_by(dumps: list[list[str]], growth: str) -> None:
    counters = MegaflowCounters()
    assert [list(counters.increments(dump)) for dump in dumps][-1] == [growth]


def test_the_totals_of_a_backend_outlive_that_it_has_no_blocks(clock: TurnedClock) -> None:
    """A backend that was down lost its counters, and they restarted from zero after its recovery."""
    balancer = load_config(VERIFY / "dns.yaml")
    names = [backend.name for backend in balancer.services[0].backends]
    programs = [compiled(balancer), compiled(balancer, ejected={"dns": frozenset(names[:1])})]
    switch = FakeSwitch(megaflows=DUMP)
    watch = watch_of(switch, clock, lambda: programs[0])
    before, _ = judged(watch)
    programs.pop(0)
    clock.time_s += 10
    now, _ = judged(watch)
    away = (balancer.services[0].name, names[0])
    assert before.traffic[away].hw_packets > 0
    assert now.traffic[away] == before.traffic[away]
    assert now.rates[away].pps == 0


def test_verdicts_and_rates_are_of_this_sample_and_totals_never_fall(clock: TurnedClock) -> None:
    """Counters are growth here: no packet since the last sample proves nothing about the rule of a block."""
    switch = FakeSwitch(megaflows="")
    watch = watch_of(switch, clock)
    before, findings = judged(watch)
    assert ({block.verdict for block in findings.blocks}, dict(before.rates)) == ({Verdict.ABSENT}, {})
    totals = []
    for switch.megaflows, verdict in ((DUMP, Verdict.HW), (DUMP, Verdict.HW), ("", Verdict.ABSENT), (DUMP, Verdict.HW)):
        clock.time_s += 10
        now, findings = judged(watch)
        assert {block.verdict for block in findings.blocks} == {verdict}
        totals.append(hw_packets(now))
        grown = totals[-1] - sum(totals[-2:-1])
        assert sum(rate.pps for rate in now.rates.values()) == grown / 10
        assert [rate.hw_pps for rate in now.rates.values()] == [rate.pps for rate in now.rates.values()]
    assert totals == [totals[0], totals[0], totals[0], 2 * totals[0]]
    assert totals[0] > 0


def test_megaflows_of_other_ports_are_left_out(clock: TurnedClock) -> None:
    watch = watch_of(FakeSwitch(megaflows=DUMP.replace("in_port(p0)", "in_port(other)")), clock)
    assert judged(watch)[1].outside == ()


def test_without_a_program_no_sample_is_taken(clock: TurnedClock) -> None:
    assert watch_of(FakeSwitch(megaflows=DUMP), clock, lambda: None).sample() is None


@pytest.mark.parametrize(
    ("asks", "is_always", "samples"),
    [(0, False, 0), (1, False, 1), (0, True, 1), (5, False, 3)],
    ids=["no request", "one request", "with metrics", "requests each second"],
)
def test_samples_are_taken_on_request_and_for_metrics_and_at_most_every_two_seconds(
    clock: TurnedClock, asks: int, samples: int, *, is_always: bool
) -> None:
    watch = watch_of(FakeSwitch(megaflows=DUMP), clock, is_always=is_always)
    assert looks_within(watch, asks=asks, step_s=1.0, clock=clock) == samples


def test_pauses_differ_by_up_to_a_tenth(clock: TurnedClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jitter: agents that were started together do not sample at the same time for ever."""

    async def turn(timeout_s: float, waiting: Coroutine[object, object, object]) -> None:
        waiting.close()
        clock.time_s += timeout_s
        raise asyncio.TimeoutError

    monkeypatch.setattr("xenoovs.agent.offload.within", turn)
    watch, pauses = watch_of(FakeSwitch(megaflows=DUMP), clock), set[float]()
    for _ in range(200):
        before_s = clock.time_s
        asyncio.run(watch._pause(0.0))
        pauses.add(round(clock.time_s - before_s, 6))
    interval_s = SamplePace().interval_s
    assert len(pauses) > 100
    assert 0.9 * interval_s <= min(pauses) < 0.95 * interval_s < max(pauses) <= interval_s


def test_a_switch_that_is_away_ends_nothing(clock: TurnedClock) -> None:
    switch = FakeSwitch(megaflows=DUMP)
    switch.fail_next(SwitchUnreachable(target="x", reason="away"))
    watch = watch_of(switch, clock, is_always=True)
    assert looks_within(watch, asks=3, step_s=4.0, clock=clock) == 2


def test_a_sample_that_waited_for_a_switch_delays_no_later_one(clock: TurnedClock) -> None:
    """As when ovs-vswitchd was stopped for 20 seconds: to keep to a part of the time would take 400."""
    switch = FakeSwitch(megaflows=DUMP)
    watch, hung = watch_of(switch, clock, is_always=True), [0.0, 0.0, 20.0, 0.0]
    take = watch.sample

    def sample() -> OffloadSample | None:
        clock.time_s += hung.pop(0) if hung else 0.0
        return take()

    watch.sample = sample  # type: ignore[method-assign]
    assert looks_within(watch, asks=12, step_s=2.0, clock=clock) > 6


def looks_within(watch: OffloadSampler, *, asks: int, step_s: float = 0.0, clock: TurnedClock | None = None) -> int:
    """Return the number of samples during `asks` requests, `step_s` of simulated time apart."""
    shown: list[OffloadSample] = []

    async def run() -> None:
        task = asyncio.create_task(watch.run(shown.append))
        looking = under_way(watch)
        for turn in range(max(asks, 1)):
            if clock is not None and turn:
                clock.time_s += step_s
            if asks:
                watch.request()
            await at_rest(looking)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
    return len(shown)


def under_way(watch: OffloadSampler) -> Callable[[], bool]:
    """Return whether a sample has begun and has not ended."""
    looks, look = [0], watch.sample

    def counted() -> OffloadSample | None:
        looks[0] += 1
        try:
            return look()
        finally:
            looks[0] -= 1

    watch.sample = counted  # type: ignore[method-assign]
    return lambda: looks[0] > 0


async def at_rest(is_looking: Callable[[], bool]) -> None:
    """Wait until all requested samples are done, however long a busy machine takes."""
    quiet = 0
    while quiet < 10:
        await asyncio.sleep(0.005)
        quiet = 0 if is_looking() else quiet + 1


_PROGRAM = compiled(balancer(service(claim())))


def _seen(program: Program, *, packets: int) -> list[ObservedFlow]:
    """Every flow with so many packets of 100 bytes."""
    return [ObservedFlow(flow, packets=packets, bytes=100 * packets, duration_s=1.0) for flow in program.flows]


def _sum(counted: dict[tuple[str, str], Counted]) -> Counted:
    return Counted(sum(one.packets for one in counted.values()), sum(one.bytes for one in counted.values()))


BLOCKS = sum(len(made.blocks) for made in _PROGRAM.services)


def test_what_has_been_added_is_counted_once_and_a_recreated_flow_lowers_no_total() -> None:
    counts = FlowTotals()
    totals = [
        _sum(dict(counts.add(_PROGRAM, _seen(_PROGRAM, packets=n), now_s=s)[0])) for s, n in enumerate((5, 5, 8, 3))
    ]
    assert totals == [Counted(n * BLOCKS, 100 * n * BLOCKS) for n in (5, 5, 8, 11)]


def test_rates_are_since_the_last_sample_and_have_no_path() -> None:
    counts = FlowTotals()
    assert counts.add(_PROGRAM, _seen(_PROGRAM, packets=10), now_s=0.0)[1] == {}
    _, rates = counts.add(_PROGRAM, _seen(_PROGRAM, packets=30), now_s=10.0)
    assert (sum(rate.pps for rate in rates.values()), sum(rate.bps for rate in rates.values())) == (
        2 * BLOCKS,
        1600 * BLOCKS,
    )
    assert hw_share(rates.values()) is None
    known = Rate(10.0, 5.0, 0.0)
    assert hw_share((known, replace(known, hw_pps=None))) == 0.5


@pytest.mark.parametrize(
    ("key", "field", "masks"),
    [
        (BlockKey(), "nw_src", [(0, 1), (1, 3), (3, 3)]),
        (BlockKey(KeyField.SOURCE_PORT), "tp_src", [(0, 1), (1, 3), (3, 3)]),
        (BlockKey(KeyField.SOURCE_PORT, (9, 8)), "tp_src", [(0, 0x200), (0x200, 0x300), (0x300, 0x300)]),
    ],
)
def test_blocks_are_described_by_their_field(key: BlockKey, field: str, masks: list[tuple[int, int]]) -> None:
    service = replace(small.service(small.claim(protocol=Protocol.UDP), 2, 1, 1), key=key)
    program = small.program(service).services[0]
    (expected,) = expected_services(small.program(service))
    verdicts = list(Verdict)[:3]
    found = [BlockOffload(block, verdict, ()) for block, verdict in zip(expected.blocks, verdicts, strict=True)]
    views = block_views(program, found)
    assert [(view.field, view.value, view.mask) for view in views] == [(field, *mask) for mask in masks]
    assert [(view.start, view.size) for view in views] == [(0, 0.5), (0.5, 0.25), (0.75, 0.25)]
    assert [view.verdict for view in views] == verdicts
    assert [view.verdict for view in block_views(program, ())] == [None] * 3


NOTHING_COUNTED = Insertion(None, None, None, 0, 0)
STATISTICS = """\
HW Offload stats:
     Total                 Enqueued offloads:       3
     Total                 Inserted offloads:    8283
     Total            CT uni-dir Connections:       0
     Total   Cumulative Average latency (us):   14882
     Total  Exponential Average latency (us):   14381
"""
"""As OVS-DOCA prints it."""
COVERAGE = """\
Event coverage, avg rate over last: 5 seconds, last minute, last hour,  hash=28fef6e8:
doca_pipe_resize           0.0/sec     0.000/sec        0.0000/sec   total: 25
doca_pipe_resize_over_10_ms   0.0/sec     0.000/sec        0.0000/sec   total: 30
datapath_drop_upcall_error   0.2/sec     0.017/sec        0.0003/sec   total: 4
doca_datapath_drop_upcall_error   0.0/sec     0.000/sec        0.0000/sec   total: 2
147 events never hit
"""


@pytest.mark.parametrize(
    ("statistics", "coverage", "found"),
    [
        (STATISTICS, COVERAGE, Insertion(3, 8283, 0.014381, 25, 6)),
        # 4.0 counts ports alone.
        ("HW Offload stats:\n  dummy[dummy@ovs-dummy]:\n    Offloaded port count:  5\n", "", NOTHING_COUNTED),
        ("", "\x1b]0;x\x07", NOTHING_COUNTED),
    ],
    ids=["OVS-DOCA", "4.0", "nothing"],
)
def test_what_is_counted_of_rules_for_the_nic(statistics: str, coverage: str, found: Insertion) -> None:
    assert parse_insertion(statistics, coverage) == found


def test_the_kernel_has_no_such_counters_and_is_not_asked_for_them() -> None:
    asked = []

    def read() -> tuple[str, ...]:
        asked.append(1)
        return STATISTICS, COVERAGE

    use = RuleUse(lambda ports, is_brief: {}, lambda _: {}, read)
    assert use.insertion(DUMP.splitlines()) is use.insertion([]) is None
    assert not asked
    assert use.insertion(["..., dp:ovs, actions:p1, dp-extra-info:miniflow_bits(4,1)"]) is not None
