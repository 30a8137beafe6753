"""What each route of the control API does to an agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from xenoovs import __version__
from xenoovs.agent.control.schemas import (
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
from xenoovs.agent.daemon import Outcome
from xenoovs.agent.overrides import find_backend, find_service
from xenoovs.display import decimal, duration, percent
from xenoovs.errors import BudgetUnreachable, CompileError, RequestRefused, ToleranceUnreachable, XenoovsError

if TYPE_CHECKING:
    from xenoovs.agent.daemon import Agent

Handler = Callable[["Agent", Any], Awaitable[object]]
"""Returns the answer, or a function that makes it in any thread."""


async def status(agent: Agent, _: object) -> Callable[[], Status]:
    lazy_snapshot = agent.lazy_snapshot()
    # Events have a route of their own.
    return lambda: Status(API_VERSION, __version__, replace(lazy_snapshot.snapshot(), events=()))


async def blocks(agent: Agent, asked: BlocksQuery) -> Callable[[], BlockList]:
    find_service(agent.config.balancer, asked.service)
    lazy_snapshot = agent.lazy_snapshot()

    def page() -> BlockList:
        found, end = lazy_snapshot.blocks(asked.service), asked.after + MAX_BLOCKS
        return BlockList(asked.service, found[asked.after : end], len(found), end if end < len(found) else None)

    return page


async def events(agent: Agent, asked: EventsQuery) -> EventList:
    return EventList(agent.events.since(asked.since), agent.events.last, agent.started_s)


async def drain(agent: Agent, asked: BackendRequest) -> Done:
    return await _set_weight(agent, (asked.service, asked.backend), Fraction(0))


async def weight(agent: Agent, asked: WeightRequest) -> Done:
    return await _set_weight(agent, (asked.service, asked.backend), asked.weight)


async def undrain(agent: Agent, asked: BackendRequest) -> Done:
    return await _set_weight(agent, (asked.service, asked.backend), None)


async def pause(agent: Agent, _: EmptyRequest) -> Done:
    is_new = await agent.set_paused(paused=True) is not None
    state = "paused" if is_new else "paused already"
    return Done(f"{state}: the agent keeps monitoring and changes nothing until `xenoovs resume`")


async def resume(agent: Agent, _: EmptyRequest) -> Done:
    outcome = await agent.set_paused(paused=False)
    return Done("the agent is not paused") if outcome is None else _done("resumed", outcome)


async def confirm(agent: Agent, _: EmptyRequest) -> Done:
    if not agent.reloader.confirm():
        raise RequestRefused("no change waits to be confirmed", status=409, code="nothing_waits")
    return Done(f"confirmed: config {agent.config.digest} stays")


HANDLERS: dict[str, Handler] = {
    handler.__name__: handler for handler in (status, blocks, events, drain, undrain, weight, pause, resume, confirm)
}
"""By the names of their routes."""


async def _set_weight(agent: Agent, names: tuple[str, str], override: Fraction | None) -> Done:
    configured = find_backend(agent.config.balancer, names).weight
    try:
        outcome = await agent.set_weight(names, override)
    except (CompileError, ToleranceUnreachable, BudgetUnreachable) as problem:
        raise RequestRefused(f"{problem}; nothing was changed", status=409, code="impossible") from None
    used = configured if override is None else override
    is_drained = override is not None and not used
    change = f"{'/'.join(names)} {'is drained' if is_drained else f'has the weight {decimal(used)}'}"
    config = "as the config says" if used == configured else f"the config says {decimal(configured)}"
    ramp = ", by a slow start" if agent.desired.ramps.get(names, 1) != 1 else ""
    return _done(f"{change} ({config}{ramp})", outcome)


def _done(change: str, outcome: Outcome) -> Done:
    if isinstance(outcome, XenoovsError):
        return Done(f"{change}, but the bridge does not have it yet: {outcome}", is_applied=False)
    moving = [service for service in outcome.services() if service.moved]
    mods = outcome.difference.flow_mods
    shares = ", ".join(
        f"{percent(service.moved)} of the clients of {service.name} (least possible: {percent(service.least_moved)})"
        for service in moving
    )
    effect = f"{shares} moved by {mods} flow-mods" if shares else f"no client moved; {mods} flow-mods"
    left_s = max((drain.left_s for drain in outcome.drains), default=0.0)
    drains = f"; open connections stay where they are for at most {duration(left_s)}" if outcome.drains else ""
    return Done(
        f"{change}: {effect if mods else 'no flow had to change'}{drains}",
        flow_mods=mods,
        clients_moved={service.name: float(service.moved) for service in moving},
    )
