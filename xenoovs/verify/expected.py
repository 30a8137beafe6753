"""What the hardware is expected to hold for each block, and which block and next hop a megaflow belongs to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import or_

from xenoovs.compile.encoding import key_of
from xenoovs.compile.program import Program, ServiceProgram
from xenoovs.datapath.megaflow import MaskedValue, Megaflow, match_of
from xenoovs.model.next_hop import NextHop
from xenoovs.openflow.flow import Field, Flow, Masked, Match


@dataclass(frozen=True, slots=True)
class ExpectedBlock:
    """One block of one backend. `eth_type`: 0x0800 or 0x86dd. `key`: the bits that chose it, mask 0 for everybody.

    hops:      where its packets may go; one, unless the block moves.
    is_moving: whether a drain keeps its open connections where they are; each has a megaflow of its own then.
    """

    service: str
    backend: str
    flow: Flow
    eth_type: int
    key: Masked
    hops: tuple[NextHop, ...]
    is_moving: bool = False


@dataclass(frozen=True, slots=True)
class ExpectedService:
    """`entries`: the matches that packets of the service enter by, each on one port of the bridge.

    priority: the lowest of the flows behind the entries.
    """

    name: str
    entries: tuple[Match, ...]
    blocks: tuple[ExpectedBlock, ...]
    priority: int = 0


def expected_services(program: Program) -> tuple[ExpectedService, ...]:
    """The services of a compiled program, in its order."""
    return tuple(map(_expected_service, program.services))


def _expected_service(service: ServiceProgram) -> ExpectedService:
    return ExpectedService(
        name=service.service.name,
        entries=tuple(flow.match for flow in service.classify),
        blocks=tuple(_blocks(service)),
        priority=min(flow.priority for flow in service.classify),
    )


def _blocks(service: ServiceProgram) -> Iterator[ExpectedBlock]:
    # Connections that were opened during a drain may be with any backend that the block was to go to.
    backends = {backend.next_hop for backend in service.service.backends}
    all_hops = tuple(sorted(backends | {service.hop(move.old) for move in service.moves}))
    for block in service.blocks:
        eth_type = eth_type_of(block.flow.match)
        yield ExpectedBlock(
            service=service.service.name,
            backend=block.backend.name,
            flow=block.flow,
            eth_type=eth_type,
            key=key_of(block.flow, service.service.key.field),
            hops=all_hops if block.move is not None else (block.backend.next_hop,),
            is_moving=block.move is not None,
        )


def eth_type_of(match: Match) -> int:
    """The EtherType that a match asks for, 0 for any."""
    found = match.get(Field.DL_TYPE)
    return 0 if found is None else found.value


# Which block a megaflow belongs to, by its match: first the service that it entered, then the block.
#
# A megaflow's mask covers the masks of all flows that its packets met (lib/classifier.c), and blocks are disjoint, so
# the match alone tells. Look-ups by hash, one for each mask in use: never megaflows times blocks.


_Masks = tuple[tuple[str, int], ...]
_Entry = tuple[str | None, tuple[int, ...]]
_Fields = Mapping[str, MaskedValue]
_ANY = MaskedValue(0, 0)


@dataclass(frozen=True, slots=True)
class Sources:
    """The blocks of one service and IP family: (field, mask) -> value -> block."""

    by_mask: tuple[tuple[str, int, dict[int, ExpectedBlock]], ...]

    def find(self, fields: _Fields) -> ExpectedBlock | None:
        for field, mask, blocks in self.by_mask:
            source = fields.get(field, _ANY)
            if source.mask & mask == mask and (block := blocks.get(source.value & mask)) is not None:
                return block
        return None


@dataclass(frozen=True, slots=True)
class Place:
    """One entry of one service: `entry` is its index in `service.entries`."""

    service: ExpectedService
    entry: int
    sources: Sources


@dataclass(frozen=True, slots=True)
class BlockIndex:
    """Finds the block of a megaflow; build it with `index_blocks`."""

    entries: dict[_Masks, dict[_Entry, Place]]

    def find(self, megaflow: Megaflow) -> ExpectedBlock | None:
        """None: the megaflow is of no block."""
        found = self.locate(megaflow.in_port, match_of(megaflow))
        return found[1] if found else None

    def locate(self, in_port: str | None, fields: _Fields) -> tuple[Place, ExpectedBlock] | None:
        """The block and the entry by which its packets came. `fields`: the match of the megaflow."""
        for place in self.places(in_port, fields):
            found = place.sources.find(fields)
            if found is not None:
                return place, found
        return None

    def looks_at(self, fields: Iterable[str]) -> bool:
        """Whether any entry asks for one of these fields."""
        return not {field for masks in self.entries for field, _ in masks}.isdisjoint(fields)

    def bits_of(self, field: str) -> int:
        """Return all bits of a field that choose the blocks of any service."""
        places = (place for entries in self.entries.values() for place in entries.values())
        masks = (mask for place in places for looked_at, mask, _ in place.sources.by_mask if looked_at == field)
        return reduce(or_, masks, 0)

    def places(self, in_port: str | None, fields: _Fields) -> Iterator[Place]:
        """The entries by which such packets may have come, whatever their source."""
        for masks, entries in self.entries.items():
            values = _values(fields, masks)
            place = (entries.get((in_port, values)) or entries.get((None, values))) if values is not None else None
            if place is not None:
                yield place


def index_blocks(services: Iterable[ExpectedService]) -> BlockIndex:
    """Index the blocks of all services."""
    entries: dict[_Masks, dict[_Entry, Place]] = {}
    for service in services:
        sources = {eth_type: _sources(service.blocks, eth_type) for eth_type in {b.eth_type for b in service.blocks}}
        for number, match in enumerate(service.entries):
            masks = tuple((masked.field.ovs_name, masked.mask) for masked in match.masked)
            entry = match.in_port, tuple(masked.value for masked in match.masked)
            place = Place(service, number, sources.get(eth_type_of(match), Sources(())))
            entries.setdefault(masks, {})[entry] = place
    return BlockIndex(entries)


def _sources(blocks: Iterable[ExpectedBlock], eth_type: int) -> Sources:
    by_mask: dict[tuple[str, int], dict[int, ExpectedBlock]] = {}
    for block in blocks:
        if block.eth_type == eth_type:
            key = block.key
            by_mask.setdefault((key.field.ovs_name, key.mask), {})[key.value] = block
    return Sources(tuple((field, mask, found) for (field, mask), found in by_mask.items()))


def _values(fields: _Fields, masks: _Masks) -> tuple[int, ...] | None:
    """The values under all masks; None: the megaflow does not match all those bits."""
    values = []
    for field, mask in masks:
        found = fields.get(field)
        if found is None or found.mask & mask != mask:
            return None
        values.append(found.value & mask)
    return tuple(values)


# Whether the packets of a megaflow go to a next hop: the only translation of next hops into datapath actions.


_DESTINATION = re.compile(r"dst=((?:[0-9a-f]{2}:){5}[0-9a-f]{2})", re.ASCII)
_UNTOLD = re.compile(r"(?:recirc|slow_path|clone|check_pkt_len)\(")


def delivers(megaflow: Megaflow, fields: Mapping[str, MaskedValue], block: ExpectedBlock) -> bool:
    """Whether packets go to a next hop of the block. `fields`: the match of the megaflow."""
    return any(_delivers_to(megaflow, fields, hop) for hop in block.hops)


def _delivers_to(megaflow: Megaflow, fields: Mapping[str, MaskedValue], hop: NextHop) -> bool:
    mac, port = hop.mac.value, hop.port
    if len(megaflow.actions) == 1 and "(" not in megaflow.actions[0] and port != megaflow.actions[0]:
        return False
    came_with = fields.get("dl_dst")
    for written in _leaves_with(megaflow.actions, port):
        # A packet that comes with the backend's MAC already is not rewritten.
        if written == mac or (written is None and came_with is not None and came_with.value == mac):
            return True
    return False


@lru_cache(maxsize=1024)
def is_slow(actions: tuple[str, ...]) -> bool:
    """Whether each packet goes through ovs-vswitchd itself."""
    return any(action.startswith("userspace(") for action in actions)


@lru_cache(maxsize=1024)
def is_untold(actions: tuple[str, ...]) -> bool:
    """Whether what becomes of the packets is not in these actions: another megaflow, or a condition, decides it."""
    return any(map(_UNTOLD.search, actions))


@lru_cache(maxsize=1024)
def _leaves_with(actions: tuple[str, ...], egress: str) -> tuple[int | None, ...]:
    """The MACs that copies leave with by the port; None: the one that they came with. Actions work in their order."""
    # Behind a tunnel the port has a name that Open vSwitch chose.
    is_tunnel = any(action.startswith(("set(tunnel(", "tnl_push(")) for action in actions)
    written: int | None = None
    found = list[int | None]()
    for action in actions:
        if action.startswith("set(eth(") and (rewritten := _DESTINATION.search(action)):
            written = int(rewritten[1].replace(":", ""), 16)
        elif action == egress:
            found.append(written)
    return (*found, written) if is_tunnel else tuple(found)
