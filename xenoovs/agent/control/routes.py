"""The one table of what the control API offers; server, client, OpenAPI document and reference page follow it."""

from __future__ import annotations

from dataclasses import dataclass

from xenoovs.agent.control.messages import (
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
from xenoovs.agent.snapshot import Event


@dataclass(frozen=True, slots=True)
class Route:
    """One operation. `request`: None where it has no body. `query`: None where its address has no parameters.

    `is_stream`: JSON values, one a line, without an end.
    refusals: the statuses besides 400, 401 and 403 that it may answer with (RFC 9110).
    """

    name: str
    method: str
    path: str
    summary: str
    answer: type
    request: type | None = None
    query: type | None = None
    is_stream: bool = False
    refusals: tuple[int, ...] = ()

    @property
    def changes(self) -> bool:
        """Whether it changes something, which not everybody may."""
        return self.method != "GET"


ROUTES = (
    Route("status", "GET", "/v1/status", "Services, backends, overrides, and what is wrong; without blocks.", Status),
    Route(
        "blocks",
        "GET",
        "/v1/blocks",
        "Blocks of one service with their verdicts, at most 1,000 in one answer.",
        BlockList,
        query=BlocksQuery,
        refusals=(404,),
    ),
    Route("events", "GET", "/v1/events", "The last events, at most 1,000.", EventList, query=EventsQuery),
    Route(
        "events_stream",
        "GET",
        "/v1/events/stream",
        "Events as they happen, one JSON object a line; an empty line every 15 s while nothing happens.",
        Event,
        query=EventsQuery,
        is_stream=True,
    ),
    Route(
        "drain",
        "POST",
        "/v1/drain",
        "Give a backend no clients, until undrain or until the config changes its weight.",
        Done,
        request=BackendRequest,
        refusals=(404, 409),
    ),
    Route(
        "undrain",
        "POST",
        "/v1/undrain",
        "Go back to the weight of the config.",
        Done,
        request=BackendRequest,
        refusals=(404, 409),
    ),
    Route(
        "weight",
        "POST",
        "/v1/weight",
        "Give a backend another weight than the config.",
        Done,
        request=WeightRequest,
        refusals=(404, 409),
    ),
    Route("pause", "POST", "/v1/pause", "Look on and tell, but change nothing.", Done, request=EmptyRequest),
    Route("resume", "POST", "/v1/resume", "Make the bridge right again after a pause.", Done, request=EmptyRequest),
    Route(
        "confirm",
        "POST",
        "/v1/confirm",
        "Keep a change that waits to be confirmed.",
        Done,
        request=EmptyRequest,
        refusals=(409,),
    ),
)
