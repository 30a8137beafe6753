"""What a decision has to meet: the config with its weights in use, and which backends may have clients now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from xenoovs.model.balancer import Balancer

BackendName = tuple[str, str]
"""Names of a service and of one of its backends."""


@dataclass(frozen=True, slots=True)
class DesiredState:
    """The intent of one moment. Everything in it comes from config, health checks, operators and slow starts.

    Attributes:
        balancer: The config with the weights in use; 0 for a backend that an operator drained.
        ejected: Names of the backends that get no clients, by the name of their service.
        ramps: Part of its clients (0 < part < 1) that each backend in a slow start has by now.
    """

    balancer: Balancer
    ejected: Mapping[str, frozenset[str]] = field(default_factory=dict)
    ramps: Mapping[BackendName, Fraction] = field(default_factory=dict)
