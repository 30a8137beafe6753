"""Flows that Open vSwitch learns for connections: ours, but nobody's wish and nobody's mistake."""

from __future__ import annotations

import re

from xenoovs.compile.pipeline import Stage, cookie_of

_COOKIE = f"{cookie_of(Stage.LEARNED) >> 32:x}"
_LINE = re.compile(rf"^ *cookie=0x{_COOKIE}[0-9a-f]{{8}},.*\n?", re.MULTILINE)


def split_learned(dump: str) -> tuple[str, str]:
    """A dump without the flows that were learned, and these."""
    if f"cookie=0x{_COOKIE}" not in dump:
        return dump, ""
    return _LINE.sub("", dump), "".join(_LINE.findall(dump))
