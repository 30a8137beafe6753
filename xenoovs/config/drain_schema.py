"""The form of `drain`. Importing this imports pydantic: do it only where a config is read."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema

from xenoovs.config import fields
from xenoovs.config.health_schema import Duration
from xenoovs.model.drain import DrainMode

Mode = Annotated[
    DrainMode | None,
    PlainValidator(partial(fields.choice, kinds=DrainMode)),
    WithJsonSchema({"enum": [mode.value for mode in DrainMode]}),
]


class DrainConfig(BaseModel):
    """Open connections of clients that get another backend. A key of a service goes before the one of the file."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    mode: Mode = Field(
        default=None,
        json_schema_extra={"default": "none"},
        description="none (clients move at once) or pin (open connections stay with the old backend for a while, new "
        "TCP connections go to the new one).",
    )
    timeout: Duration = Field(
        default=None,
        json_schema_extra={"default": "60s"},
        description="After which clients move with all that is still open.",
    )
    rest: Duration = Field(
        default=None,
        json_schema_extra={"default": "10s"},
        description="They move earlier when the old backend has got no packet of them for so long.",
    )
