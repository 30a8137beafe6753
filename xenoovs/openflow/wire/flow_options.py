"""Timeouts, flags and importance of a flow (OpenFlow 1.4.0, 7.3.4.1), as ovs-ofctl writes them, in its order."""

from __future__ import annotations

from dataclasses import dataclass

from xenoovs.errors import NotEncodable

_FLAGS = ("send_flow_rem", "check_overlap", "reset_counts", "no_packet_counts", "no_byte_counts")
"""Bit 0 and up of ofp_flow_mod.flags."""


@dataclass(frozen=True, slots=True)
class Options:
    """idle_timeout, hard_timeout: seconds, 0: none. importance: 0 is evicted first. flags: OFPFF_* bits."""

    idle_timeout: int = 0
    hard_timeout: int = 0
    flags: int = 0
    importance: int = 0


def options_of(words: tuple[str, ...]) -> Options:
    """Words of `Flow.options` as numbers. Raises NotEncodable for another word."""
    numbers = {"idle_timeout": 0, "hard_timeout": 0, "importance": 0}
    flags = 0
    for word in words:
        name, _, value = word.partition("=")
        if name in numbers and value.isascii() and value.isdigit() and int(value) <= 0xFFFF:
            numbers[name] = int(value)
        elif word in _FLAGS:
            flags |= 1 << _FLAGS.index(word)
        else:
            raise NotEncodable(part=word, reason="it is no option of a flow")
    return Options(numbers["idle_timeout"], numbers["hard_timeout"], flags, numbers["importance"])


def words_of(options: Options) -> tuple[str, ...]:
    """The inverse of `options_of`. Flags without a name are left out."""
    return (
        *_number("idle_timeout", options.idle_timeout),
        *_number("hard_timeout", options.hard_timeout),
        *(word for bit, word in enumerate(_FLAGS) if options.flags >> bit & 1),
        *_number("importance", options.importance),
    )


def _number(name: str, value: int) -> tuple[str, ...]:
    return (f"{name}={value}",) if value else ()
