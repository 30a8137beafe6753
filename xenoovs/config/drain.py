"""What a service does with open connections: its own keys over those of the file."""

from __future__ import annotations

from typing import Any

from xenoovs.config.drain_schema import DrainConfig
from xenoovs.config.schema import ServiceConfig
from xenoovs.model.drain import Drain

_NAMES = {"mode": "mode", "timeout": "timeout_ms", "rest": "rest_ms"}


def drain_of(service: ServiceConfig, defaults: DrainConfig) -> Drain:
    """`defaults`: what the file says for all services."""
    return Drain(**_given(service.drain, defaults))


def _given(own: DrainConfig, defaults: DrainConfig) -> dict[str, Any]:
    """The keys that are written, by their names in the model."""
    found = ((_NAMES[name], getattr(own, name), getattr(defaults, name)) for name in DrainConfig.model_fields)
    values = ((name, mine if mine is not None else theirs) for name, mine, theirs in found)
    return {name: value for name, value in values if value is not None}
