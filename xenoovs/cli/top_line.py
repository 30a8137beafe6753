"""Lines of `xenoovs top`: text with the names of looks."""

from __future__ import annotations

from unicodedata import east_asian_width

Span = tuple[str, str]
"""Text and the name of its look: `plain`, `bold`, `quiet`, `good`, `warn`, `bad`, `note`, `head` or `cursor`."""

Line = tuple[Span, ...]


def printable(text: str) -> str:
    """Without what could move the cursor or is two columns wide: reasons come from the network."""
    return "".join(c if c.isprintable() and east_asian_width(c) not in "WF" else "?" for c in text)


def fit(text: str, width: int) -> str:
    """At most `width` characters, with an ellipsis where some are left out."""
    return text if len(text) <= width else f"{text[: max(width - 1, 0)]}…"


def cut(line: Line, width: int) -> Line:
    """The line without what is right of the width, and without blanks at its end."""
    made, left = list[Span](), width
    for text, look in line:
        made.append((text[:left], look))
        left -= len(text[:left])
    while made and not made[-1][0].strip():
        made.pop()
    return (*made[:-1], (made[-1][0].rstrip(), made[-1][1])) if made else ()


def text_of(line: Line) -> str:
    """The line without its looks."""
    return "".join(text for text, _ in line)
