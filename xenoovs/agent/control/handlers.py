"""The operations of the control API: their requests and answers, and what each does to an agent."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, TypeVar, get_args, get_origin, get_type_hints

from xenoovs import __version__
from xenoovs.agent.control.schemas import API_VERSION, REMOTE, SECONDS, SERVER, WHOLE_NUMBER, Handler, Route
from xenoovs.agent.daemon import Outcome
from xenoovs.agent.overrides import OverrideAction, OverrideRequest
from xenoovs.agent.paths.mover import Mover
from xenoovs.agent.paths.remote import ProbedRemote
from xenoovs.agent.paths.views import block_reason, path_reasons, planned_moves
from xenoovs.agent.servers import backends_of, find_named, find_service, unknown
from xenoovs.agent.state import IMPOSSIBLE
from xenoovs.decision.decision import BackendName
from xenoovs.decision.ejection import Ramps
from xenoovs.display import decimal, duration, percent
from xenoovs.errors import RequestRefused, XenoovsError, counted
from xenoovs.model import values
from xenoovs.model.balancer import Backend
from xenoovs.show.column import column, record
from xenoovs.show.paths import BlockReason, PathReason, PlannedMove, RemoteView
from xenoovs.show.snapshot import BlockView, Event, Override, Snapshot

if TYPE_CHECKING:
    from xenoovs.agent.daemon import Agent

ROUTES: list[Route] = []
"""All routes, in the order of the OpenAPI document."""
H = TypeVar("H", bound=Handler)


@record
class ChangedBackend:
    """A backend that a request changed."""

    service: str = column("Name of the service.")
    backend: str = column("Name of the backend.")


@record
class Done:
    """The result of a change."""

    message: str = column("The result in a sentence.")
    is_applied: bool = column(
        "Whether the bridge has the change. If not, the agent retries, or is paused.", default=True
    )
    flow_mods: int = column("Flows added, changed and deleted.", default=0)
    clients_moved: dict[str, float] = column(
        "By service, the share of its clients that have another backend now, 0..1.", factory=dict
    )
    backends: tuple[ChangedBackend, ...] = column("The backends that the request changed.", default=())


@record
class EmptyRequest:
    """An empty request: `{}`, or no body."""


def _route(summary: str, *refusals: int) -> Callable[[H], H]:
    """Declare a handler. Its signature has the types of request and answer. One that returns Done changes the agent."""

    def declare(handler: H) -> H:
        _, asked, answer = get_type_hints(handler, localns={"Agent": object}).values()
        if get_origin(answer) is not None:
            _, answer = get_args(answer)
        request = None if asked is object else asked
        body, query = (request, None) if answer is Done else (None, request)
        ROUTES.append(Route(handler.__name__, summary, answer, handler, body, query, refusals))
        return handler

    return declare


@record
class Status:
    """The state of the agent, without blocks and events."""

    api_version: int = column("Of the schema of this document; increased when that changes.")
    version: str = column("Version of xenoovs.")
    snapshot: Snapshot = column("Services, backends and problems.")


@_route("Services, backends, overrides and problems, without blocks.")
async def status(agent: Agent, _: object) -> Callable[[], Status]:
    lazy_snapshot = agent.lazy_snapshot()
    # Events have their own route.
    return lambda: Status(API_VERSION, __version__, replace(lazy_snapshot.snapshot(), events=()))


MAX_BLOCKS = 1_000
"""Most blocks in one answer; a service may have 65,536."""


@record
class BlocksQuery:
    """Blocks of one service."""

    service: str = column("Name of the service in the config.", parser=values.name)
    after: int = column("How many blocks to skip: those of earlier answers.", parser=WHOLE_NUMBER, default=0)


@record
class BlockList:
    """Blocks of one service on the bridge, in the order of the address space."""

    service: str = column("Name of the service in the config.")
    blocks: tuple[BlockView, ...] = column("At most 1,000.")
    total: int = column("How many blocks the service has.")
    next: int | None = column("The value of `after` for the next blocks; null at the end.")


@_route("Blocks of one service with their verdicts, at most 1,000 in one answer.", 404)
async def blocks(agent: Agent, asked: BlocksQuery) -> Callable[[], BlockList]:
    find_service(agent.config.balancer, asked.service)
    lazy_snapshot = agent.lazy_snapshot()

    def page() -> BlockList:
        found, end = lazy_snapshot.blocks(asked.service), asked.after + MAX_BLOCKS
        return BlockList(asked.service, found[asked.after : end], len(found), end if end < len(found) else None)

    return page


@record
class EventsQuery:
    """The events after a number."""

    since: int = column("Only events with a larger number.", parser=WHOLE_NUMBER, default=0)


@record
class EventList:
    """Events, oldest first."""

    events: tuple[Event, ...] = column("At most 1,000.")
    last: int = column("The number of the newest event, for the next `since`.")
    started_s: float = column("When the agent started, UTC. Another agent counts its events from 1 again.")


@_route("The last events, at most 1,000.")
async def events(agent: Agent, asked: EventsQuery) -> EventList:
    return EventList(agent.events.since(asked.since), agent.events.last, agent.started_s)


ROUTES.append(
    Route(
        "events_stream",
        "Events as they happen, one JSON object a line; an empty line every 15 s while nothing happens.",
        Event,
        query=EventsQuery,
    )
)


@record
class BackendRequest:
    """A backend of a service, by their names in the config; without `service`, a server in all services."""

    backend: str = column(
        "Name of the backend; without `service` also the MAC or the address of the server.", parser=SERVER
    )
    service: str | None = column("Name of the service.", parser=values.name, default=None)


@record
class TimedRequest(BackendRequest):
    """A backend, or a server in all services, and for how long."""

    for_s: float | None = column("Seconds until it ends by itself; left out: never.", parser=SECONDS, default=None)


@record
class WeightRequest:
    """A backend and its weight, relative to the others."""

    backend: str = column("Name of the backend.", parser=SERVER)
    service: str = column("Name of the service.", parser=values.name)
    weight: Fraction = column("At most 9 decimals; 0 drains it.", parser=values.weight)
    for_s: float | None = column("Seconds until it ends by itself; left out: never.", parser=SECONDS, default=None)


_OVERRIDES: tuple[tuple[OverrideAction, type, str], ...] = (
    (
        OverrideAction.DRAIN,
        TimedRequest,
        "Drain a backend, or a server in all services, until `undrain` or `for_s`, or until the config changes its "
        "weight.",
    ),
    (OverrideAction.UNDRAIN, BackendRequest, "End a drain."),
    (
        OverrideAction.MAINTENANCE,
        TimedRequest,
        "Take a backend, or a server in all services, out of service at once, until `reset` or `for_s`. It gets no "
        "clients, also not as the last one, and is not probed.",
    ),
    (
        OverrideAction.WEIGHT,
        WeightRequest,
        "Override the weight of a backend, until `reset` or `for_s`, or until the config changes its weight.",
    ),
    (
        OverrideAction.RESET,
        BackendRequest,
        "Reset a backend, or a server in all services, to the config: end a drain, maintenance or weight.",
    ),
)


async def _override(action: OverrideAction, agent: Agent, asked: BackendRequest | WeightRequest) -> Done:
    weight, for_s = getattr(asked, "weight", Fraction(0)), getattr(asked, "for_s", None)
    until = "" if for_s is None else f" for {duration(for_s)}"
    return await apply_overrides(agent, OverrideRequest(action, asked.backend, asked.service, weight, for_s), end=until)


ROUTES += [
    Route(action.value, summary, Done, partial(_override, action), request, refusals=(404, 409, 507))
    for action, request, summary in _OVERRIDES
]


@record
class PauseRequest:
    """A pause of reconciliation."""

    withdraw: bool = column("Withdraw all announced VIPs for the time of the pause.", parser=values.flag, default=False)


@_route("Pause reconciliation; keep monitoring.", 409, 507)
async def pause(agent: Agent, asked: PauseRequest) -> Done:
    state = "paused already"
    if await agent.change(lambda reloader: reloader.set_paused(paused=True, withdraw=asked.withdraw)):
        state, _ = "paused", await agent.next_round()
    vips = ", all VIPs are withdrawn," if agent.state.runtime.is_withdrawn else ""
    until = f"`xenoovs pause --end{agent.command_options()}`"
    return Done(f"{state}: the agent keeps monitoring{vips} and changes nothing until {until}")


@record
class RemoteList:
    """The remotes of tunnels, and their paths."""

    remotes: tuple[RemoteView, ...] = column("Those that are probed, in the order of the config.")
    are_moves_paused: bool = column("Whether moves of blocks between paths are paused.")
    now_s: float = column("When this was read, UTC.")


@_route("The remotes of tunnels, their paths, and the results of probes.")
async def paths(agent: Agent, _: object) -> RemoteList:
    return RemoteList(agent.remotes(), agent.state.runtime.are_moves_paused, time.time())


@record
class MovePlan:
    """The blocks that the next decision would move."""

    moves: tuple[PlannedMove, ...] = column("")


@_route("The blocks that would move between paths now.")
async def paths_plan(agent: Agent, _: object) -> MovePlan:
    return MovePlan(() if agent.mover is None else tuple(planned_moves(agent.mover)))


@record
class WhyQuery:
    """One remote of a tunnel, and optionally a source port of the host's packets."""

    remote: str = column("Names of the tunnel and the remote, such as `rack7/b`.", parser=REMOTE)
    source_port: int | None = column("Source port of packets of the host.", parser=WHOLE_NUMBER, default=None)


@record
class RemoteReasons:
    """Why the blocks of a remote are on their paths."""

    paths: tuple[PathReason, ...] = column("In their order.")
    block: BlockReason | None = column(
        "The block of the requested source port; null without one, or if the bridge has no blocks yet."
    )
    now_s: float = column("When this was read, UTC.")


@_route("Why the blocks of a remote are on their paths.", 404)
async def paths_why(agent: Agent, asked: WhyQuery) -> RemoteReasons:
    mover, remote = find_remote(agent, asked.remote)
    block = None if asked.source_port is None else block_reason(mover, remote, asked.source_port)
    return RemoteReasons(path_reasons(mover, remote), block, time.time())


@record
class PinRequest:
    """One remote of a tunnel, and the path to which its traffic is pinned."""

    remote: str = column("Names of the tunnel and the remote, such as `rack7/b`.", parser=REMOTE)
    path: str | None = column(
        "Name of the path; left out: all paths may carry traffic again.", parser=values.device, default=None
    )


@_route("Pin all blocks of a remote to one path, or end that.", 404, 409, 507)
async def paths_pin(agent: Agent, asked: PinRequest) -> Done:
    _, remote = find_remote(agent, asked.remote)
    if asked.path is not None:
        find_named("path", remote.paths, asked.path, f"remote {asked.remote}")
    await agent.change(lambda reloader: reloader.pin(asked.remote, asked.path))
    await agent.next_round()
    if asked.path is None:
        return Done(f"{asked.remote} is not pinned: its blocks go to good paths again")
    until = f"`xenoovs paths pin {asked.remote} --end{agent.command_options()}`"
    if agent.state.runtime.are_moves_paused:
        resume = f"`xenoovs pause --paths --end{agent.command_options()}`"
        return Done(f"{asked.remote} is pinned to {asked.path}: its blocks go there after {resume}, until {until}")
    return Done(f"{asked.remote} is pinned to {asked.path}: all its blocks go there, until {until}")


@record
class RemoteRequest:
    """One remote of a tunnel, or all."""

    remote: str | None = column(
        "Names of the tunnel and the remote, such as `rack7/b`; all remotes if left out.", parser=REMOTE, default=None
    )


@_route("Discover the source ports of paths again, also if they are known.", 404, 409)
async def paths_discover(agent: Agent, asked: RemoteRequest) -> Done:
    if asked.remote is not None:
        find_remote(agent, asked.remote)
    mover = agent.mover
    names = () if mover is None else mover.remotes if asked.remote is None else (asked.remote,)
    found = [name for name in names if mover is not None and mover.discover(name)]
    if not found:
        raise RequestRefused(
            "no paths are searched for: the config has no remote with `discover: ttl`",
            status=409,
            code="not_discovered",
        )
    return Done(f"searching for the paths of {', '.join(found)}; `xenoovs logs` shows the result")


@_route("Pause moves of blocks between paths; keep probing.", 409, 507)
async def paths_pause(agent: Agent, _: EmptyRequest) -> Done:
    is_new = await agent.change(lambda reloader: reloader.set_moves_paused(paused=True))
    state = "paused" if is_new else "paused already"
    until = f"`xenoovs pause --paths --end{agent.command_options()}`"
    return Done(f"moves are {state}: probes go on, and blocks stay on their paths until {until}")


@_route("Resume moves of blocks between paths.", 409, 507)
async def paths_resume(agent: Agent, _: EmptyRequest) -> Done:
    is_new = await agent.change(lambda reloader: reloader.set_moves_paused(paused=False))
    return Done("moves are resumed" if is_new else "moves are not paused")


@_route("Resume reconciliation after a pause.", 507)
async def resume(agent: Agent, _: EmptyRequest) -> Done:
    is_new = await agent.change(lambda reloader: reloader.set_paused(paused=False))
    return _done("resumed", await agent.next_round()) if is_new else Done("the agent is not paused")


@_route("Confirm a change that would be rolled back.", 409)
async def confirm(agent: Agent, _: EmptyRequest) -> Done:
    if not agent.reloader.confirm():
        raise RequestRefused("no change waits to be confirmed", status=409, code="nothing_waits")
    return Done(f"confirmed: config {agent.config.digest} stays")


def find_remote(agent: Agent, name: str) -> tuple[Mover, ProbedRemote]:
    """Return a remote that is probed, and its mover. Raises RequestRefused, which lists the nearest names."""
    mover = agent.mover
    if mover is None or name not in mover.remotes:
        raise unknown("remote", name, () if mover is None else mover.remotes, "the config")
    return mover, mover.remotes[name]


async def apply_overrides(agent: Agent, *requests: OverrideRequest, end: str = "") -> Done:
    """Set or end overrides in one round. `end`: a text after those about the backends. Raises RequestRefused."""
    try:
        names = await agent.change(lambda reloader: reloader.override(*requests))
    except IMPOSSIBLE as problem:
        raise RequestRefused(f"{problem}; nothing was changed", status=409, code="impossible") from None
    outcome, desired = await agent.next_round(), agent.desired
    configured, overrides = backends_of(agent.config.balancer), agent.state.runtime.by_name
    described = [_described(name, configured.get(name), overrides.get(name), desired.ramps) for name in names]
    done = _done(", ".join(described) + end, outcome)
    changed = {service for service, _ in names}
    dropped = [
        each.name
        for each in desired.balancer.services
        if each.name in changed
        and all(one.name in desired.ejected.get(each.name, ()) for one in each.backends if one.weight)
    ]
    if dropped:
        none = f"no backend of {' and '.join(dropped)} serves: packets are dropped"
        done = replace(done, message=f"{done.message}; {none}")
    return replace(done, backends=tuple(ChangedBackend(*name) for name in names))


def _described(name: BackendName, configured: Backend | None, override: Override | None, ramps: Ramps) -> str:
    """Return the state of a backend after a request: `web/web1 is drained (the config says 2)`."""
    if configured is None:
        return f"{'/'.join(name)} is not in the config any more"
    if override is not None and override.is_maintenance:
        return f"{'/'.join(name)} is in maintenance"
    used = configured.weight if override is None else override.weight
    state = f"has the weight {decimal(used)}" if override is None or used else "is drained"
    config = "as the config says" if used == configured.weight else f"the config says {decimal(configured.weight)}"
    ramp = ", by a slow start" if ramps.get(name, 1) != 1 else ""
    return f"{'/'.join(name)} {state} ({config}{ramp})"


def _done(change: str, outcome: Outcome) -> Done:
    if isinstance(outcome, XenoovsError):
        return Done(f"{change}, but the bridge does not have it yet: {outcome}", is_applied=False)
    moving = [service for service in outcome.services() if service.moved]
    mods = outcome.difference.flow_mods
    sent = counted(mods, "flow-mod")
    shares = ", ".join(
        f"{percent(service.moved)} of the clients of {service.name} (least possible: {percent(service.least_moved)})"
        for service in moving
    )
    effect = f"{shares} moved by {sent}" if shares else f"no client moved; {sent}"
    left_s = max((drain.left_s for drain in outcome.drains), default=0.0)
    drains = f"; open connections stay where they are for at most {duration(left_s)}" if outcome.drains else ""
    return Done(
        f"{change}: {effect if mods else 'no flow had to change'}{drains}",
        flow_mods=mods,
        clients_moved={service.name: float(service.moved) for service in moving},
    )
