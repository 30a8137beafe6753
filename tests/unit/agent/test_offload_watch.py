"""Looks at the hardware: totals that never fall, and how often anybody looks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from xenoovs.agent.offload_totals import Counters, grown
from xenoovs.agent.offload_watch import OffloadWatch, WatchPace
from xenoovs.agent.sighting import Sighting
from xenoovs.agent.snapshot import Traffic
from xenoovs.compile.program import Program, compile_program
from xenoovs.config.load import load_config
from xenoovs.errors import SwitchUnreachable
from xenoovs.switch.fake import FakeSwitch
from xenoovs.verify.verdict import Verdict

VERIFY = Path(__file__).parents[2] / "golden" / "verify"
DUMP = (VERIFY / "in_hardware.dump").read_text()


class TurnedClock:
    def __init__(self) -> None:
        self.time_s = 100.0

    def now_s(self) -> float:
        return self.time_s


def dns() -> Program:
    return compile_program(load_config(VERIFY / "dns.yaml"))


@pytest.fixture
def clock() -> TurnedClock:
    return TurnedClock()


def watch_of(
    switch: FakeSwitch, clock: TurnedClock, program: Callable[[], Program | None] | None = None
) -> OffloadWatch:
    made = dns()
    return OffloadWatch(switch, program=program or (lambda: made), clock=clock, pace=WatchPace())


def total(sighting: Sighting | None) -> Traffic:
    assert sighting is not None
    found = sighting.traffic.values()
    return Traffic(
        sum(t.hw_packets for t in found),
        sum(t.hw_bytes for t in found),
        sum(t.sw_packets for t in found),
        sum(t.sw_bytes for t in found),
    )


def line(ufid: str, packets: int, size: int) -> str:
    return f"ufid:{ufid}, in_port(p0),eth_type(0x0800), packets:{packets}, bytes:{size}, used:0.1s, dp:ovs, actions:p1"


A, B = "00000000-0000-0000-0000-00000000000a", "00000000-0000-0000-0000-00000000000b"


def test_a_counter_grows_by_the_difference() -> None:
    counters = Counters()
    assert list(grown([line(A, 5, 500)], counters)) == [line(A, 5, 500)]
    assert list(grown([line(A, 7, 900)], counters)) == [line(A, 2, 400)]


def test_a_megaflow_that_was_made_anew_counts_from_nothing() -> None:
    counters = Counters({A: (100, 10_000)})
    assert list(grown([line(A, 3, 300)], counters)) == [line(A, 3, 300)]


def test_what_idled_out_is_forgotten() -> None:
    counters = Counters()
    list(grown([line(A, 5, 500), line(B, 1, 100)], counters))
    list(grown([line(B, 1, 100)], counters))
    assert counters == {B: (1, 100)}


def test_a_datapath_without_ufids_is_told_apart_by_the_match() -> None:
    text, counters = "in_port(p0),eth_type(0x0800), packets:4, bytes:40, used:never, actions:p1", Counters()
    assert list(grown([text], counters)) == [text]
    assert list(grown([text], counters)) == [text.replace("packets:4, bytes:40", "packets:0, bytes:0")]


def test_a_line_of_another_form_is_handed_on() -> None:
    assert list(grown(["flow-dump from the main thread:"], Counters())) == ["flow-dump from the main thread:"]


def test_totals_never_fall_although_megaflows_go(clock: TurnedClock) -> None:
    switch = FakeSwitch(megaflows=DUMP)
    watch = watch_of(switch, clock)
    first = total(watch.look())
    assert first.hw_packets > 0
    clock.time_s += 10
    switch.megaflows = ""
    assert total(watch.look()) == first
    clock.time_s += 10
    switch.megaflows = DUMP
    assert total(watch.look()).hw_packets == 2 * first.hw_packets


def test_verdicts_and_rates_are_of_this_look(clock: TurnedClock) -> None:
    switch = FakeSwitch(megaflows="")
    watch = watch_of(switch, clock)
    before = watch.look()
    assert before is not None
    assert before.findings is not None
    assert {block.verdict for block in before.findings.blocks} == {Verdict.ABSENT}
    assert not before.rates
    clock.time_s += 10
    switch.megaflows = DUMP
    now = watch.look()
    assert now is not None
    assert now.findings is not None
    assert {block.verdict for block in now.findings.blocks} == {Verdict.HW}
    assert sum(rate.pps for rate in now.rates.values()) == total(now).hw_packets / 10
    assert [rate.hw_pps for rate in now.rates.values()] == [rate.pps for rate in now.rates.values()]


def test_megaflows_of_other_ports_are_left_out(clock: TurnedClock) -> None:
    watch = watch_of(FakeSwitch(megaflows=DUMP.replace("in_port(p0)", "in_port(other)")), clock)
    found = watch.look()
    assert found is not None
    assert found.findings is not None
    assert found.findings.ignored == ()


def test_without_a_program_there_is_nothing_to_look_for(clock: TurnedClock) -> None:
    assert watch_of(FakeSwitch(megaflows=DUMP), clock, lambda: None).look() is None


def test_nobody_looks_until_somebody_asks(clock: TurnedClock) -> None:
    shown = looks_within(watch_of(FakeSwitch(megaflows=DUMP), clock), asks=0)
    assert shown == 0


def test_a_question_makes_it_look(clock: TurnedClock) -> None:
    assert looks_within(watch_of(FakeSwitch(megaflows=DUMP), clock), asks=1) == 1


def test_with_metrics_it_looks_unasked(clock: TurnedClock) -> None:
    watch = watch_of(FakeSwitch(megaflows=DUMP), clock)
    watch.is_always = True
    assert looks_within(watch, asks=0) == 1


def test_while_somebody_watches_it_looks_every_two_seconds(clock: TurnedClock) -> None:
    watch = watch_of(FakeSwitch(megaflows=DUMP), clock)
    assert looks_within(watch, asks=5, step_s=1.0, clock=clock) == 3


def test_a_switch_that_is_away_ends_nothing(clock: TurnedClock) -> None:
    switch = FakeSwitch(megaflows=DUMP)
    switch.fail_next(SwitchUnreachable(target="x", reason="away"))
    watch = watch_of(switch, clock)
    watch.is_always = True
    assert looks_within(watch, asks=3, step_s=4.0, clock=clock) == 2


def looks_within(watch: OffloadWatch, *, asks: int, step_s: float = 0.0, clock: TurnedClock | None = None) -> int:
    """How many sightings are shown while somebody asks `asks` times, `step_s` of turned time apart."""
    shown: list[Sighting] = []

    async def run() -> None:
        task = asyncio.create_task(watch.forever(shown.append))
        for turn in range(max(asks, 1)):
            if clock is not None and turn:
                clock.time_s += step_s
            if asks:
                watch.asked()
            await asyncio.sleep(0.15)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
    return len(shown)
