"""XenoFlow's HTTP API, so that its dashboard and its scripts work with an agent.

It follows `http_server.c` in XenoFlow 2: `GET /api` lists backends with their packets, and `POST /api` sends a list of
backends. XenoFlow only logs a POST. Here it decides which backends get clients.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from aiohttp import web

from xenoovs.agent.control.handlers import apply_overrides
from xenoovs.agent.control.limits import read_body, run_beside
from xenoovs.agent.control.schemas import parse_request
from xenoovs.agent.overrides import OverrideAction, OverrideRequest
from xenoovs.dataclass import dataclass
from xenoovs.errors import RequestRefused
from xenoovs.model import values
from xenoovs.model.address import Mac, parse_mac
from xenoovs.model.next_hop import UNCHANGED
from xenoovs.show.column import column, record
from xenoovs.show.snapshot import BackendState, BackendView, Snapshot

if TYPE_CHECKING:
    from xenoovs.agent.daemon import Agent

PATH = "/api"
_MAX_TEXT = 63
"""Longest name of a backend in the config."""


@dataclass(frozen=True, slots=True)
class PostedBackend:
    """A backend of the list. `weight`: an extension to XenoFlow; None for the weight of the config."""

    name: str
    mac: Mac
    weight: Fraction | None = None


def _posted(value: object) -> tuple[PostedBackend, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError('it is not a list of backends; write [{"name": ..., "mac_address": ...}]')
    return tuple(map(_posted_one, value))


def _posted_one(value: object) -> PostedBackend:
    if not isinstance(value, Mapping) or not {"name", "mac_address"} <= set(value):
        raise ValueError("each backend needs `name` and `mac_address`")
    name, mac, weight = value["name"], value["mac_address"], value.get("weight")
    if not isinstance(name, str) or not isinstance(mac, str):
        raise ValueError("`name` and `mac_address` are texts")
    if max(len(name), len(mac)) > _MAX_TEXT:
        raise ValueError(f"`name` and `mac_address` have at most {_MAX_TEXT} characters")
    used = None if weight is None else values.weight(weight)
    return PostedBackend(name, parse_mac(mac), used)


@record
class XenoflowRequest:
    """A request in the form of XenoFlow. Other keys are ignored."""

    backends: tuple[PostedBackend, ...] = column(
        "The backends that get clients; all others of the config are drained.", parser=values.Parser(_posted, {})
    )


def xenoflow_document(snapshot: Snapshot) -> dict[str, object]:
    """Return the answer of `GET /api`. A server of several services is listed once, with all of its packets."""
    packets: dict[tuple[str, str], int] = {}
    for backend in snapshot.backends:
        key = backend.name, backend.mac
        packets[key] = packets.get(key, 0) + _packets(backend)
    rows = [
        # A number in quotes, as in XenoFlow.
        {"name": name, "mac_address": mac, "packetsProcessed": str(count)}
        for (name, mac), count in packets.items()
    ]
    return {
        "message": f"xenoovs balances bridge {snapshot.bridge}.",
        "status": "ok",
        "version": 1.0,
        "backends": rows,
        "backendNumber": len(rows),
    }


def _packets(backend: BackendView) -> int:
    sampled = 0 if backend.traffic is None else backend.traffic.hw_packets + backend.traffic.sw_packets
    return sampled + (0 if backend.counted is None else backend.counted.packets)


def requests_of(posted: Sequence[PostedBackend], snapshot: Snapshot) -> Iterator[OverrideRequest]:
    """Yield the overrides by which only the listed backends get clients. Backends in maintenance stay in it. Raises
    RequestRefused if the config has no such backend, or one of this name with another MAC."""
    listed = {one.name: one for one in posted}
    found: dict[str, set[str]] = {}
    for backend in snapshot.backends:
        found.setdefault(backend.name, set()).add(backend.mac)
    for one in posted:
        if one.name not in found:
            raise RequestRefused(
                f"{one.name[:63]!r} is not a backend of the config, which has {', '.join(found)}; add it there",
                status=404,
                code="unknown_backend",
            )
        if not found[one.name] & {str(one.mac), UNCHANGED}:
            macs = ", ".join(sorted(found[one.name]))
            raise RequestRefused(
                f"{one.name} has the MAC {macs} in the config, not {one.mac}; change it there",
                status=409,
                code="other_mac",
            )
    for service in snapshot.services:
        for backend in service.backends:
            mine = listed.get(backend.name)
            if backend.state is BackendState.MAINTENANCE:
                continue
            if mine is None:
                yield OverrideRequest(OverrideAction.DRAIN, backend.name, service.name)
            elif mine.weight is None:
                yield OverrideRequest(OverrideAction.RESET, backend.name, service.name)
            else:
                yield OverrideRequest(OverrideAction.WEIGHT, backend.name, service.name, mine.weight)


def xenoflow_routes(agent: Agent) -> list[web.RouteDef]:
    """Return `/api`."""

    async def show(request: web.Request) -> web.StreamResponse:
        lazy_snapshot = agent.lazy_snapshot()
        document = await run_beside(request.app, lambda: xenoflow_document(lazy_snapshot.snapshot()))
        return web.json_response(document, headers={"Cache-Control": "no-store"})

    async def change(request: web.Request) -> web.StreamResponse:
        posted = parse_request(await read_body(request), XenoflowRequest, ignores_others=True).backends
        snapshot = await run_beside(request.app, agent.lazy_snapshot().snapshot)
        done = await apply_overrides(agent, *requests_of(posted, snapshot))
        return web.json_response({"status": "Ok", "message": done.message, "is_applied": done.is_applied})

    return [web.get(PATH, show), web.post(PATH, change)]
