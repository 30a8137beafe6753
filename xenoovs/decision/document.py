"""Reads a decision as JSON, which `decision_document` makes: strictly, as it may come from a file."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from xenoovs.decision.decision import Blocks, Decision, ServiceDecision
from xenoovs.errors import DecisionMalformed
from xenoovs.model.address import Family
from xenoovs.model.balancer import BlockKey, KeyField
from xenoovs.partition.block import MAX_WIDTH, Block

_Text = Annotated[str, Field(pattern=r"^0x[0-9a-f]{1,4}/([0-9]|1[0-6])$")]
_Rows = dict[Annotated[str, Field(min_length=1, max_length=128)], list[_Text]]


class Strict(BaseModel):
    """A form in JSON with exactly these keys and types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _Key(Strict):
    field: Annotated[KeyField, Field(strict=False)]
    positions: list[Annotated[int, Field(ge=0)]] | None = None
    width: Annotated[int, Field(ge=0, le=MAX_WIDTH)] | None = None

    @model_validator(mode="after")
    def _has_each_bit_of_the_field_once(self) -> _Key:
        if self.positions is not None and len(set(self.positions)) < len(self.positions):
            raise ValueError("a position is listed twice")
        width = max(self.field.width(family) for family in Family)
        if self.positions is not None and max(self.positions, default=0) >= width:
            raise ValueError(f"the {self.field.label} has {width} bits")
        return self


class _Service(Strict):
    """One service: each owner has its blocks as VALUE/DEPTH, the clients whose first DEPTH selected bits are VALUE."""

    id: Annotated[str, Field(pattern=r"^0x[0-9a-f]{8}$")]
    name: str | None = None
    key: _Key
    home: _Rows
    active: _Rows | None = None


class _Document(Strict):
    format: Literal[1] = 1
    version: Annotated[int, Field(ge=0)]
    services: list[_Service]


def parse_decision(document: object) -> Decision:
    """Return the decision of a document. Raises DecisionMalformed, with the key: the document has another form, a
    service twice, overlapping blocks, or active blocks without a home."""
    try:
        parsed = _Document.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        raise DecisionMalformed(path=".".join(map(str, first["loc"])), reason=_reason(first)) from None
    services = dict[int, ServiceDecision]()
    for number, service in enumerate(parsed.services):
        service_id = int(service.id, 16)
        if service_id in services or not service_id:
            reason = f"{service.id} is {'listed twice' if service_id else 'the id of no service'}"
            raise DecisionMalformed(path=f"services.{number}.id", reason=reason)
        try:
            services[service_id] = _to_service(service)
        except ValueError as error:
            raise DecisionMalformed(path=f"services.{number}", reason=str(error)) from None
    return Decision.of(services, version=parsed.version)


def _reason(error: ErrorDetails) -> str:
    """Return the reason without the names of types."""
    return "not an object" if error["type"] == "model_type" else error["msg"].removeprefix("Value error, ")


def _to_service(service: _Service) -> ServiceDecision:
    positions = service.key.positions
    key = BlockKey(service.key.field, None if positions is None else tuple(positions), service.key.width)
    home = _to_blocks(service.home)
    active = home if service.active is None else _to_blocks(service.active)
    if max(home.depth, active.depth) > key.max_width:
        raise ValueError(f"blocks are deeper than the {key.max_width} bits of the key")
    if any(owner is None for _, _, owner in home.within(block for block, _ in active.rows)):
        raise ValueError("blocks of `active` are missing in `home`")
    return ServiceDecision(key, home, active)


def _to_blocks(rows: _Rows) -> Blocks:
    found = [
        (Block(int(value, 16), int(depth)), owner)
        for owner, texts in rows.items()
        for value, depth in (text.split("/") for text in texts)
    ]
    made = Blocks.of(found)
    if sum(block.size(MAX_WIDTH) for block, _ in found) > sum(block.size(MAX_WIDTH) for block, _ in made.rows):
        raise ValueError("blocks overlap")
    return made
