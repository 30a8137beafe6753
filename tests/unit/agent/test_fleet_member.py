"""A DPU of a fleet: its reports, probes and votes, and what the page of a fleet finds over time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from ipaddress import IPv4Address
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.command_line import SMALL_CONFIG
from tests.compiled import compiled
from tests.fleet_support import EMPTY, MORE, given, settled
from tests.unit import balancer as small
from tests.unit.store.test_cluster import LEADER, facts
from xenoovs.agent import fleet
from xenoovs.agent.fleet import FleetVoter, VerdictReports, verdict_counts
from xenoovs.agent.fleet_config import FleetCache
from xenoovs.agent.health import SELF_CHECK_MS, FleetWatches, fleet_checks
from xenoovs.agent.probe.check import Check, ProbeResult
from xenoovs.agent.state import (
    AgentState,
    ConfigFollowed,
    OffloadSample,
    Probed,
    RoundFacts,
    SamplesAsked,
    Tick,
    after,
    step,
)
from xenoovs.agent.state_store import StateStore
from xenoovs.decision.decide import decide
from xenoovs.decision.decision import Decision, DesiredState
from xenoovs.errors import SwitchError
from xenoovs.fleet import watch as fleet_watch
from xenoovs.fleet.controller import ActiveSign
from xenoovs.fleet.watch import FleetWatch
from xenoovs.judge.expected import expected_services
from xenoovs.judge.findings import OffloadFindings
from xenoovs.judge.offload import check_dump
from xenoovs.model.address import Mac
from xenoovs.model.balancer import Health, ProbeKind, Protocol
from xenoovs.model.load import load_config
from xenoovs.model.next_hop import Direct
from xenoovs.store.client import DpuStatusReader, StoreClient, StoreConnection
from xenoovs.store.servers import ServerFacts
from xenoovs.store.view import Dpu, DpuStatus, FleetView, Watch

VERIFY = Path(__file__).parents[2] / "golden" / "verify"
SERVICES = expected_services(compiled(load_config(VERIFY / "dns.yaml")))
DUMP = (VERIFY / "in_hardware.dump").read_text()
STATUS = DpuStatus("dpu1", applied=5, applied_ms=100_000)


def findings(dump: str) -> OffloadFindings:
    return check_dump(SERVICES, tuple(dump.splitlines()))


GOOD, IDLE = findings(DUMP), findings("")
BAD = findings(DUMP.replace("offloaded:yes, dp:tc", "dp:ovs"))


def test_megaflows_are_counted_by_verdict_and_blocks_without_one_as_absent() -> None:
    good, bad, idle = map(verdict_counts, (GOOD, BAD, IDLE))
    assert (set(good), bad, set(idle)) == ({"HW"}, {"SW": good["HW"]}, {"ABSENT"})


def test_a_sample_is_reported_for_its_generation_alone_and_outside_of_a_wave_with_the_periodic_report() -> None:
    reports = VerdictReports()
    for useless in (OffloadSample(None, 101), OffloadSample(GOOD, 99.9)):
        reports.add(useless)
        assert reports.reported(STATUS, is_due=True, ack=5) == STATUS
    reports.add(OffloadSample(GOOD, 100.1))
    # The first ones of an agent are reported at once.
    first = reports.reported(STATUS, is_due=False, ack=None)
    assert first == replace(STATUS, verdicts=verdict_counts(GOOD), sampled=5)
    later = replace(first, applied=6)
    # None waits for it; or a wave waits for a generation that this DPU does not have yet.
    assert reports.reported(later, is_due=False, ack=None) == reports.reported(later, is_due=False, ack=7) == later
    assert reports.reported(later, is_due=True, ack=None).sampled == 6


def test_in_a_wave_the_first_verdicts_are_reported_at_once_and_then_a_share_that_changes() -> None:
    reports, status = VerdictReports(), STATUS
    # A count that wobbles is no other share. One sample may meet a megaflow that was made a moment ago.
    fewer = findings("".join(DUMP.splitlines(keepends=True)[:-1]))
    assert verdict_counts(fewer) != verdict_counts(GOOD)
    samples = ((GOOD, GOOD), (fewer, GOOD), (fewer, GOOD), (BAD, GOOD), (BAD, BAD), (IDLE, IDLE))
    for taken_s, (found, reported) in enumerate(samples, 101):
        reports.add(OffloadSample(found, taken_s))
        status = reports.reported(status, is_due=False, ack=5)
        assert status.verdicts == verdict_counts(reported), taken_s


REACHED = StoreConnection(is_connected=True, remote="unix:store", since_s=0.0)


def refuse(*_: object) -> None:
    raise SwitchError("no bridge")


class Member:
    """A DPU without switch and store. `read`: reads the decision from its flows. `put`: its reports."""

    def __init__(
        self,
        path: Path,
        *,
        read: Callable[[object], object] = refuse,
        last_s: float | None = None,
        dpu: Dpu | None = None,
        refusal: str = "",
    ) -> None:
        self.put, self.agent = list[DpuStatus](), StateStore(AgentState(BALANCER, BALANCER))
        self.agent.dispatch(RoundFacts(last_s=last_s))
        view = None if last_s is None else FleetView("test", 1, 5, 1, 0)
        newest = FleetView("test", 1, 0, 0, 0, dpus={} if dpu is None else {"dpu1": dpu})
        good = SimpleNamespace(view=view, balancer=SimpleNamespace(services=()), stored={})
        config: Any = SimpleNamespace(good=good, newest=newest, problem=None)
        reached = replace(REACHED, problem=refusal)
        store: Any = SimpleNamespace(connection=reached, view=lambda: None, put=self.put.append)
        engine: Any = SimpleNamespace(decided=None, decision=read)
        cache = FleetCache(path / "cache")
        self._member = fleet.FleetMember(
            self.agent, engine, config, "dpu1", store, store, cache, request_poll=lambda: None
        )
        self.changed = self._member.changed

    def run(self, end: Callable[[], bool]) -> None:
        """Let it report until `end`, with a round every few milliseconds that changes nothing."""

        async def report() -> None:
            tasks = [asyncio.create_task(self._member.follow()), asyncio.create_task(self._member.run())]
            while not end():
                self.agent.dispatch(replace(self.agent.state.round))
                await asyncio.sleep(0.005)
            for task in tasks:
                task.cancel()

        asyncio.run(report())


def test_a_dpu_on_which_nothing_changes_reports_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round restarted the report timer, so every quiet DPU counted as silent after three minutes."""
    monkeypatch.setattr(fleet, "REPORT_S", 0.1)
    member = Member(tmp_path)
    member.run(lambda: len(member.put) > 2)
    assert {each.name for each in member.put} == {"dpu1"}
    assert sorted({each.seen_ms for each in member.put}) == [each.seen_ms for each in member.put]


def test_a_refusal_of_the_reports_is_shown_and_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    member = Member(tmp_path, refusal="no right")
    member.run(lambda: bool(member.put))
    member.changed()
    assert member.agent.state.fleet is not None
    assert member.agent.state.fleet.report_problem == "no right"
    assert [each.message for each in caplog.records].count("the store refuses the reports of this DPU") == 1


@pytest.mark.parametrize(
    ("is_out", "is_unfit", "is_dark", "reason"),
    [
        (
            True,
            False,
            False,
            "taken out of service; `xenoovs fleet drain-dpu dpu1 --end` on the host of the store ends it",
        ),
        (False, True, True, "this DPU alone cannot reach most backends"),
        # It reaches them again; or, as for all others, the controller does not call it unfit.
        (False, True, False, ""),
        (False, False, True, ""),
    ],
)
def test_a_dpu_that_is_out_of_service_or_alone_cut_off_wants_no_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_out: bool, is_unfit: bool, is_dark: bool, reason: str
) -> None:
    for name, value in (("REPORT_S", 0.1), ("_CUT_OFF_S", 0.0)):
        monkeypatch.setattr(fleet, name, value)
    monkeypatch.setattr(FleetVoter, "is_cut_off", lambda _voter, _state: is_dark)
    member = Member(tmp_path, dpu=Dpu("dpu1", frozenset(), is_out=is_out, is_unfit=is_unfit))
    member.run(lambda: len(member.put) > 1)
    assert member.agent.state.fleet is not None
    assert member.agent.state.fleet.withheld == reason


def test_bug_an_agent_that_started_out_of_service_logged_so_before_its_events_were_recorded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """`xenoovs logs` had no event that says why routers should send no clients."""
    event = "not ready: routers should send no clients here"
    member = Member(tmp_path, dpu=Dpu("dpu1", frozenset(), is_out=True))
    assert event not in caplog.messages
    member.run(lambda: bool(member.put))
    assert caplog.messages.count(event) == 1


def test_bug_an_agent_whose_first_sample_was_too_old_reported_its_megaflows_minutes_later(tmp_path: Path) -> None:
    """No roll-out could compare with it until then: with samples of one second, the next one came after 200 s."""
    member, begun_s, asked, taken = Member(tmp_path, last_s=1.0), time.time(), list[SamplesAsked](), 0
    member.agent.subscribe(SamplesAsked, asked.append)

    def has_reported() -> bool:
        nonlocal taken
        if member.put and member.put[-1].sampled:
            return True
        if asked:
            # Each request gives one sample. The first two began before the bridge was right.
            asked.clear()
            taken += 1
            member.agent.dispatch(OffloadSample(GOOD, begun_s - 1 if taken < 3 else time.time() + 1))
        return False

    member.run(has_reported)
    assert (member.put[-1].applied, member.put[-1].sampled, taken) == (5, 5, 3)


def test_bug_votes_waited_while_flows_were_read_for_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read of 3 s made a vote 2.4 s late, and it may take a minute."""
    monkeypatch.setattr(fleet, "REPORT_S", 0.1)
    voted, reads, may_go_on = set[str](), list[object](), threading.Event()
    monkeypatch.setattr(FleetVoter, "down", lambda _voter, _state: frozenset(voted))
    monkeypatch.setattr(FleetVoter, "is_cut_off", lambda _voter, _state: False)

    def read(balancer: object) -> None:
        reads.append(balancer)
        if len(reads) > 1:
            may_go_on.wait()
        raise SwitchError("no bridge")

    def has_voted() -> bool:
        if len(reads) > 1 and not voted:
            voted.add("t")
            check = next(iter(member.agent.state.tracker.health))
            member.agent.dispatch(*[Probed(check, FAILED, 0.0)] * check.health.fall)
            # The read still goes on.
            assert member.put[-1].down == {"t"}
            may_go_on.set()
        return bool(voted)

    member = Member(tmp_path, read=read, last_s=1.0)
    member.run(has_voted)


TARGETS = ["192.0.2.1/tcp/80", "192.0.2.2/tcp/80"]
WEB = small.service(small.claim(IPv4Address("203.0.113.1"), protocol=Protocol.TCP, ports=[(80, 80)]), 1, 1, name="web")
BACKENDS = (
    replace(WEB.backends[0], address=IPv4Address("192.0.2.1")),
    replace(WEB.backends[1], address=IPv4Address("192.0.2.2"), next_hop=Direct(Mac(2), "p2")),
)
BALANCER = small.balancer(replace(WEB, health=Health(ProbeKind.TCP, 80), backends=BACKENDS))
STORED = {"web": decide(Decision(), DesiredState(BALANCER)).services[0][1]}
FAILED = ProbeResult(ok=False, latency_s=0.1, reason="no answer")


def view(*, witness_of: int = 1, down: tuple[int, ...] = ()) -> FleetView:
    """A view in which d1 is a witness of the first targets."""
    watches = {
        target: Watch(target, frozenset(["d1"] if n < witness_of else ["d2"]), n in down, 0, 5)
        for n, target in enumerate(TARGETS)
    }
    return FleetView("test", 1, 5, 1, 0, watches=watches)


def following(seen: FleetView) -> AgentState:
    state = AgentState(BALANCER, BALANCER)
    watched = FleetWatches.of(seen, "d1")
    return after(state, watched, ConfigFollowed(BALANCER, stored=STORED), now_s=0)


def test_checks_that_were_made_one_after_the_other_are_those_of_the_last_state() -> None:
    """They stay where nothing changes, as most generations change none of thousands."""
    state, (service,) = following(view()), BALANCER.services
    lighter = replace(service, backends=(replace(service.backends[0], weight=Fraction(9)), service.backends[1]))
    other = replace(service, name="other", claim=replace(service.claim, ports=()))
    moved = replace(service, backends=(service.backends[0], replace(service.backends[1], address=IPv4Address(1))))
    unchecked = replace(moved, health=None)
    for services in ((lighter,), (lighter, other), (moved, other), (moved,), (unchecked,), (service,)):
        for seen in (view(), view(witness_of=2), view(down=(0,))):
            watches, balancer = FleetWatches.of(seen, "d1"), replace(BALANCER, services=services)
            state = after(state, watches, ConfigFollowed(balancer, stored=STORED), now_s=0)
            assert state.tracker.checks == fleet_checks(balancer, watches)
            followed = after(state, watches, ConfigFollowed(balancer, stored=STORED), now_s=0)
            assert followed.tracker.checks is state.tracker.checks
            assert set(state.tracker.health) == set(state.tracker.checks.backends)


def failing(state: AgentState, backend: str, *, times: int) -> AgentState:
    check = state.tracker.checks.by_backend["web", backend]
    return after(state, *[Probed(check, FAILED, 0.0)] * times, now_s=1)


def test_a_witness_probes_at_the_interval_of_the_service_and_others_seldom() -> None:
    state = following(view())
    checks = state.tracker.checks.by_backend
    assert checks["web", "b0"].health.interval_ms == 1000
    assert checks["web", "b1"].health.interval_ms == checks["web", "b1"].health.fast_interval_ms == SELF_CHECK_MS
    assert state.is_settled
    assert not state.tracker.is_settled

    state, effects = step(state, FleetWatches.of(view(witness_of=2), "d1"), 1.0)
    assert state.tracker.checks.by_backend["web", "b1"].health.interval_ms == 1000
    # The first one is unchanged.
    assert [each.health.interval_ms for each in effects if isinstance(each, Check)] == [1000]


def test_it_votes_on_its_own_targets_and_moves_no_client() -> None:
    state, voter = following(view()), FleetVoter()
    assert voter.down(state) == frozenset()
    state = failing(failing(state, "b0", times=3), "b1", times=3)
    assert voter.down(state) == {TARGETS[0]}
    state = after(state, Tick(), now_s=2)
    assert state.ejected == {}
    assert state.ramps(2) == {}
    # Ejections of the fleet are shown, whatever this DPU votes.
    other = decide(Decision(), DesiredState(BALANCER, {"web": frozenset({"b1"})})).services[0][1]
    state = after(state, ConfigFollowed(BALANCER, stored={"web": other}), Tick(), now_s=3)
    assert state.ejected == {"web": frozenset({"b1"})}


def test_a_dead_port_is_a_vote_as_a_failed_probe_is() -> None:
    state = after(following(view(witness_of=2)), Tick(frozenset({"p2"})), now_s=1)
    assert (FleetVoter().down(state), FleetVoter().is_cut_off(state)) == (frozenset(TARGETS[1:]), False)
    assert FleetVoter().is_cut_off(after(state, Tick(frozenset({"p1", "p2"})), now_s=2))
    # Probes of one of two targets fail, and of both.
    state = failing(following(view()), "b0", times=3)
    assert not FleetVoter().is_cut_off(state)
    assert FleetVoter().is_cut_off(failing(state, "b1", times=3))


def test_a_new_witness_votes_as_the_fleet_until_it_has_probed() -> None:
    state, voter = following(view(witness_of=2, down=(1,))), FleetVoter()
    answered = Probed(state.tracker.checks.by_backend["web", "b1"], replace(FAILED, ok=True), 0.0)
    votes = []
    for _ in range(3):
        votes.append(voter.down(state))
        state = after(state, answered, now_s=1)
    assert votes == [{TARGETS[1]}, {TARGETS[1]}, frozenset()]


class SeenStore:
    """Stands for both clients of a store, and for the clock."""

    def __init__(self, view: FleetView) -> None:
        self.newest, self.connection, self.now_s = view, REACHED, 0.0

    def view(self) -> FleetView:
        return self.newest

    def statuses(self) -> dict[str, DpuStatus]:
        return {
            name: DpuStatus(name, applied=self.newest.generation, seen_ms=int(time.time() * 1000))
            for name in self.newest.dpus
        }

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> SeenStore:
    dpus = {"dpu1": Dpu("dpu1", frozenset(), wave=1), "dpu2": Dpu("dpu2", frozenset())}
    made = SeenStore(settled(given(replace(EMPTY, dpus=dpus), SMALL_CONFIG)))
    monkeypatch.setattr(fleet_watch, "time", SimpleNamespace(time=time.time, monotonic=made.monotonic))
    monkeypatch.setattr(fleet_watch, "host_facts", lambda _directory, *, reads_files: ())
    return made


@pytest.fixture
def watch(store: SeenStore, tmp_path: Path) -> FleetWatch:
    return FleetWatch(cast(StoreClient, store), cast(DpuStatusReader, store), tmp_path)


def stalls(watch: FleetWatch, store: SeenStore, times: range) -> list[float]:
    return [store.now_s for store.now_s in times if watch.snapshot().is_stalled]


def test_a_change_that_no_controller_decides_about_is_overdue(
    store: SeenStore, watch: FleetWatch, tmp_path: Path
) -> None:
    store.newest = given(store.newest, MORE)
    assert stalls(watch, store, range(0, 25, 5)) == [20]
    problem = "no controller has decided about the newest change: is `xenoovs fleet serve` running?"
    assert watch.snapshot().problems == (problem,)
    # A lost store restarts the timer.
    store.connection = replace(REACHED, is_connected=False, reason="gone")
    assert stalls(watch, store, range(25, 30, 5)) == []
    store.connection = REACHED
    assert stalls(watch, store, range(30, 55, 5)) == [50]
    store.newest = settled(store.newest)
    assert (watch.snapshot().is_stalled, watch.snapshot().problems) == (False, ())
    # On the host of the server that leads.
    store.connection = replace(REACHED, is_leader=True)
    assert "no controller is active on this host" in watch.snapshot().problems[0]
    ActiveSign(tmp_path).show(is_active=True)
    assert watch.snapshot().problems == ()


def test_a_gap_in_the_file_of_a_server_is_a_problem_and_files_are_read_once_a_minute(
    store: SeenStore, watch: FleetWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only `fleet status` read the files."""
    read, gap = list[int](), "record 3 is missing"

    def host_facts(_directory: Path, *, reads_files: bool) -> tuple[ServerFacts, ...]:
        read.extend([int(store.now_s)] * reads_files)
        return (facts(LEADER, gap=gap if reads_files else ""),)

    monkeypatch.setattr(fleet_watch, "host_facts", host_facts)
    for store.now_s in range(0, 60, 5):
        assert any("has a gap, as after a full disk" in problem for problem in watch.snapshot().problems)
    gap = ""
    store.now_s = 60
    assert not any("has a gap" in problem for problem in watch.snapshot().problems)
    assert read == [0, 60]


def test_bug_votes_of_a_majority_that_no_controller_wrote_were_no_problem(store: SeenStore, watch: FleetWatch) -> None:
    names = frozenset(store.newest.dpus)
    target, number = "192.0.2.1/tcp/80", store.newest.generation
    store.newest = replace(store.newest, watches={target: Watch(target, names, False, 0, number)})
    votes = {name: DpuStatus(name, applied=number, voted=number, down=frozenset({target})) for name in names}
    store.statuses = lambda: votes  # type: ignore[method-assign]
    assert stalls(watch, store, range(0, 25, 5)) == [20]
    problem = f"no controller has written that {target} is down: of 2 witnesses 2 say down"
    assert problem in watch.snapshot().problems[0]
