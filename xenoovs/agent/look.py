"""A look at a running agent: what its parts know, put together."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from xenoovs.agent.block_views import block_views
from xenoovs.agent.check import Check, uses_of
from xenoovs.agent.desired import Names
from xenoovs.agent.snapshot import BlockView, Glance, Snapshot
from xenoovs.agent.tally import Found, Installed, Kept, found_of, installed_of
from xenoovs.agent.view import HealthView, Seen, service_views

if TYPE_CHECKING:
    from xenoovs.agent.asking import Answer
    from xenoovs.agent.daemon import Agent
    from xenoovs.agent.watch import Watch
    from xenoovs.compile.program import Program
    from xenoovs.model.balancer import Balancer
    from xenoovs.verify.findings import BlockOffload, OffloadFindings


class Looker:
    """Looks at one agent. What depends only on its config, program or last look is made once for each of these."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._checks: Kept[Balancer, Mapping[Check, list[Names]]] = Kept(_checks_of)
        self._flows: Kept[Program, int] = Kept(lambda program: len(program.flows))
        self._installed: Kept[Program, dict[str, Installed]] = Kept(installed_of)
        self._found: Kept[OffloadFindings, Found] = Kept(found_of)
        self._by_service: Kept[OffloadFindings, Mapping[str, list[BlockOffload]]] = Kept(_by_service)

    def glance(self) -> Glance:
        """Within the event loop of the agent, for which thousands of backends would take too long."""
        taken = self._taken()
        return Glance(lambda: self._snapshot(taken), lambda service: self._blocks(taken, service))

    def _taken(self) -> _Taken:
        agent, desired = self._agent, self._agent.desired
        config = agent.config.balancer
        # A config may have been accepted since; then the round that aims at it is still to come.
        used = desired.balancer if desired.config is config else config
        seen = Seen(
            config=config,
            desired=used,
            out=desired.out,
            overrides=agent.operator.overrides,
            ramps=desired.ramps,
            offload=agent.offload,
            moved=dict(agent.report.moved),
        )
        return _Taken(
            facts=_facts(agent),
            seen=seen,
            program=agent.reconciler.program,
            watch=agent.aim.watch.copy(),
            answers=dict(agent.asker.answers),
            ahead_s=time.time() - agent.clock.now_s(),
        )

    def _snapshot(self, taken: _Taken) -> Snapshot:
        program, findings = taken.program, _findings(taken)
        seen = replace(
            taken.seen,
            installed={} if program is None else self._installed.of(program),
            found=Found() if findings is None else self._found.of(findings),
            health=_health(taken, self._checks.of(taken.seen.config)),
        )
        flows = 0 if program is None else self._flows.of(program)
        return replace(taken.facts, services=service_views(seen), flows=flows)

    def _blocks(self, taken: _Taken, service: str) -> tuple[BlockView, ...]:
        findings, services = _findings(taken), () if taken.program is None else taken.program.services
        made = next((made for made in services if made.service.name == service), None)
        if made is None:
            return ()
        return block_views(made, () if findings is None else self._by_service.of(findings).get(service, ()))


@dataclass(frozen=True, slots=True)
class _Taken:
    """What a glance is made of; nothing in it changes any more.

    facts:   a snapshot without services and flows; seen: without what has to be made of the others.
    ahead_s: what the time of day is ahead of the agent's clock.
    """

    facts: Snapshot
    seen: Seen
    program: Program | None
    watch: Watch
    answers: Mapping[Check, Answer]
    ahead_s: float


def _findings(taken: _Taken) -> OffloadFindings | None:
    return None if taken.seen.offload is None else taken.seen.offload.findings


def _facts(agent: Agent) -> Snapshot:
    config, report = agent.config, agent.report
    return Snapshot(
        bridge=config.balancer.uplinks.label,
        config_path=str(config.path),
        config_digest=config.digest,
        started_s=agent.started_s,
        now_s=time.time(),
        services=(),
        is_paused=agent.operator.runtime.is_paused,
        config_problem=str(config.problem or ""),
        last_error=report.last_error,
        rounds=report.rounds,
        flow_mods=report.flow_mods,
        foreign=report.foreign,
        reloads=agent.reloader.reloads,
        last_round_s=report.last_round_s,
        confirm_by_s=agent.reloader.confirm_by_s,
        verified_s=None if agent.offload is None else agent.offload.seen_s,
        overrides=agent.operator.overrides,
        events=agent.events.since(0),
        held=report.held,
        ports=agent.ports(),
        ports_problem=agent.ports_problem(),
        candidate=config.newer,
        goes_back_to=agent.reloader.goes_back_to,
    )


def _health(taken: _Taken, checks: Mapping[Check, list[Names]]) -> dict[Names, HealthView]:
    found = dict[Names, HealthView]()
    for check, users in checks.items():
        standing, answer = taken.watch.standing_of(check), taken.answers.get(check)
        if standing is not None and answer is not None:
            since_s = standing.since_s + taken.ahead_s
            view = HealthView(standing.is_up, since_s, answer.reason, answer.latency_s, answer.transitions)
            found.update(dict.fromkeys(users, view))
    return found


def _checks_of(balancer: Balancer) -> Mapping[Check, list[Names]]:
    found = defaultdict[Check, list[Names]](list)
    for use in uses_of(balancer):
        found[use.check].append((use.service.name, use.backend.name))
    return found


def _by_service(findings: OffloadFindings) -> Mapping[str, list[BlockOffload]]:
    found = defaultdict[str, list["BlockOffload"]](list)
    for seen in findings.blocks:
        found[seen.block.service].append(seen)
    return found
