"""Samples of hardware offload: totals, blocks as they are shown, and rules that the NIC does not use."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.compiled import compiled
from tests.fake_switch import FakeSwitch
from tests.unit import balancer as small
from tests.unit.balancer import balancer, claim, service
from xenoovs.agent.offload import INTERVAL_S, FlowTotals, MegaflowCounters, OffloadSampler, RuleUse, parse_insertion
from xenoovs.agent.snapshot_builder import block_views
from xenoovs.agent.state import AgentState, OffloadSample, RoundFacts, SamplesAsked
from xenoovs.agent.state_store import StateStore
from xenoovs.compile.program import Program
from xenoovs.datapath.host import CpuCounter, PortPackets
from xenoovs.datapath.megaflow import Verdict
from xenoovs.datapath.parse import scan_dump
from xenoovs.datapath.tc import TcCounters, TcFilter, cookie_of_ufid
from xenoovs.errors import ParseError, SwitchUnreachable
from xenoovs.judge.expected import expected_services
from xenoovs.judge.findings import BlockOffload, MegaflowState, OffloadFindings
from xenoovs.judge.offload import state_of
from xenoovs.model.balancer import Balancer, Protocol
from xenoovs.model.block_key import BlockKey, KeyField
from xenoovs.model.load import load_config
from xenoovs.openflow.flow import ObservedFlow
from xenoovs.show.snapshot import Counted, Insertion, Rate, hw_share

VERIFY = Path(__file__).parents[2] / "golden" / "verify"
DUMP = (VERIFY / "in_hardware.dump").read_text()
DNS = load_config(VERIFY / "dns.yaml")


class Watched:
    """A sampler, with a clock that the test turns. hung: how long the switch keeps each sample waiting."""

    def __init__(self, megaflows: str = DUMP, balancer: Balancer = DNS, *, is_always: bool = False) -> None:
        self.time_s, self.switch, self.hung = 100.0, FakeSwitch(megaflows=megaflows), list[float]()
        self.store = StateStore(AgentState(balancer, balancer), lambda: self.time_s)
        self.set(compiled(balancer))
        apart = RuleUse(lambda ports, is_brief: {}, lambda _: {})
        self.sampler = OffloadSampler(self.store, self.switch, apart, is_always=is_always)
        self._sample, self._under_way = self.sampler.sample, 0
        self.sampler.sample = self._counted  # type: ignore[method-assign]

    def set(self, program: Program | None) -> None:
        self.store.dispatch(RoundFacts(program))

    def _counted(self) -> OffloadSample | None:
        self._under_way += 1
        self.time_s += self.hung.pop(0) if self.hung else 0.0
        try:
            return self._sample()
        finally:
            self._under_way -= 1

    def judged(self) -> tuple[OffloadSample, OffloadFindings]:
        """Take a sample that has findings, ten seconds after the last one."""
        self.time_s += 10
        sample = self.sampler.sample()
        assert sample is not None
        assert sample.findings is not None
        return sample, sample.findings

    def samples(self, *, asks: int, step_s: float = 1.0) -> int:
        """Return the number of samples during `asks` requests, `step_s` of simulated time apart."""
        shown: list[OffloadSample] = []
        self.store.subscribe(OffloadSample, shown.append)

        async def run() -> None:
            task = asyncio.create_task(self.sampler.run())
            for turn in range(max(asks, 1)):
                self.time_s += step_s if turn else 0.0
                if asks:
                    self.store.publish(SamplesAsked())
                quiet = 0  # All requested samples are done, however long a busy machine takes.
                while quiet < 10:
                    await asyncio.sleep(0.005)
                    quiet = 0 if self._under_way else quiet + 1
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        asyncio.run(run())
        return len(shown)


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


def test_the_totals_of_a_backend_outlive_that_it_has_no_blocks() -> None:
    """A backend that was down lost its counters, and they restarted from zero after its recovery."""
    balancer = load_config(VERIFY / "dns.yaml")
    first = balancer.services[0].backends[0].name
    watched = Watched()
    before, _ = watched.judged()
    watched.set(compiled(balancer, ejected={"dns": frozenset({first})}))
    now, _ = watched.judged()
    assert before.traffic["dns", first].hw_packets > 0
    assert now.traffic["dns", first] == before.traffic["dns", first]
    assert now.rates["dns", first].pps == 0


def test_verdicts_and_rates_are_of_this_sample_and_totals_never_fall() -> None:
    """Counters are growth here: no packet since the last sample proves nothing about the rule of a block."""
    watched, totals = Watched(megaflows=""), list[int]()
    before, findings = watched.judged()
    assert ({block.verdict for block in findings.blocks}, dict(before.rates)) == ({Verdict.ABSENT}, {})
    for dump, verdict in ((DUMP, Verdict.HW), (DUMP, Verdict.HW), ("", Verdict.ABSENT), (DUMP, Verdict.HW)):
        watched.switch.megaflows = dump
        now, findings = watched.judged()
        assert {block.verdict for block in findings.blocks} == {verdict}
        totals.append(sum(each.hw_packets for each in now.traffic.values()))
        grown = totals[-1] - sum(totals[-2:-1])
        assert sum(rate.pps for rate in now.rates.values()) == grown / 10
        assert [rate.hw_pps for rate in now.rates.values()] == [rate.pps for rate in now.rates.values()]
    assert totals == [totals[0], totals[0], totals[0], 2 * totals[0]]
    assert totals[0] > 0


def test_megaflows_of_other_ports_are_left_out_and_without_a_program_no_sample_is_taken() -> None:
    assert Watched(DUMP.replace("in_port(p0)", "in_port(other)")).judged()[1].outside == ()
    unknown = Watched()
    unknown.set(None)
    assert unknown.sampler.sample() is None


@pytest.mark.parametrize(
    ("asks", "is_always", "samples"),
    [(0, False, 0), (1, False, 1), (0, True, 1), (5, False, 3)],
    ids=["no request", "one request", "with metrics", "requests each second"],
)
def test_samples_are_taken_on_request_and_at_most_every_two_seconds(
    asks: int, samples: int, *, is_always: bool
) -> None:
    assert Watched(is_always=is_always).samples(asks=asks) == samples


def test_pauses_differ_by_up_to_a_tenth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jitter: agents that were started together do not sample at the same time for ever."""
    watched, pauses = Watched(), list[float]()

    async def turn(timeout_s: float, waiting: Coroutine[object, object, object]) -> None:
        waiting.close()
        pauses.append(timeout_s / INTERVAL_S)
        watched.time_s += timeout_s

    monkeypatch.setattr("xenoovs.agent.offload.within", turn)
    for _ in range(200):
        asyncio.run(watched.sampler._pause(0.0))
    assert len({*pauses}) > 100
    assert 0.9 <= min(pauses) < 0.95 < max(pauses) <= 1


def test_a_switch_that_is_away_ends_nothing_and_delays_no_later_sample() -> None:
    """As when ovs-vswitchd was stopped for 20 seconds: to keep to a part of the time would take 400."""
    watched = Watched(is_always=True)
    watched.switch.fail_next(SwitchUnreachable(target="x", reason="away"))
    assert watched.samples(asks=3, step_s=4.0) == 2
    hanging = Watched(is_always=True)
    hanging.hung = [0.0, 0.0, 20.0, 0.0]
    assert hanging.samples(asks=12, step_s=2.0) > 6


_PROGRAM = compiled(balancer(service(claim())))


def _seen(program: Program, *, packets: int) -> list[ObservedFlow]:
    """Every flow with so many packets of 100 bytes."""
    return [ObservedFlow(flow, packets=packets, bytes=100 * packets, duration_s=1.0) for flow in program.flows]


BLOCKS = sum(len(made.blocks) for made in _PROGRAM.services)


def test_what_has_been_added_is_counted_once_and_a_recreated_flow_lowers_no_total() -> None:
    """Rates are since the last sample, and have no path."""
    counts, totals = FlowTotals(), list[Counted]()
    for number, packets in enumerate((50, 50, 80, 30)):
        counted, rates = counts.add(_PROGRAM, _seen(_PROGRAM, packets=packets), now_s=10.0 * number)
        sums = (sum(each) for each in zip(*((one.packets, one.bytes) for one in counted.values()), strict=True))
        totals.append(Counted(*sums))
    assert totals == [Counted(n * BLOCKS, 100 * n * BLOCKS) for n in (50, 50, 80, 110)]
    assert sum(rate.pps for rate in rates.values()) == 3 * BLOCKS
    assert sum(rate.bps for rate in rates.values()) == 8 * 300 * BLOCKS
    assert FlowTotals().add(_PROGRAM, _seen(_PROGRAM, packets=10), now_s=0.0)[1] == {}
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
    found = [BlockOffload(block, verdict, Counter()) for block, verdict in zip(expected.blocks, verdicts, strict=True)]
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


UFID = "43d31ab9-4e39-4fcc-bd80-4aaf34dc5a32"
COOKIE = cookie_of_ufid(UFID) or ""


@dataclass
class Nic:
    """One rule of p0, its counters, and the packets that the CPU got."""

    packets: int = 0
    hw_packets: int = 0
    cpu: int = 0
    entered: int = 0
    reads: list[str] = field(default_factory=list)
    counters: MegaflowCounters = field(default_factory=MegaflowCounters)

    def ports(self, ports: Iterable[str], *, is_brief: bool) -> Mapping[str, PortPackets]:
        entered = None if is_brief else self.entered
        return {port: PortPackets(self.cpu, CpuCounter.CPU, "rx", entered) for port in ports}

    def filters(self, devices: Iterable[str]) -> Mapping[str, TcFilter]:
        self.reads += devices
        counters = TcCounters(self.packets, 100 * self.packets, self.hw_packets, 100 * self.hw_packets)
        return {COOKIE: TcFilter("ip", 2, 0, 1, COOKIE, in_hw=True, counters=counters)}

    def sample(self, use: RuleUse) -> MegaflowState:
        """Return the state of the rule in one sample."""
        use.begin()
        lines = [
            f"ufid:{UFID}, in_port(p0),eth_type(0x0800), packets:{self.packets}, bytes:{100 * self.packets}, "
            "used:0.1s, offloaded:yes, dp:tc, actions:p1"
        ]
        increments = tuple(self.counters.increments(lines))
        context = use.evidence(lines, increments)
        [megaflow] = scan_dump(increments)
        assert not isinstance(megaflow, ParseError)
        state = state_of(megaflow, context.filters, context.before, context.contradicted)
        assert state is not None
        return state


Growth = dict[str, int]
UNUSED: Growth = {"packets": 224, "cpu": 224}
# What counters grow by before each sample, the verdicts, and whether traffic control was read.
SAMPLED: dict[str, tuple[list[Growth], list[Verdict], bool]] = {
    "ports agree": ([{"packets": 1000, "hw_packets": 1000}] * 4, [Verdict.HW] * 4, False),
    # After a reset of the NIC, the page and the metrics still showed 100 % in hardware.
    "not used, and used again": (
        [*[UNUSED] * 3, {"packets": 500, "hw_packets": 500}],
        [Verdict.HW, Verdict.IDLE_HW, Verdict.IDLE_HW, Verdict.HW],
        True,
    ),
    # Half of the packets were shown as in hardware, and none was.
    "counted by traffic control, and the wire contradicts": (
        [{"packets": 448, "hw_packets": 224, "cpu": 224, "entered": 224}] * 4,
        [Verdict.HW, Verdict.TC_SW, Verdict.CONTRADICTED, Verdict.CONTRADICTED],
        True,
    ),
    "counted, and the CPU contradicts": (
        [{"packets": 224, "hw_packets": 224, "cpu": 224}] * 3,
        [Verdict.HW, Verdict.CONTRADICTED, Verdict.CONTRADICTED],
        True,
    ),
}


@pytest.mark.parametrize("name", SAMPLED)
def test_rules_that_the_nic_does_not_use_are_found_from_the_second_sample_on(name: str) -> None:
    growths, verdicts, is_read = SAMPLED[name]
    nic = Nic(packets=1000, hw_packets=1000)
    use, found = RuleUse(nic.ports, nic.filters), list[MegaflowState]()
    nic.sample(use)
    for growth in growths:
        for counter, packets in growth.items():
            setattr(nic, counter, getattr(nic, counter) + packets)
        found.append(nic.sample(use))
    assert ([state.verdict for state in found], bool(nic.reads)) == (verdicts, is_read)
    if name.startswith("not used"):
        assert [(state.packets, state.hw_packets) for state in found[1:]] == [(224, 0), (224, 0), (500, 500)]


def test_packets_of_32_bits_that_wrap_are_counted_on() -> None:
    """Open vSwitch reads them in 32 bits; at 100 million packets a second they wrap each 43 s."""
    counters = MegaflowCounters()

    def increment(packets: int, size: int) -> str:
        [line] = counters.increments([f"ufid:{UFID}, in_port(p0), packets:{packets}, bytes:{size}, used:0.1s"])
        return line.partition(", packets:")[2].partition(", used")[0]

    increment(4_294_967_290, 429_496_729_000)
    assert increment(994, 429_496_829_000) == "1000, bytes:100000"
    # Installed again, with larger packets.
    assert increment(5, 500_000_000_000) == "5, bytes:500000000000"
