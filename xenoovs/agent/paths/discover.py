"""Source ports that the fabric hashes to different paths, found by probes whose TTL expires on the way. Pure.

As traceroute does it, and CLOVE (N. Katta et al., "Clove", CoNEXT 2017, 3.1): a router that drops a probe says so by
ICMP, and quotes its source port. Two ports are on different paths if at some distance different routers answered for
them. A router that is silent, or limits its ICMP, therefore makes no difference that is none: it only hides some.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Address

from xenoovs.agent.paths.frame import Quote
from xenoovs.dataclass import dataclass

CANDIDATES = 48
"""Ports that are tried. One of four equal paths has none of them once in 250,000 searches, one of eight in 75."""

DISTANCES = (1, 2, 3)
"""TTLs: the leaf, the spine and the far leaf; with three tiers, the spine and two of them."""

TRIES = 4
"""How often a probe without a quote is sent again. Linux sends some six quotes at once and then one a second to one
address (net.ipv4.icmp_ratelimit, icmp_global_allow() and inet_peer_xrlim_allow())."""

WAIT_S = (0.1, 0.3, 1.0, 2.0)
"""How long answers are waited for after each try."""

Routers = Mapping[int, IPv4Address]
"""The router that answered, by distance."""


@dataclass(frozen=True, slots=True)
class TtlProbe:
    """A probe to send. `ident`: of its IPv4 header, which the quote has to have too."""

    source_port: int
    ttl: int
    ident: int


class Search:
    """A search for the paths to one remote, or a check of ports in use."""

    def __init__(self, remote: IPv4Address, ports: Iterable[int], idents: Iterator[int]) -> None:
        """Begin. `ports`: source ports to try; those in use first; `idents`: yields random numbers of 16 bits."""
        self._remote = remote
        self._found: dict[int, dict[int, IPv4Address]] = {port: {} for port in ports}
        self._idents = idents
        self._sent: dict[int, dict[int, set[int]]] = {port: {ttl: set() for ttl in DISTANCES} for port in self._found}

    @property
    def has_answers(self) -> bool:
        return any(self._found.values())

    @property
    def has_gap(self) -> bool:
        """Whether all routers at some distance are silent, so that paths that differ there look alike."""
        return any(not any(ttl in found for found in self._found.values()) for ttl in self._distances)

    @property
    def _distances(self) -> set[int]:
        """The distances up to the farthest router that answered."""
        farthest = max((ttl for routers in self._found.values() for ttl in routers), default=0)
        return {ttl for ttl in DISTANCES if ttl <= farthest}

    @property
    def has_missing(self) -> bool:
        """Whether probes of a distance at which some router answered have no quote yet."""
        answering = {ttl for routers in self._found.values() for ttl in routers}
        return any(answering - routers.keys() for routers in self._found.values()) or not answering

    def routers(self, port: int) -> Routers:
        return self._found.get(port, {})

    def probes(self) -> Iterator[TtlProbe]:
        """Yield the probes that have no quote yet. Those of one distance follow each other, as routers limit ICMP."""
        for ttl in DISTANCES:
            for port, routers in self._found.items():
                if ttl not in routers:
                    ident = next(self._idents)
                    self._sent[port][ttl].add(ident)
                    yield TtlProbe(port, ttl, ident)

    def quoted(self, quote: Quote) -> bool:
        """Count a quote, if it is one of a probe that was sent. Return whether it is."""
        sent = self._sent.get(quote.source_port)
        if sent is None or quote.remote != self._remote:
            return False
        for ttl, idents in sent.items():
            if quote.ident in idents:
                self._found[quote.source_port].setdefault(ttl, quote.router)
                return True
        return False

    def differing(self, most: int, *, keep: Iterable[int] = ()) -> tuple[int, ...]:
        """Return ports that are on different paths, at most so many: those to keep, then those most often answered."""
        chosen, order = list(keep), {port: number for number, port in enumerate(self._found)}
        if not self.has_answers:
            return tuple(chosen)
        for port in sorted(self._found, key=lambda port: (-len(self._found[port]), order[port])):
            if len(chosen) < most and all(differ(self._found[port], self.routers(other)) for other in chosen):
                chosen.append(port)
        return tuple(chosen)

    def same(self, ports: Iterable[int]) -> tuple[int, ...]:
        """Return those of `ports` that take the path of an earlier one, as far as routers answered."""
        kept, doubled = list[int](), list[int]()
        for port in ports:
            routers = self.routers(port)
            is_whole = bool(routers) and routers.keys() == self._distances
            is_double = is_whole and any(routers == self.routers(other) for other in kept)
            (doubled if is_double else kept).append(port)
        return tuple(doubled)


def in_places(before: Sequence[int], found: Sequence[int]) -> tuple[int, ...]:
    """Return the ports that were found, those in use at their places, as blocks belong to the path of a place; new ones
    take free places. 0: there is none for a place."""
    new = [port for port in found if port not in before]
    kept = [port if port in found else 0 for port in before]
    filled = [port or (new.pop(0) if new else 0) for port in kept]
    return (*filled, *new)


def differ(one: Routers, other: Routers) -> bool:
    """Return whether different routers answered at some distance."""
    return any(other.get(ttl, router) != router for ttl, router in one.items())


def hops_text(routers: Routers) -> str:
    """Return the routers in their order, `*` for one that did not answer; empty: none did."""
    farthest = max(routers, default=0)
    return ",".join(str(routers.get(ttl, "*")) for ttl in range(1, farthest + 1))
