"""The membership of an agent in a fleet: follows the store, saves the last view, and reports the state of the DPU."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from random import uniform
from typing import TYPE_CHECKING

from xenoovs import __version__
from xenoovs.agent.announce import bridge_problem
from xenoovs.agent.config_file import ConfigVersion
from xenoovs.agent.fleet_config import FleetCache, FleetConfig
from xenoovs.agent.health import FleetWatches, HealthChange
from xenoovs.agent.state import AgentState, OffloadSample, SamplesAsked
from xenoovs.agent.state_store import StateStore
from xenoovs.agent.tasks import within
from xenoovs.datapath.megaflow import Verdict
from xenoovs.decision.ejection import names_behind
from xenoovs.engine.engine import Engine
from xenoovs.errors import XenoovsError, first_names
from xenoovs.fleet.health import REPORT_S, Targets, targets_of
from xenoovs.fleet.plan import Memo, digest
from xenoovs.fleet.rollout import TOLERANCE, hw_share
from xenoovs.judge.findings import OffloadFindings
from xenoovs.log import info, warn
from xenoovs.model.balancer import Balancer, service_ids
from xenoovs.show.snapshot import FleetMembership
from xenoovs.store.view import FORMAT, MAX_ERROR, DpuStatus, FleetView
from xenoovs.switch.certificates import certificate_end_s

if TYPE_CHECKING:
    from xenoovs.store.client import DpuStatusClient, StoreClient

_REPORT_JITTER = 0.1
_READ_BACK_S = 10.0
"""Time between two dumps of the flows while this agent changes nothing, as in a pause."""
_CUT_OFF_S = 10.0
"""How long most backends may be unreachable until this DPU reports that it is not fit. If the backends are dead, votes
find that within seconds, and they no longer count."""
_OLDER_S = 5.0
"""How long the store may be older than the view in use until that is an error: a new relay may lag."""


class FleetMember:
    """Connects an agent to the store of its fleet. Its methods are for the event loop of the agent."""

    def __init__(
        self,
        agent: StateStore,
        engine: Engine,
        config: FleetConfig,
        name: str,
        store: StoreClient,
        states: DpuStatusClient | None,
        cache: FleetCache,
        certificate: Path | None = None,
        *,
        request_poll: Callable[[], None],
    ) -> None:
        """Make the agent a member. This ends local overrides, because the store decides about weights. `cache`: the
        file by which the last view survives a restart."""
        self._agent, self._engine, self._config, self._name = agent, engine, config, name
        self._request_poll = request_poll
        self._store, self._states, self._cache = store, states, cache
        self._certificate = certificate
        self._saved: FleetView | None = None
        self._status = DpuStatus(name, version=__version__, format=FORMAT)
        self._older: FleetView | None = None
        self._older_since_s = 0.0
        self._is_lost = self._is_refused = False
        self._woken = asyncio.Event()
        self._verdicts = VerdictReports()
        self._drift_s = 0.0
        self._is_due = True
        self._compared: tuple[ConfigVersion, FleetView | None] | None = None
        self._voter = FleetVoter()
        self._watched: FleetView | None = None
        self._cut_off_s: float | None = None
        self._news = agent.watch("round", "ports")
        self._follow_watches()
        self._publish()
        agent.subscribe(HealthChange, self._vote)
        agent.subscribe(OffloadSample, self._sampled)
        runtime = agent.state.runtime
        if runtime.overrides:
            names = [f"{each.service}/{each.backend}" for each in runtime.overrides]
            warn("overrides of this DPU have ended; the store of the fleet decides", backends=first_names(names))
            agent.dispatch(replace(runtime, overrides=()))

    def changed(self) -> None:
        """Use the newest view of the store, and report a lost connection."""
        self._changed()
        self._publish()

    def _changed(self) -> None:
        connection, view = self._store.connection, self._store.view()
        refusal = "" if self._states is None else self._states.connection.problem
        if bool(refusal) is not self._is_refused:
            self._is_refused = bool(refusal)
            if refusal:
                warn("the store refuses the reports of this DPU", reason=refusal)
            else:
                info("the store takes the reports of this DPU")
        if connection.is_connected == self._is_lost:
            self._is_lost = not connection.is_connected
            if self._is_lost:
                warn("store lost; what is installed stays", reason=connection.reason)
            else:
                info("store connected", remote=connection.remote)
        if view is None or view is self._config.newest or not view.intent:
            return
        if self._states is not None:
            self._states.dpus = len(view.dpus)
        if view.generation < self._generation:
            if self._older is None:
                warn("the view of the store is not taken; what is in use stays", reason=self._refusal_of(view))
                self._older_since_s = time.monotonic()
                asyncio.get_running_loop().call_later(_OLDER_S, self._woken.set)
            self._older = view
            return
        self._older = None
        self._config.offer(view)
        self._request_poll()

    def _publish(self) -> None:
        known = self._membership()
        if known != self._agent.state.fleet:
            self._agent.dispatch(known)

    def _membership(self) -> FleetMembership:
        connection = self._store.connection
        problem = connection.problem if connection.is_connected else connection.reason
        if self._older is not None and connection.is_connected:
            problem = self._refusal_of(self._older)
        lost_since_s = None if connection.is_connected else connection.since_s
        report_problem = ""
        if self._states is not None:
            states = self._states.connection
            report_problem = states.problem or states.reason
        newest = self._config.newest.generation
        withheld = self._not_wanted()
        return FleetMembership(self._name, self._generation, newest, lost_since_s, problem, report_problem, withheld)

    def _refusal_of(self, older: FleetView) -> str:
        view = self._config.good.view
        is_other = view is not None and "" != view.store_id != older.store_id
        who = "the store is another one than before" if is_other else "this DPU is ahead of the store"
        return (
            f"{who}: its generation {older.generation} is older than {self._generation}, which is in use; if it is to "
            f"be used, remove {self._cache.path} and restart the agent"
        )

    @property
    def _refused(self) -> str:
        """Return why the view of the store is not used; empty if it is."""
        is_settled = time.monotonic() - self._older_since_s >= _OLDER_S
        if self._older is None or not is_settled or not self._store.connection.is_connected:
            return ""
        return self._refusal_of(self._older)

    @property
    def _generation(self) -> int:
        view = self._config.good.view
        return 0 if view is None else view.generation

    def _follow_watches(self) -> None:
        view = self._config.good.view
        if view is not None and view is not self._watched:
            self._watched = view
            self._agent.dispatch(FleetWatches.of(view, self._name))

    def _vote(self, _: HealthChange) -> None:
        self._follow_cut_off()
        if self._states is not None and self._status.seen_ms:
            status = self._with_votes(self._status)
            if status != self._status:
                self._put(status)

    def _with_votes(self, status: DpuStatus) -> DpuStatus:
        state = self._agent.state
        if state.watches is None:
            return status
        is_fit = not (self._is_cut_off or bridge_problem(state, self._agent.now_s()))
        return replace(status, down=self._voter.down(state), voted=state.watches.generation, is_fit=is_fit)

    def _follow_cut_off(self) -> None:
        """Note since when this DPU reaches less than half of the targets."""
        if not self._voter.is_cut_off(self._agent.state):
            self._cut_off_s = None
        elif self._cut_off_s is None:
            self._cut_off_s = time.monotonic()
            # Wake the report when the time has passed.
            asyncio.get_running_loop().call_later(_CUT_OFF_S, self._woken.set)

    @property
    def _is_cut_off(self) -> bool:
        return self._cut_off_s is not None and time.monotonic() - self._cut_off_s >= _CUT_OFF_S

    def _not_wanted(self) -> str:
        """Return why the fleet keeps clients away from this DPU; empty if it does not."""
        dpu = self._config.newest.dpus.get(self._name)
        if dpu is not None and dpu.is_out:
            return (
                f"taken out of service; `xenoovs fleet drain-dpu {self._name} --end` on the host of the store ends it"
            )
        if dpu is not None and dpu.is_unfit and self._is_cut_off:
            return "this DPU alone cannot reach most backends"
        return ""

    def _put(self, status: DpuStatus) -> None:
        self._status = replace(status, seen_ms=int(time.time() * 1000))
        if self._states is not None:
            self._states.put(self._status)

    async def follow(self) -> None:
        """Publish, after each round, health and membership by the view in use. Never waits for a disk or a switch."""
        while True:
            await self._news.wait()
            self._news.clear()
            self._follow_watches()
            self._publish()
            self._woken.set()

    async def run(self) -> None:
        """Save the view and report the status after every round, and at the interval of reports."""
        self.changed()
        due_s, logged = time.monotonic(), ""
        while True:
            # Cleared before the report, so that a round that ends during it is reported next.
            self._woken.clear()
            self._follow_cut_off()
            self._publish()
            if (withheld := self._not_wanted()) and withheld != logged:
                warn("not ready: routers should send no clients here", reason=withheld)
            elif logged and not withheld:
                info("ready for clients again")
            logged = withheld
            await self._save()
            if time.monotonic() >= due_s:
                self._is_due = True
                due_s = time.monotonic() + REPORT_S * uniform(1 - _REPORT_JITTER, 1 + _REPORT_JITTER)  # noqa: S311
            await self._report()
            with suppress(asyncio.TimeoutError):
                await within(max(0.0, due_s - time.monotonic()), self._woken.wait())

    def _sampled(self, sample: OffloadSample) -> None:
        self._verdicts.add(sample)
        if self._awaited is not None or not self._status.sampled:
            self._woken.set()

    @property
    def _awaited(self) -> int | None:
        """Return the generation that the wave of this DPU waits for; None if the DPU is in no wave."""
        view = self._config.newest
        dpu = view.dpus.get(self._name)
        return view.ack if dpu is not None and dpu.wave <= view.wave else None

    async def _save(self) -> None:
        view = self._config.good.view
        if view is None or view is self._saved or self._agent.state.round.error:
            return
        try:
            await asyncio.to_thread(self._cache.save, view)
            self._saved = view
        except OSError as error:
            reason = error.strerror or error
            warn("the view of the store cannot be saved; after a reboot this DPU waits for the store", reason=reason)

    async def _report(self) -> None:
        if self._states is None:
            return
        now_ms = int(time.time() * 1000)
        # First, because votes may be reported during these waits.
        drift, ends_s = await self._drift(), self._status.certificate_ends_s
        if self._is_due and self._certificate is not None:
            ends_s = int(await asyncio.to_thread(certificate_end_s, self._certificate) or 0)
        before = self._status
        last = self._agent.state.round
        problems = [self._refused, str(self._config.problem or ""), last.error, *(each.text for each in last.problems)]
        error = "; ".join(dict.fromkeys(filter(None, problems)))[:MAX_ERROR]
        is_right = last.is_right
        generation, view = self._generation if is_right else before.applied, self._config.good.view
        status = replace(
            before,
            applied=generation,
            store=view.store_id if view is not None and is_right else before.store,
            commit=view.commit if view is not None and is_right else before.commit,
            applied_ms=now_ms if generation != before.applied else before.applied_ms,
            error=error,
            certificate_ends_s=ends_s,
            drift=drift,
        )
        awaited = self._awaited
        # A sample from before the bridge was right does not count, and the next periodic one may come minutes later.
        if awaited is not None or not before.sampled:
            self._agent.publish(SamplesAsked())
        status = self._verdicts.reported(status, is_due=self._is_due, ack=awaited)
        status = self._with_votes(status)
        if status != before or self._is_due:
            self._is_due = False
            self._put(status)

    async def _drift(self) -> dict[str, str]:
        """Return the digests of services whose flows differ from the decision in the store.

        A round compares the flows of the bridge with its decision. So after a new view that decision is compared with
        the store. The flows themselves are read with each periodic report, and while there is a difference, because
        16,000 flows take more than a second. A view that is not used counts too.
        """
        good, older, last, now_s = self._config.good, self._older, self._agent.state.round, time.monotonic()
        before = dict(self._status.drift)
        if last.last_s is None and not (last.error or last.held):
            # The first round compares the flows, and begins at once.
            return before
        # The first round has compared the flows too.
        is_first = self._compared is None
        is_quiet = not (before or last.held) and (is_first or not self._is_due)
        is_compared = self._compared is not None and self._compared[0] is good and self._compared[1] is older
        if is_compared and (is_quiet or (before and last.held and now_s < self._drift_s)):
            return before
        decision = self._engine.decided if is_quiet and last.is_right else None
        try:
            if decision is None:
                decision = (await asyncio.to_thread(self._engine.decision, good.balancer))[0]
            stored = good.stored if older is None else await asyncio.to_thread(self._config.stored_in, older)
        except XenoovsError:
            # The error of the round is reported, and so is a view that is not used.
            return before
        self._drift_s, self._compared = now_s + _READ_BACK_S, (good, older)
        ids, decided = service_ids(service.claim for service in good.balancer.services), dict(decision.services)
        found = {service.name: decided.get(ids[service.claim]) for service in good.balancer.services}
        differing = [name for name in found.keys() | stored.keys() if found.get(name) != stored.get(name)]
        digests = {name: (digest(name, found.get(name)), digest(name, stored.get(name))) for name in differing}
        return {name: read for name, (read, wanted) in digests.items() if read != wanted}


# Where megaflows run: reported with each periodic report, and soon while a wave waits.


def verdict_counts(findings: OffloadFindings) -> dict[str, int]:
    """Return the number of megaflows by verdict, for the blocks and answers that the NIC should forward. A block
    without a megaflow counts as one that is `ABSENT`."""
    counts = Counter[str]()
    for block in findings.nic_blocks:
        counts.update({verdict.value: count for verdict, count in block.verdicts.items()} or {Verdict.ABSENT.value: 1})
    for answers in findings.nic_answers:
        counts[answers.verdict.value] += answers.megaflows
    return {name: count for name, count in sorted(counts.items()) if count}


class VerdictReports:
    """Selects which of the last two offload samples a DPU reports."""

    def __init__(self) -> None:
        self._samples = deque[tuple[float, Mapping[str, int]]](maxlen=2)

    def add(self, sample: OffloadSample) -> None:
        """Add the next sample. A sample without megaflows is ignored, as of a switch that is read by OpenFlow alone."""
        if sample.findings is not None and sample.sampled_s is not None:
            self._samples.append((sample.sampled_s, verdict_counts(sample.findings)))

    def reported(self, status: DpuStatus, *, is_due: bool, ack: int | None) -> DpuStatus:
        """Return the status, with the newest verdicts if a report is due.

        A new megaflow is in software for a moment, so the better of two samples counts. The first sample of an agent is
        reported at once. `ack`: the generation that the wave of this DPU waits for; None if none.
        """
        since_s = status.applied_ms / 1000
        fresh = [verdicts for sampled_s, verdicts in reversed(self._samples) if sampled_s >= since_s]
        if not fresh:
            return status
        best = max(fresh, key=_share)
        is_awaited = ack is not None and status.applied >= ack and (status.sampled < ack or _differs(best, status))
        is_news = is_due or is_awaited or not status.sampled
        return replace(status, verdicts=best, sampled=status.applied) if is_news else status


def _share(verdicts: Mapping[str, int]) -> Fraction:
    share = hw_share(verdicts)
    return Fraction(1) if share is None else share


def _differs(verdicts: Mapping[str, int], status: DpuStatus) -> bool:
    now, before = hw_share(verdicts), hw_share(status.verdicts)
    if now is None or before is None:
        return now is not before
    return abs(now - before) > TOLERANCE


# Votes: the targets that this DPU cannot reach, by probes or because their ports are dead. They move no client here:
# the store decides.


class FleetVoter:
    """Finds the targets that a DPU cannot reach."""

    def __init__(self) -> None:
        self._memo = Memo()

    def down(self, state: AgentState) -> frozenset[str]:
        """Return the targets that this DPU cannot reach, among those whose witness it is."""
        witnessed = frozenset() if state.watches is None else state.watches.witnessed
        return frozenset(target for target in self._dark(state) if target in witnessed)

    def is_cut_off(self, state: AgentState) -> bool:
        """Return whether this DPU cannot reach more than half of the targets that are up by votes."""
        known_down = frozenset() if state.watches is None else state.watches.down
        up = self._targets(state.balancer).keys() - known_down
        return 2 * sum(target in up for target in self._dark(state)) > len(up)

    def _dark(self, state: AgentState) -> Iterator[str]:
        tracker, behind = state.tracker, names_behind(state.balancer.services, state.dead_ports)
        for target, names in self._targets(state.balancer).items():
            check = tracker.checks.by_backend.get(names[0])
            is_down = check is not None and not tracker.health[check].is_up
            if is_down or behind.issuperset(names):
                yield target

    def _targets(self, balancer: Balancer) -> Targets:
        (found,) = self._memo.each(targets_of, {"": (balancer.services, self._memo)}).values()
        return found
