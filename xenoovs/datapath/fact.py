"""Facts of a host as values: what was read, or why it could not be. Nothing is guessed."""

from __future__ import annotations

from typing import TypeAlias, TypeVar

from xenoovs.dataclass import dataclass

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Unknown:
    """A fact that could not be read. `reason`: a clause such as `ethtool is not installed`."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unresponsive(Unknown):
    """A fact that is unknown because a process does not answer. `fix`: commands that make it answer again."""

    fix: tuple[tuple[str, ...], ...] = ()


NOT_READ = Unknown("not read")

Fact: TypeAlias = T | Unknown
"""A fact, or why it is unknown."""
