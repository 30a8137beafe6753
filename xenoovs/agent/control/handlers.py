"""What each route does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from xenoovs import __version__
from xenoovs.agent.control.messages import (
    API_VERSION,
    MAX_BLOCKS,
    BackendRequest,
    BlockList,
    BlocksQuery,
    Done,
    EmptyRequest,
    EventList,
    EventsQuery,
    Status,
    WeightRequest,
)
from xenoovs.agent.overrides import find_backend, find_service
from xenoovs.agent.runtime_file import show_weight
from xenoovs.agent.waiting import Outcome
from xenoovs.errors import BudgetUnreachable, CompileError, RequestRefused, ToleranceUnreachable, XenoovsError

if TYPE_CHECKING:
    from xenoovs.agent.daemon import Agent

Handler = Callable[["Agent", Any], Awaitable[object]]
"""Gives the answer, or a function that makes it in any thread."""


async def status(agent: Agent, _: object) -> Callable[[], Status]:
    """Without events: those have a route of their own."""
    glance = agent.glance()
    return lambda: Status(API_VERSION, __version__, replace(glance.snapshot(), events=()))


async def blocks(agent: Agent, asked: BlocksQuery) -> Callable[[], BlockList]:
    find_service(agent.config.balancer, asked.service)
    glance = agent.glance()

    def made() -> BlockList:
        found, end = glance.blocks(asked.service), asked.after + MAX_BLOCKS
        return BlockList(asked.service, found[asked.after : end], len(found), end if end < len(found) else None)

    return made


async def events(agent: Agent, asked: EventsQuery) -> EventList:
    return EventList(agent.events.since(asked.since), agent.events.last, agent.started_s)


async def drain(agent: Agent, asked: BackendRequest) -> Done:
    return await _set(agent, (asked.service, asked.backend), Fraction(0))


async def weight(agent: Agent, asked: WeightRequest) -> Done:
    return await _set(agent, (asked.service, asked.backend), asked.weight)


async def undrain(agent: Agent, asked: BackendRequest) -> Done:
    return await _set(agent, (asked.service, asked.backend), None)


async def pause(agent: Agent, _: EmptyRequest) -> Done:
    is_news = await agent.hold(hold=True) is not None
    told = "paused" if is_news else "paused already"
    return Done(f"{told}: the agent looks on and changes nothing until `xenoovs resume`")


async def resume(agent: Agent, _: EmptyRequest) -> Done:
    outcome = await agent.hold(hold=False)
    return Done("the agent is not paused") if outcome is None else _done("resumed", outcome)


async def confirm(agent: Agent, _: EmptyRequest) -> Done:
    if not agent.reloader.confirm():
        raise RequestRefused("no change waits to be confirmed", status=409, code="nothing_waits")
    return Done(f"confirmed: config {agent.config.digest} stays")


HANDLERS: dict[str, Handler] = {
    "status": status,
    "blocks": blocks,
    "events": events,
    "drain": drain,
    "undrain": undrain,
    "weight": weight,
    "pause": pause,
    "resume": resume,
    "confirm": confirm,
}


async def _set(agent: Agent, names: tuple[str, str], wanted: Fraction | None) -> Done:
    configured = find_backend(agent.config.balancer, names).weight
    try:
        outcome = await agent.set_weight(names, wanted)
    except (CompileError, ToleranceUnreachable, BudgetUnreachable) as problem:
        raise RequestRefused(f"{problem}; nothing was changed", status=409, code="impossible") from None
    used = configured if wanted is None else wanted
    if wanted is not None and not used:
        told = f"{'/'.join(names)} is drained"
    else:
        told = f"{'/'.join(names)} has the weight {show_weight(used)}"
    config = "as the config says" if used == configured else f"the config says {show_weight(configured)}"
    slowly = ", by a slow start" if agent.desired.ramps.get(names, 1) != 1 else ""
    return _done(f"{told} ({config}{slowly})", outcome)


def _done(told: str, outcome: Outcome) -> Done:
    if isinstance(outcome, XenoovsError):
        return Done(f"{told}, but the bridge is not so yet: {outcome}", is_applied=False)
    moving = [change for change in outcome.services() if change.moved]
    moved = {change.name: float(change.moved) for change in moving}
    mods = outcome.difference.flow_mods
    shares = ", ".join(
        f"{float(change.moved):.2%} of the clients of {change.name} (least possible: {float(change.least_moved):.2%})"
        for change in moving
    )
    what = f"{shares} moved by {mods} flow-mods" if shares else f"no client moved; {mods} flow-mods"
    what = what if mods else "no flow had to change"
    left_s = max((drain.left_s for drain in outcome.drains), default=0.0)
    kept = f"; open connections stay where they are for at most {left_s:.0f} s" if outcome.drains else ""
    return Done(f"{told}: {what}{kept}", flow_mods=mods, clients_moved=moved)
