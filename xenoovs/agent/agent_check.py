"""What servers advertise about themselves, in the words of HAProxy's agent-check. Pure.

The words are those of the HAProxy configuration manual, section 5.2, agent-check. Their effect here:

* A percentage multiplies the weight. It changes the weight in use only if it differs enough and lasts, so that small
  changes of load move no clients.
* `drain` is 0%; `maint`, `down`, `fail` and `stopped` eject the backend at once; `ready` and `up` end these.
* An agent that does not answer, or answers something else, changes nothing: its last reply stays in effect.
"""

from __future__ import annotations

import re
from enum import Enum
from fractions import Fraction

from xenoovs.dataclass import dataclass, replace
from xenoovs.display import percent

MAX_REPLY_BYTES = 1024
_LASTING = 3
"""Replies in a row that must advertise a higher, or a lower, weight than the weight in use, until it changes."""
_MAX_PERCENT = 1000


class Administration(Enum):
    """The administrative state that a server advertises."""

    READY = "ready"
    DRAIN = "drain"
    MAINT = "maint"


@dataclass(frozen=True, slots=True)
class Advertised:
    """The state in effect after the replies of one agent. `lasting`: how many replies in a row advertised a higher
    weight; negative for a lower one. `weight`: without `drain`. `reply`: the last valid one."""

    weight: Fraction = Fraction(1)
    administration: Administration = Administration.READY
    is_up: bool = True
    description: str = ""
    lasting: int = 0
    reply: str = ""

    @property
    def part(self) -> Fraction:
        """Return the part of its weight that the backend should have."""
        return Fraction(0) if self.administration is Administration.DRAIN else self.weight

    @property
    def is_away(self) -> bool:
        """Return whether the backend must have no clients from now on."""
        return not self.is_up or self.administration is Administration.MAINT

    @property
    def state(self) -> str:
        """Return the state as a word: `maint`, `down`, `drain` or `50%`."""
        if self.administration is Administration.MAINT:
            return "maint"
        if not self.is_up:
            return "down"
        return "drain" if self.administration is Administration.DRAIN else percent(self.weight)


UNADVERTISED = Advertised()
"""The state before the first reply."""

_ADMINISTRATION = {each.value: each for each in Administration}
_IS_UP = {"up": True, "down": False, "fail": False, "stopped": False}


def _parse_words(line: str) -> dict[str, object]:
    """Return the values by their attribute of `Advertised`. `maxconn:N` is ignored, because connections are not counted
    here. Raises ValueError if a word is not in the manual, or if two words of one kind differ."""
    found: dict[str, object] = {}
    for word in filter(None, re.split(r"[ \t,]+", line.partition("#")[0].strip(" \t,\r\n").lower())):
        kind, value = _parse_word(word)
        if found.setdefault(kind, value) != value:
            raise ValueError(f"its words contradict each other: {line[:60]!r}")
    if not found:
        raise ValueError(f"it has no word: {line[:60]!r}")
    found.pop("maxconn", None)
    return found


def _parse_word(word: str) -> tuple[str, object]:
    if word in _ADMINISTRATION:
        return "administration", _ADMINISTRATION[word]
    if word in _IS_UP:
        return "is_up", _IS_UP[word]
    if (number := re.fullmatch(r"([0-9]{1,4})%", word, re.ASCII)) and int(number[1]) <= _MAX_PERCENT:
        return "weight", Fraction(int(number[1]), 100)
    if re.fullmatch(r"maxconn:[0-9]{1,9}", word, re.ASCII):
        return "maxconn", word
    raise ValueError(
        f"{word[:40]!r} is not a word of agent-check; those are up, down, fail, stopped, ready, drain, maint, 75%"
    )


def with_reply(before: Advertised, line: str, *, min_change: Fraction) -> Advertised:
    """Return what is in effect after one more reply, a line without its end. Raises ValueError if it is none.

    Words take effect at once, and so do 0%, the first weight, and the first weight after a time without clients. Other
    weights need `_LASTING` replies in a row that are higher, or lower, by `min_change` or more; 100% needs no least
    difference.
    """
    words, description = _parse_words(line), line.partition("#")[2].strip()[:80]
    weight = words.pop("weight", None)
    after = replace(before, description=description, reply=line, **words)  # type: ignore[arg-type]  # by kind
    if not isinstance(weight, Fraction):
        return after
    if not before.reply or not weight or not before.part or before.is_away:
        return replace(after, weight=weight, lasting=0)
    difference = weight - before.weight
    if not difference or (abs(difference) < min_change and weight != 1):
        return replace(after, lasting=0)
    lasting = before.lasting + 1 if difference > 0 else before.lasting - 1
    if lasting * difference < 0 or not lasting:
        # The direction of the changes is another one than before.
        lasting = 1 if difference > 0 else -1
    return replace(after, weight=weight, lasting=0) if abs(lasting) >= _LASTING else replace(after, lasting=lasting)
