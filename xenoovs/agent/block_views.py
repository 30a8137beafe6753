"""The blocks of one service, with where they lie and what the last look found of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from xenoovs.agent.snapshot import BlockView
from xenoovs.compile.assign import ServiceAssignment
from xenoovs.compile.key import block_of, key_match
from xenoovs.compile.program import ServiceProgram
from xenoovs.model.service import Service
from xenoovs.verify.findings import BlockOffload
from xenoovs.verify.verdict import Verdict


def block_views(program: ServiceProgram, found: Iterable[BlockOffload]) -> tuple[BlockView, ...]:
    """In the order of the key space. `found`: of this service, empty while nobody has looked."""
    worst = _worst(found)
    names = [backend.name for backend in program.service.backends]
    parts = 1 << program.assignment.width
    return tuple(
        BlockView(value, mask, start / parts, -size / parts, names[owner], worst.get((value, mask)))
        for start, size, value, mask, owner in sorted(_places(program.service, program.assignment))
    )


def _worst(found: Iterable[BlockOffload]) -> dict[tuple[int, int], Verdict]:
    """By value and mask: where a service has several entries, a block has one verdict for each."""
    worst: dict[tuple[int, int], Verdict] = {}
    for seen in found:
        place = seen.block.key.value, seen.block.key.mask
        if place not in worst or seen.verdict.badness > worst[place].badness:
            worst[place] = seen.verdict
    return worst


def _places(service: Service, assignment: ServiceAssignment) -> Iterator[tuple[int, int, int, int, int]]:
    """Start, negative size (so that a block sorts before those within it), value, mask and owner of each rule.

    Start and size in the smallest parts of the key space that there are.
    """
    for rule in assignment.rules:
        block = block_of(rule.value, rule.mask, service.key)
        size = 1 << assignment.width - block.depth
        own = key_match(service.key.field, service.claim.served_families[0], rule.value, rule.mask)
        yield block.start(assignment.width), -size, own.value, own.mask, rule.owner
