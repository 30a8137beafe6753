"""A look at a running agent: what its parts know, put together."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from xenoovs.agent.block_views import block_views
from xenoovs.agent.snapshot import BlockView, Glance, Snapshot
from xenoovs.agent.tally import Found, Installed, Kept, found_of, installed_of
from xenoovs.agent.view import Seen, service_views

if TYPE_CHECKING:
    from xenoovs.agent.daemon import Agent
    from xenoovs.compile.program import Program
    from xenoovs.verify.findings import BlockOffload, OffloadFindings


class Looker:
    """Looks at one agent. What depends only on its config, program or last look is made once for each of these."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._flows: Kept[Program, int] = Kept(lambda program: len(program.flows))
        self._installed: Kept[Program, dict[str, Installed]] = Kept(installed_of)
        self._found: Kept[OffloadFindings, Found] = Kept(found_of)
        self._by_service: Kept[OffloadFindings, Mapping[str, list[BlockOffload]]] = Kept(_by_service)

    def glance(self) -> Glance:
        """Within the event loop of the agent, for which thousands of backends would take too long."""
        taken = self._taken()
        return Glance(lambda: self._snapshot(taken), lambda service: self._blocks(taken, service))

    def _taken(self) -> _Taken:
        agent, now_s = self._agent, self._agent.clock.now_s()
        seen = Seen(
            state=agent.state,
            ramps=agent.state.ramps(now_s),
            ahead_s=time.time() - now_s,
            offload=agent.offload,
            moved=dict(agent.report.moved),
            unreachable=agent.report.unreachable,
        )
        return _Taken(_facts(agent), seen, agent.engine.program)

    def _snapshot(self, taken: _Taken) -> Snapshot:
        program, findings = taken.program, _findings(taken)
        seen = replace(
            taken.seen,
            installed={} if program is None else self._installed.of(program),
            found=Found() if findings is None else self._found.of(findings),
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

    facts: a snapshot without services and flows; seen: without what has to be made of the others.
    """

    facts: Snapshot
    seen: Seen
    program: Program | None


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
        is_paused=agent.state.runtime.is_paused,
        config_problem=str(config.problem or ""),
        last_error=report.last_error,
        problems=tuple(problem.text for problem in report.problems),
        rounds=report.rounds,
        flow_mods=report.flow_mods,
        foreign=report.foreign,
        reloads=agent.reloader.reloads,
        last_round_s=report.last_round_s,
        confirm_by_s=agent.reloader.confirm_by_s,
        verified_s=None if agent.offload is None else agent.offload.seen_s,
        overrides=agent.state.runtime.overrides,
        events=agent.events.since(0),
        held=report.held,
        ports=agent.ports(),
        ports_problem=agent.ports_problem(),
        candidate=config.newer,
        goes_back_to=agent.reloader.goes_back_to,
    )


def _by_service(findings: OffloadFindings) -> Mapping[str, list[BlockOffload]]:
    found = defaultdict[str, list["BlockOffload"]](list)
    for seen in findings.blocks:
        found[seen.block.service].append(seen)
    return found
