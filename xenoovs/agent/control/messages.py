"""What the control API is asked and what it answers, as values; the OpenAPI document is made from them too."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, dataclass, field, fields
from fractions import Fraction
from typing import Any, TypeVar

from xenoovs.agent.snapshot import BlockView, Event, Snapshot
from xenoovs.config import fields as config_fields
from xenoovs.config.tree import Number
from xenoovs.errors import RequestRefused

API_VERSION = 1
MAX_BODY_BYTES = 64 * 1024
MAX_BLOCKS = 1_000
"""In one answer; a service may have 65,536."""
_MOST_DIGITS = 15

R = TypeVar("R")


def _whole(text: object) -> int:
    told = str(text)
    if not told.isascii() or not told.isdigit() or len(told) > _MOST_DIGITS:
        raise ValueError(f"{told[:40]!r} is not a whole number, 0 or more")
    return int(told)


_NUMBER: dict[str, Any] = {"parse": _whole, "schema": {"minimum": 0}}
_NAME: dict[str, Any] = {"parse": config_fields.name, "schema": {"pattern": config_fields.NAME_PATTERN}}
_WEIGHT: dict[str, Any] = {
    "parse": config_fields.weight,
    "schema": {"type": "number", "minimum": 0, "maximum": config_fields.MAX_WEIGHT},
}


@dataclass(frozen=True, slots=True)
class BackendRequest:
    """One backend of one service, by their names in the config."""

    service: str = field(metadata=_NAME)
    backend: str = field(metadata=_NAME)


@dataclass(frozen=True, slots=True)
class WeightRequest:
    """A backend and its weight, relative to the others, at most 9 decimals; 0 drains it."""

    service: str = field(metadata=_NAME)
    backend: str = field(metadata=_NAME)
    weight: Fraction = field(metadata=_WEIGHT)


@dataclass(frozen=True, slots=True)
class EmptyRequest:
    """Nothing to say: `{}`, or no body."""


@dataclass(frozen=True, slots=True)
class EventsQuery:
    """since: only events with a number above this one."""

    since: int = field(default=0, metadata=_NUMBER)


@dataclass(frozen=True, slots=True)
class BlocksQuery:
    """service: by its name in the config. after: leave out so many, those of the answers before."""

    service: str = field(metadata=_NAME)
    after: int = field(default=0, metadata=_NUMBER)


@dataclass(frozen=True, slots=True)
class Done:
    """What came of a change.

    message:       for people.
    is_applied:    whether the bridge is so already; if not, the agent goes on trying, or is paused.
    flow_mods:     sent for it.
    clients_moved: by service, the share of its clients that got another backend, 0..1.
    """

    message: str
    is_applied: bool = True
    flow_mods: int = 0
    clients_moved: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Status:
    """All that the agent knows but blocks and events.

    version: of xenoovs. api_version: of this form, raised when it changes.
    """

    api_version: int
    version: str
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class BlockList:
    """Blocks of one service on the bridge, in the order of the address space.

    total: how many it has. next: what `after` has to be for those that follow; null at the end.
    """

    service: str
    blocks: tuple[BlockView, ...]
    total: int
    next: int | None


@dataclass(frozen=True, slots=True)
class EventList:
    """Events, oldest first.

    last:      the number of the newest, for the next `since`.
    started_s: UTC, when the agent started; another one counts its events from 1 again.
    """

    events: tuple[Event, ...]
    last: int
    started_s: float


@dataclass(frozen=True, slots=True)
class ProblemDetail:
    """`code`: for programs, such as `unknown_backend`; `message`: what happened, with which value, what to do."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Problem:
    """The answer to every request that could not be done."""

    error: ProblemDetail


def parse_request(data: bytes, kind: type[R]) -> R:
    """A request from its JSON. Unknown, missing and repeated keys are refused. Raises RequestRefused."""
    try:
        return _build(_document(data), kind)
    except ValueError as error:
        raise RequestRefused(f"the request cannot be used: {error}", status=400, code="bad_request") from None


def parse_query(pairs: Iterable[tuple[str, str]], kind: type[R]) -> R:
    """The same from the parameters in an address, in their order there. Raises RequestRefused."""
    try:
        return _build(_unique(list(pairs)), kind)
    except ValueError as error:
        raise RequestRefused(f"the address cannot be used: {error}", status=400, code="bad_request") from None


def _document(data: bytes) -> dict[str, object]:
    if not data.strip():
        return {}
    try:
        found = json.loads(data, object_pairs_hook=_unique, parse_float=Number, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object; write one such as {}")
    return found


def _build(document: dict[str, object], kind: type[R]) -> R:
    known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    unknown = sorted(document.keys() - known)
    missing = [name for name, one in known.items() if name not in document and one.default is MISSING]
    if unknown:
        raise ValueError(f"{unknown[0][:63]!r} is not a key here; {_keys(known)}")
    if missing:
        raise ValueError(f"{missing[0]} is missing; {_keys(known)}")
    values: dict[str, Any] = {}
    for name in document:
        try:
            values[name] = known[name].metadata["parse"](document[name])
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return kind(**values)


def _keys(known: dict[str, Any]) -> str:
    return f"the keys are {', '.join(known)}" if known else "it has no keys"


def _unique(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice")
    return found


def _no_constant(text: str) -> object:
    raise ValueError(f"{text} is not JSON")
