"""The small syntax under all that ovs-ofctl(8) prints: lists divided by commas, and quoted names."""

from __future__ import annotations

import json
import re

_PLAIN_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*", re.ASCII)
_NUMBERED = re.compile(r"ofport ([0-9]+)", re.ASCII)
"""What the number of a port that is not there is called: no device of Linux has a blank in its name."""
_QUOTED = r'"(?:[^"\\]|\\.)*"'
_QUOTED_NAME = re.compile(_QUOTED)
_SYNTAX = re.compile(rf"{_QUOTED}|[(),\"]")


def split_list(text: str) -> list[str]:
    """Split at commas that stand in no parenthesis and no quotes. Raises ValueError where these are not closed."""
    if "(" not in text and '"' not in text and ")" not in text:
        return text.split(",")
    parts, depth, start = [], 0, 0
    for token in _SYNTAX.finditer(text):
        match token[0]:
            case "(":
                depth += 1
            case ")":
                depth -= 1
            case '"':
                raise ValueError(f"a quote is not closed in {text!r}")
            case "," if depth == 0:
                parts.append(text[start : token.start()])
                start = token.end()
        if depth < 0:
            break
    if depth:
        raise ValueError(f"parentheses do not match in {text!r}")
    return [*parts, text[start:]]


def name_of_number(number: int) -> str:
    """What a port without a name is called."""
    return f"ofport {number}"


def number_of_name(name: str) -> int | None:
    """The inverse of `name_of_number`; None for a real name."""
    numbered = _NUMBERED.fullmatch(name)
    return int(numbered[1]) if numbered else None


def render_name(name: str) -> str:
    """A name of a port or table, quoted as a JSON string unless it is a letter and then letters and digits.

    So `namemap_put` of lib/ofp-util.c writes it, with the escapes of lib/json.c: non-ASCII characters stay. A port that
    was taken off the bridge has no name any more and stands by its number; here it is called `ofport 2`.
    """
    if numbered := _NUMBERED.fullmatch(name):
        return numbered[1]
    return name if _PLAIN_NAME.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def parse_name(text: str) -> str:
    """The inverse of `render_name`. Raises ValueError."""
    if not text.startswith('"'):
        if not text or '"' in text:
            raise ValueError(f"{text!r} is not a name")
        return name_of_number(int(text)) if text.isascii() and text.isdigit() else text
    if not _QUOTED_NAME.fullmatch(text):
        raise ValueError(f"{text!r} is not a quoted name")
    name = json.loads(text, strict=False)
    assert isinstance(name, str)  # noqa: S101 - narrows the type; a JSON text in quotes is a string
    return name
