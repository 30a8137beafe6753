"""A look at a running agent: what its parts know, put together."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
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
        agent, now_s = self._agent, self._agent.clock.now_s()
        ramps, moved = agent.state.ramps(now_s), dict(agent.report.moved)
        seen = Seen(
            agent.state,
            ramps,
            ahead_s=time.time() - now_s,
            offload=agent.offload,
            moved=moved,
            unreachable=agent.report.unreachable,
        )
        facts, program = _facts(agent), agent.engine.program
        return Glance(partial(self._snapshot, facts, seen, program), partial(self._blocks, seen, program))

    def _snapshot(self, facts: Snapshot, seen: Seen, program: Program | None) -> Snapshot:
        findings = _findings(seen)
        seen = replace(
            seen,
            installed={} if program is None else self._installed.of(program),
            found=Found() if findings is None else self._found.of(findings),
        )
        flows = 0 if program is None else self._flows.of(program)
        return replace(facts, services=service_views(seen), flows=flows)

    def _blocks(self, seen: Seen, program: Program | None, service: str) -> tuple[BlockView, ...]:
        findings, services = _findings(seen), () if program is None else program.services
        made = next((made for made in services if made.service.name == service), None)
        if made is None:
            return ()
        return block_views(made, () if findings is None else self._by_service.of(findings).get(service, ()))


def _findings(seen: Seen) -> OffloadFindings | None:
    return None if seen.offload is None else seen.offload.findings


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
