"""What the controller logs goes through functions that the caller hands in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Say(Protocol):
    """One event with its facts."""

    def __call__(self, event: str, **facts: object) -> None: ...


@dataclass(frozen=True, slots=True)
class Voice:
    """`tell`: something that was meant to happen. `warn`: something that an operator may want to look at."""

    tell: Say
    warn: Say
