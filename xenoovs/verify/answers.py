"""Which megaflows outside all blocks carry answers: packets from backends back to clients."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Set

from xenoovs.datapath.megaflow import Megaflow, match_of
from xenoovs.datapath.outer import parse_outer
from xenoovs.openflow.flow import Field, Match
from xenoovs.verify.expected import ANY, ExpectedService, Fields
from xenoovs.verify.findings import outside_kind_of
from xenoovs.verify.overlap import OverlapIndex

_MIRRORED = {"nw_src": "nw_dst", "ipv6_src": "ipv6_dst", "tp_src": "tp_dst"}
"""The field of an answer -> the field of a request that has the same value."""
_SOURCES = (("nw_src", 32), ("ipv6_src", 128))
_UNCHANGED = ("dl_type", "nw_proto")
_MAX_CACHED = 50_000


class AnswerFinder:
    """Finds the services whose answers a megaflow may carry.

    An answer has the VIP of its service as source address, or with NAT that of a backend. But mostly a megaflow of
    answers matches no address: nothing on the bridge depends on it. So several services may share one.

    Answers out of tunnels enter by a port that all tunnels of one type share, so remote and key identify their backend.
    """

    def __init__(self, services: Iterable[ExpectedService], index: OverlapIndex) -> None:
        listed = tuple(services)
        self._index = index
        self._ports = frozenset(port for service in listed for port in service.ports)
        self._origins = frozenset(origin for service in listed for origin in service.origins)
        self._ingress = frozenset(entry.in_port for service in listed for entry in service.entries)
        self._translated = {service.name for service in listed if service.returns}
        self._returns = defaultdict[tuple[str | None, int], list[tuple[Match, str]]](list)
        for service in listed:
            for match in service.returns:
                self._returns[match.in_port, _source_of(match)].append((match, service.name))
        self._cache: dict[tuple[object, ...], tuple[str, ...]] = {}

    def find(self, megaflow: Megaflow, internal_ports: Set[str] = frozenset()) -> tuple[str, ...]:
        """Return the names of these services for a megaflow outside all blocks; none for ARP, drops and the like."""
        fields = match_of(megaflow)
        return self.services(megaflow, fields) if outside_kind_of(megaflow, internal_ports, fields).is_judged else ()

    def depends_on_source(self, in_port: str | None, fields: Fields) -> bool:
        """Return whether the values of these fields decide whose answers such a megaflow may carry."""
        return (in_port in self._ports or bool(self._origins)) and not fields.keys().isdisjoint(_MIRRORED)

    def services(self, megaflow: Megaflow, fields: Fields) -> tuple[str, ...]:
        """Return the names of these services; none if the megaflow carries no answers."""
        in_port, origin = megaflow.in_port, self._origin_of(megaflow)
        if in_port is None or (origin is None and in_port not in self._ports) or not self._leaves(megaflow):
            return ()
        if in_port in self._ingress and not self._is_from_vip(fields):
            # Clients are behind this port too.
            return ()
        source = fields.get("nw_src", ANY)
        returned = [name for match, name in self._returns.get((in_port, source.value), ()) if _holds(match, fields)]
        if returned:
            return tuple(sorted(dict.fromkeys(returned)))
        mirrored = {request: fields[answer] for answer, request in _MIRRORED.items() if answer in fields}
        mirrored |= {name: fields[name] for name in _UNCHANGED if name in fields}
        key = in_port, origin, tuple(mirrored.items())
        found = self._cache.get(key)
        if found is None:
            entries = (entry for port in self._ingress for entry in self._index.entries(port, mirrored))
            answering = (s for s in (e.service for e in entries) if in_port in s.ports or origin in s.origins)
            found = tuple(sorted({service.name for service in answering} - self._translated))
            if len(self._cache) < _MAX_CACHED:
                self._cache[key] = found
        return found

    def _origin_of(self, megaflow: Megaflow) -> tuple[int, int] | None:
        """Return remote and key of the tunnel that packets come out of; None: of none with answers."""
        text = megaflow.key("tunnel") if self._origins else None
        if text is None:
            return None
        outer = parse_outer(text)
        remote, key = outer.source, outer.exact("tun_id")
        return None if remote is None or key is None or (remote, key) not in self._origins else (remote, key)

    def _leaves(self, megaflow: Megaflow) -> bool:
        """Return whether packets leave by a port that is not only of backends; if none is named, they may."""
        outputs = [action for action in megaflow.actions if "(" not in action]
        return not outputs or any(port not in self._ports or port in self._ingress for port in outputs)

    @staticmethod
    def _is_from_vip(fields: Fields) -> bool:
        return any(
            fields.get(name, ANY).mask == (1 << width) - 1 for name, width in (("nw_src", 32), ("ipv6_src", 128))
        )


def _source_of(match: Match) -> int:
    """Return the address that the packets of a match come from."""
    source = match.get(Field.NW_SRC)
    return 0 if source is None else source.value


def _holds(match: Match, fields: Fields) -> bool:
    """Return whether all packets with these fields meet a match."""
    return all(
        (found := fields.get(c.field.ovs_name, ANY)).mask & c.mask == c.mask and found.value & c.mask == c.value
        for c in match.masked
    )
