"""What a service does with open connections: its own keys over those of the file, and what must hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from xenoovs.config.drain_schema import DrainConfig
from xenoovs.config.remark import Remark
from xenoovs.config.salvage import Lost
from xenoovs.config.schema import ServiceConfig
from xenoovs.config.tree import Path
from xenoovs.model.drain import Drain, DrainMode
from xenoovs.model.service import Strategy

_NAMES = {"mode": "mode", "timeout": "timeout_ms", "rest": "rest_ms"}


def drain_of(service: ServiceConfig, defaults: DrainConfig) -> Drain:
    """`defaults`: what the file says for all services."""
    return Drain(**_given(service.drain, defaults))


def check_drain(service: ServiceConfig, path: Path, *, defaults: DrainConfig, lost: Lost) -> Iterator[Remark]:
    """Rules of strategy lpm overlap: no packet can be told to be of a block that moves. `lost`: not to be judged."""
    if lost.has(("strategy",), ("drain", "mode")):
        return
    if service.strategy is Strategy.LPM and drain_of(service, defaults).mode is DrainMode.PIN:
        key = "drain" if service.drain.mode is DrainMode.PIN else "strategy"
        yield Remark((*path, key), "strategy lpm cannot pin connections; write `drain: {mode: none}` for this service")


def _given(own: DrainConfig, defaults: DrainConfig) -> dict[str, Any]:
    """The keys that are written, by their names in the model."""
    found = ((_NAMES[name], getattr(own, name), getattr(defaults, name)) for name in DrainConfig.model_fields)
    values = ((name, mine if mine is not None else theirs) for name, mine, theirs in found)
    return {name: value for name, value in values if value is not None}
