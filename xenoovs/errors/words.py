"""Numbers in sentences."""

from __future__ import annotations


def worded(number: int, one: str, many: str) -> str:
    """The word that a number asks for: `is` or `are`, `entry` or `entries`."""
    return one if number == 1 else many


def counted(number: int, one: str, many: str | None = None) -> str:
    """`1 block`, `0 blocks`, `2 entries`. `many`: where an s behind `one` is not it."""
    return f"{number} {worded(number, one, many or f'{one}s')}"
