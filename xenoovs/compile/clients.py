"""How the blocks of a service split real clients: the load of each backend, and whether the bits are well chosen."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from fractions import Fraction
from ipaddress import ip_address

from xenoovs.compile.program import ServiceProgram
from xenoovs.dataclass import dataclass, replace
from xenoovs.errors import ParseError
from xenoovs.model.address import Family, IPAddress, family_of
from xenoovs.partition.clients import BitReport, Suggestion, analyse, suggest

IPV6_NOT_USABLE = range(112, 128)
"""Positions that `model` refuses, because ovs-ofctl misreads masks of only these."""

_BY_CHANCE = 1.25
"""Above this multiple of the spread of a perfect hash the cause is the choice of bits, and not the clients."""


@dataclass(frozen=True, slots=True)
class BackendSpread:
    """Shares of one backend, 0..1: by weight, of the address space, and of the clients' load."""

    name: str
    wanted: Fraction
    space: Fraction
    load: Fraction


@dataclass(frozen=True, slots=True)
class Spread:
    """The clients of one IP version on one service. `positions`: the bits in use, in their order.

    `load`: total load of the clients. `suggestion`: other bits, if some are clearly better.
    """

    service: str
    family: Family
    clients: int
    load: int
    positions: tuple[int, ...]
    backends: tuple[BackendSpread, ...]
    bits: BitReport
    suggestion: Suggestion | None

    @property
    def is_by_chance(self) -> bool:
        """Return whether no choice of bits would make blocks clearly more even for these clients."""
        return not self.bits.depths or self.bits.depths[-1].selected <= _BY_CHANCE * self.bits.depths[-1].ideal


def check_spread(made: ServiceProgram, family: Family, load: Mapping[int, int]) -> Spread:
    """Return the spread. `load`: load of each client. Raises ValueError if there is none."""
    service, width = made.service, made.decision.active.depth
    positions = (service.key.positions or tuple(range(width)))[:width]
    found = analyse(load, positions)
    unusable = IPV6_NOT_USABLE if family is Family.IPV6 else ()
    candidates = (position for position in range(family.bits) if position not in unusable)
    spread = Spread(service.name, family, len(load), sum(load.values()), positions, _backends(made, load), found, None)
    return spread if spread.is_by_chance else replace(spread, suggestion=suggest(load, positions, candidates))


def _backends(made: ServiceProgram, load: Mapping[int, int]) -> tuple[BackendSpread, ...]:
    sums = Counter[str]()
    by_mask = defaultdict[int, dict[int, str]](dict)
    for block in made.blocks:
        by_mask[block.rule.mask][block.rule.value] = block.backend.name
    for address, count in load.items():
        owner = next((o for mask, owners in by_mask.items() if (o := owners.get(address & mask)) is not None), None)
        if owner is not None:
            sums[owner] += count
    total, service = sum(load.values()), made.service
    return tuple(
        BackendSpread(backend.name, target, space, Fraction(sums[backend.name], total))
        for backend, target, space in zip(service.backends, service.target_shares, made.shares, strict=True)
    )


# The file of clients.


_WORDS = 2
_MOST_UNREAD = 100


@dataclass(frozen=True, slots=True)
class Clients:
    """`load`: packets or requests by address. `unread`: the first of `unread_lines` lines without an address."""

    load: dict[IPAddress, int]
    unread: tuple[ParseError, ...]
    unread_lines: int

    def of(self, family: Family) -> dict[int, int]:
        """Return the load of one IP version, by address as a number."""
        return {int(address): count for address, count in self.load.items() if family_of(address) is family}


def parse_clients(lines: Iterable[str]) -> Clients:
    """Parse one client a line: `ADDRESS`, `ADDRESS COUNT` or `COUNT ADDRESS` (uniq(1), -c), or a log whose lines begin
    so. Blanks, commas and tabs separate; `#` begins a comment. Never raises: lines without an address are unread."""
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
