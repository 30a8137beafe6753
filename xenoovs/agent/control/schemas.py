"""Requests and answers of the control API as values, and how they are read from JSON.

Importing this imports pydantic (a quarter of a second): clients do without it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, PlainValidator, ValidationError, WithJsonSchema

from xenoovs.errors import RequestRefused
from xenoovs.model import values
from xenoovs.model.values import Number, show
from xenoovs.show.agent import BlockView, Event, Snapshot
from xenoovs.show.column import column, record
from xenoovs.show.paths import BlockReason, PathReason, PlannedMove, RemoteView

API_VERSION = 1
MAX_BODY_BYTES = 64 * 1024
MAX_BLOCKS = 1_000
"""In one answer; a service may have 65,536."""
_MAX_DIGITS = 15
_SERVER = r"^[0-9A-Za-z._:%-]{1,63}$"
_REMOTE = r"^[0-9A-Za-z._-]{1,63}/[0-9A-Za-z._-]{1,63}$"
_MAX_S = 366 * 86_400
"""After which a request may end by itself: a year."""

R = TypeVar("R", bound=BaseModel)


def _whole_number(text: object) -> int:
    digits = str(text)
    if not digits.isascii() or not digits.isdigit() or len(digits) > _MAX_DIGITS:
        raise ValueError(f"{digits[:40]!r} is not a whole number, 0 or more")
    return int(digits)


def _server(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(_SERVER, value, re.ASCII):
        raise ValueError(f"{show(value)} is not the name, MAC or address of a server")
    return value


def _seconds(value: object) -> float:
    number = float(value.text) if isinstance(value, Number) else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not 1 <= number <= _MAX_S:
        raise ValueError(f"{show(value)} is not a time from 1 to {_MAX_S} seconds")
    return float(number)


def _remote(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(_REMOTE, value, re.ASCII):
        raise ValueError(f"{show(value)} is not the name of a tunnel and a remote, such as rack7/b")
    return value


WholeNumber = Annotated[int, PlainValidator(_whole_number), WithJsonSchema({"type": "integer", "minimum": 0})]
Name = Annotated[str, values.name]
Weight = Annotated[Fraction, values.weight]
Server = Annotated[str, PlainValidator(_server), WithJsonSchema({"type": "string", "pattern": _SERVER})]
Seconds = Annotated[
    float | None, PlainValidator(_seconds), WithJsonSchema({"type": "number", "minimum": 1, "maximum": _MAX_S})
]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class BackendRequest(_Request):
    """One backend of a service, by their names in the config; without `service`, one server in all services.

    Attributes:
        service: Name of the service.
        backend: Name of the backend; without `service` also the MAC or the address of the server.
    """

    backend: Server
    service: Annotated[str | None, values.name] = None


class TimedRequest(BackendRequest):
    """A backend, or a server in all services, and for how long.

    Attributes:
        service: Name of the service.
        backend: Name of the backend; without `service` also the MAC or the address of the server.
        for_s: Ends by itself after so many seconds; left out: never.
    """

    for_s: Seconds = None


class WeightRequest(TimedRequest):
    """A backend and its weight, relative to the others.

    Attributes:
        service: Name of the service.
        backend: Name of the backend.
        weight: At most 9 decimals; 0 drains it.
        for_s: Ends by itself after so many seconds; left out: never.
    """

    service: Name
    weight: Weight


class PauseRequest(_Request):
    """`withdraw`: withdraw all announced VIPs for the time of the pause."""

    withdraw: Annotated[bool, values.flag] = False


class RemoteRequest(_Request):
    """One remote of a tunnel, or all.

    Attributes:
        remote: Names of the tunnel and the remote, such as `rack7/b`; left out: all remotes.
    """

    remote: Annotated[str | None, PlainValidator(_remote), WithJsonSchema({"type": "string", "pattern": _REMOTE})] = (
        None
    )


class PinRequest(_Request):
    """One remote of a tunnel, and the only path that is to carry its traffic.

    Attributes:
        remote: Names of the tunnel and the remote, such as `rack7/b`.
        path: Name of the path; left out: all paths may carry traffic again.
    """

    remote: Annotated[str, PlainValidator(_remote), WithJsonSchema({"type": "string", "pattern": _REMOTE})]
    path: Annotated[str | None, values.device] = None


class WhyQuery(_Request):
    """`remote`: names of the tunnel and the remote, such as `rack7/b`. `source_port`: of packets of the host."""

    remote: Annotated[str, PlainValidator(_remote), WithJsonSchema({"type": "string", "pattern": _REMOTE})]
    source_port: WholeNumber | None = None


class EmptyRequest(_Request):
    """Nothing: `{}`, or no body."""


class EventsQuery(_Request):
    """`since`: only events with a larger number."""

    since: WholeNumber = 0


class BlocksQuery(_Request):
    """`service`: its name in the config. `after`: how many blocks to leave out, those of the answers before."""

    service: Name
    after: WholeNumber = 0


@record
class ChangedBackend:
    """A backend that a request was for."""

    service: str = column("Name of its service.")
    backend: str = column("Its name.")


@record
class ReadyAnswer:
    """Whether this host should get clients, for the check of a BGP speaker."""

    ready: bool = column("Whether it should; the status is 200, otherwise 503.")
    reason: str = column("Why it should not; empty if it should.")


@record
class Done:
    """The result of a change."""

    message: str = column("For people.")
    is_applied: bool = column(
        "Whether the bridge has the change. If not, the agent retries, or is paused.", default=True
    )
    flow_mods: int = column("Flows added, changed and deleted for it.", default=0)
    clients_moved: dict[str, float] = column(
        "By service, the share of its clients that have another backend now, 0..1.", factory=dict
    )
    backends: tuple[ChangedBackend, ...] = column("Those that the request was for.", default=())


@record
class Status:
    """All that the agent knows, except blocks and events."""

    api_version: int = column("Of the form of this document; raised when the form changes.")
    version: str = column("Of xenoovs.")
    snapshot: Snapshot = column("Services, backends, and what is wrong.")


@record
class BlockList:
    """Blocks of one service on the bridge, in the order of the address space."""

    service: str = column("Its name in the config.")
    blocks: tuple[BlockView, ...] = column("At most 1,000.")
    total: int = column("How many blocks the service has.")
    next: int | None = column("The value of `after` for the next blocks; null at the end.")


@record
class RemoteList:
    """The remotes of tunnels, and their paths."""

    remotes: tuple[RemoteView, ...] = column("In the order of the config; those without probes are left out.")
    are_moves_paused: bool = column("Whether their blocks stay on their paths.")
    now_s: float = column("When this was read, UTC.")


@record
class RemoteReasons:
    """Why the blocks of a remote are on their paths."""

    paths: tuple[PathReason, ...] = column("In their order.")
    block: BlockReason | None = column(
        "That of the source port that was asked for; null: of none, or the bridge has no blocks yet."
    )
    now_s: float = column("When this was read, UTC.")


@record
class MovePlan:
    """The blocks that the next decision would move."""

    moves: tuple[PlannedMove, ...] = column("")


@record
class EventList:
    """Events, oldest first."""

    events: tuple[Event, ...] = column("At most 1,000.")
    last: int = column("The number of the newest event, for the next `since`.")
    started_s: float = column("When the agent started, UTC. Another agent counts its events from 1 again.")


@record
class ErrorDetail:
    """Why a request was refused."""

    code: str = column("For programs, such as `unknown_backend`.")
    message: str = column("What happened, with which value, and what to do.")


@record
class ErrorAnswer:
    """The answer to every request that was refused or has failed."""

    error: ErrorDetail = column("")


def parse_request(data: bytes, kind: type[R]) -> R:
    """Read a request from its JSON. Unknown, missing and repeated keys are refused.

    Raises:
        RequestRefused: With the status 400.
    """
    try:
        return _validated(_json_object(data), kind)
    except ValueError as error:
        raise RequestRefused(f"the request cannot be used: {error}", status=400, code="bad_request") from None


def parse_query(pairs: Iterable[tuple[str, str]], kind: type[R]) -> R:
    """Read a request from the parameters of an address.

    Raises:
        RequestRefused: With the status 400.
    """
    try:
        return _validated(_without_repeats(list(pairs)), kind)
    except ValueError as error:
        raise RequestRefused(f"the address cannot be used: {error}", status=400, code="bad_request") from None


def _json_object(data: bytes) -> dict[str, object]:
    if not data.strip():
        return {}
    try:
        found = json.loads(data, object_pairs_hook=_without_repeats, parse_float=Number, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object; write one such as {}")
    return found


def _validated(document: dict[str, object], kind: type[R]) -> R:
    try:
        return kind.model_validate(document)
    except ValidationError as invalid:
        error: Any = invalid.errors(include_url=False)[0]
    name = str(error["loc"][0])
    keys = ", ".join(kind.model_fields)
    hint = f"the keys are {keys}" if keys else "it has no keys"
    match error["type"]:
        case "missing":
            raise ValueError(f"{name} is missing; {hint}")
        case "extra_forbidden":
            raise ValueError(f"{name[:63]!r} is not a key here; {hint}")
    raise ValueError(f"{name}: {error['ctx']['error']}")


def _without_repeats(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is repeated")
    return found


def _no_constant(text: str) -> object:
    raise ValueError(f"{text} is not JSON")
