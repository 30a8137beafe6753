"""Dumps that went through a mail, a ticket or a page: lines that were wrapped are joined again.

Open vSwitch writes a blank in two places only: behind the ufid and between the items that follow the keys. So where a
wrapped line continues decides what stood at the break, and nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_HEADER = "flow-dump from "
_KEYS = ("recirc_id(", "tunnel(", "in_port(", "skb_priority(", "ct_state(", "eth(")
"""What a line without a ufid starts with (odp_flow_format of lib/odp-util.c; the first key differs by version)."""
_ITEM = re.compile(r"(?:packets|bytes|used|flags|offloaded|dp|actions|dp-[a-z-]+):")
_ONLY_UFID = re.compile(r"ufid:[0-9a-f-]+,")

_LONGEST = 1 << 16
"""Characters. What is longer already is not joined any further: it is no line that was wrapped."""


def rejoin_lines(lines: Iterable[str]) -> Iterator[str]:
    """The lines of a dump, wrapped ones joined; an empty line stands for each that was joined to an earlier one.

    So the numbers of lines stay as they are. A line that is not known to continue another stays by itself.
    """
    held: str | None = None
    joined = 0
    for raw in lines:
        line = raw.strip()
        if held is not None and line and len(held) < _LONGEST and not _starts(line, held):
            held = _join(held, line)
            joined += 1
            continue
        if held is not None:
            yield held
            yield from [""] * joined
        held, joined = line, 0
        if not line or line.startswith(_HEADER):
            yield line
            held = None
    if held is not None:
        yield held
        yield from [""] * joined


def _starts(line: str, held: str) -> bool:
    """Whether a line begins a megaflow, or something that is none, rather than to continue `held`."""
    if line.startswith(("ufid:", _HEADER)) or not held.startswith(("ufid:", *_KEYS)):
        return True
    # Names of keys stand in actions too, as in set(eth(...)): there a parenthesis is open.
    return "actions:" in held and line.startswith(_KEYS) and held.count("(") == held.count(")")


def _join(left: str, right: str) -> str:
    is_item = left.endswith(",") and (_ITEM.match(right) or _ONLY_UFID.fullmatch(left))
    return f"{left} {right}" if is_item else f"{left}{right}"
