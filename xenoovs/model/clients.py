"""Clients of real traffic: addresses and how much each has sent, read from a list or a log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from ipaddress import ip_address

from xenoovs.dataclass import dataclass
from xenoovs.errors import ParseError
from xenoovs.model.address import Family, IPAddress, family_of

_WORDS = 2
_MOST_UNREAD = 100


@dataclass(frozen=True, slots=True)
class Clients:
    """load: packets or requests by address. unread: the first lines that name no address; unread_lines: how many."""

    load: dict[IPAddress, int]
    unread: tuple[ParseError, ...]
    unread_lines: int

    def of(self, family: Family) -> dict[int, int]:
        """The load of one IP version, by address as a number."""
        return {int(address): count for address, count in self.load.items() if family_of(address) is family}


def parse_clients(lines: Iterable[str]) -> Clients:
    """One client a line: `ADDRESS`, `ADDRESS COUNT` or `COUNT ADDRESS` (uniq(1), -c), or a log whose lines begin so.

    Blanks, commas and tabs divide; `#` begins a comment. Any text gives clients: what names no address is unread.
    """
    load, unread, unread_lines = Counter[IPAddress](), list[ParseError](), 0
    for number, line in enumerate(lines, start=1):
        words = line.partition("#")[0].replace(",", " ").split(None, _WORDS)[:_WORDS]
        if not words:
            continue
        found = _client(words)
        if found is not None:
            load[found[0]] += found[1]
            continue
        unread_lines += 1
        if len(unread) < _MOST_UNREAD:
            expected = "an address, with or without a count"
            unread.append(ParseError(text=line.rstrip("\n"), offset=0, expected=expected, line=number))
    return Clients(dict(load), tuple(unread), unread_lines)


def _client(words: list[str]) -> tuple[IPAddress, int] | None:
    address = _address(words[0])
    if address is not None:
        return address, (_count(words[1]) or 1) if len(words) == _WORDS else 1
    count, address = _count(words[0]), _address(words[-1])
    return (address, count) if count is not None and address is not None and len(words) == _WORDS else None


def _address(word: str) -> IPAddress | None:
    # `ip_address` takes numbers for addresses only as integers, never as text.
    try:
        return ip_address(word)
    except ValueError:
        return None


def _count(word: str) -> int | None:
    return int(word) if word.isascii() and word.isdigit() and len(word) < 16 else None
