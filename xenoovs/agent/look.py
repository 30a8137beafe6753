"""The snapshot of a running agent: what its parts know, put together."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from xenoovs.agent.check import uses_of
from xenoovs.agent.desired import Names
from xenoovs.agent.snapshot import Snapshot
from xenoovs.agent.view import HealthView, Seen, service_views

if TYPE_CHECKING:
    from xenoovs.agent.daemon import Agent


def snapshot_of(agent: Agent) -> Snapshot:
    """All that is known now; within the event loop of the agent."""
    config, report, program = agent.config, agent.report, agent.reconciler.program
    return Snapshot(
        bridge=config.balancer.uplinks.label,
        config_path=str(config.path),
        config_digest=config.digest,
        started_s=agent.started_s,
        now_s=time.time(),
        services=service_views(_seen(agent)),
        is_paused=agent.operator.runtime.is_paused,
        config_problem=str(config.problem or ""),
        last_error=report.last_error,
        flows=0 if program is None else len(program.flows),
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
    )


def _seen(agent: Agent) -> Seen:
    desired = agent.desired
    return Seen(
        config=agent.config.balancer,
        # A config may have been accepted since; then the round that aims at it is still to come.
        desired=desired.balancer if desired.config is agent.config.balancer else agent.config.balancer,
        program=agent.reconciler.program,
        out=desired.out,
        health=_health(agent),
        overrides=agent.operator.overrides,
        ramps=desired.ramps,
        offload=agent.offload,
        moved=agent.report.moved,
    )


def _health(agent: Agent) -> dict[Names, HealthView]:
    found, ahead_s = dict[Names, HealthView](), time.time() - agent.clock.now_s()
    for use in uses_of(agent.config.balancer):
        standing, answer = agent.aim.watch.standing_of(use.check), agent.asker.answers.get(use.check)
        if standing is not None and answer is not None:
            since_s = standing.since_s + ahead_s
            view = HealthView(standing.is_up, since_s, answer.reason, answer.latency_s, answer.transitions)
            found[use.service.name, use.backend.name] = view
    return found
