"""A mistake before its place in the file is looked up."""

from __future__ import annotations

from dataclasses import dataclass

from xenoovs.config.tree import Path


@dataclass(frozen=True, slots=True)
class Remark:
    """`at_key`: the mistake is the key, not its value."""

    path: Path
    message: str
    at_key: bool = False
