"""Lines of a dump that could not be read: the first ones, and how many there are."""

from __future__ import annotations

from dataclasses import dataclass, field

from xenoovs.errors import ParseError

MOST_LISTED = 100


@dataclass(slots=True)
class TornLines:
    """`more`: beyond those that are listed."""

    listed: list[ParseError] = field(default_factory=list)
    more: int = 0

    def add(self, error: ParseError) -> None:
        """One more."""
        if len(self.listed) < MOST_LISTED:
            self.listed.append(error)
        else:
            self.more += 1
