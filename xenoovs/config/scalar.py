"""Plain YAML scalars by the core schema of YAML 1.2.2, section 10.3.2.

YAML 1.1, which PyYAML's own resolver follows, reads the MAC 10:20:30:40:50:51 as an integer in base 60, and `on` as
true.
"""

from __future__ import annotations

import re

from xenoovs.config.tree import Number

_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_MAY_BE_NUMBER = frozenset("0123456789+-.")
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", re.ASCII)
_DECIMAL = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", re.ASCII
)
# Longer integers stay text: nothing here is that large, and converting millions of digits takes quadratic time.
_INTEGER_CHARACTERS = 20


def parse_plain_scalar(text: str) -> str | int | bool | Number | None:
    """What an unquoted scalar means. Text that is nothing else is text."""
    if text[:1] not in _MAY_BE_NUMBER:
        return _WORDS.get(text, text)
    if text == "":
        return None
    if _INTEGER.fullmatch(text):
        return _integer(text) if len(text) <= _INTEGER_CHARACTERS else Number(text)
    return Number(text) if _DECIMAL.fullmatch(text) else text


def _integer(text: str) -> int:
    """`010` is ten here; only 0o and 0x change the base."""
    match text[:2]:
        case "0o":
            return int(text[2:], 8)
        case "0x":
            return int(text[2:], 16)
        case _:
            return int(text)
