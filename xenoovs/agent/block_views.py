"""The blocks of one service, with where they lie and what the last look found of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from xenoovs.agent.snapshot import BlockView
from xenoovs.compile.key import block_of, key_match
from xenoovs.compile.program import BlockFlow, ServiceProgram
from xenoovs.verify.findings import BlockOffload
from xenoovs.verify.verdict import Verdict


def block_views(program: ServiceProgram, found: Iterable[BlockOffload]) -> tuple[BlockView, ...]:
    """In the order of the key space. `found`: of this service, empty while nobody has looked."""
    worst, service = _worst(found), program.service
    parts = 1 << max((block.rule.depth for block in program.blocks), default=0)
    views = []
    for block in {block.rule: block for block in program.blocks}.values():
        start, size = _interval(block, program, parts)
        own = key_match(service.key.field, service.claim.served_families[0], block.rule.value, block.rule.mask)
        verdict, name = worst.get((own.value, own.mask)), own.field.ovs_name
        views.append(BlockView(own.value, own.mask, start / parts, size / parts, block.backend.name, name, verdict))
    return tuple(sorted(views, key=lambda view: view.start))


def _interval(block: BlockFlow, program: ServiceProgram, parts: int) -> tuple[int, int]:
    """Start and size in the smallest parts of the key space that there are."""
    found, width = block_of(block.rule.value, block.rule.mask, program.service.key), parts.bit_length() - 1
    return found.start(width), found.size(width)


def _worst(found: Iterable[BlockOffload]) -> dict[tuple[int, int], Verdict]:
    """By value and mask: where a service has several entries, a block has one verdict for each."""
    worst: dict[tuple[int, int], Verdict] = {}
    for seen in found:
        place = seen.block.key.value, seen.block.key.mask
        if place not in worst or seen.verdict.badness > worst[place].badness:
            worst[place] = seen.verdict
    return worst
