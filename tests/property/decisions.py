"""Strategies: decisions and transitions that are valid for a balancer, also ones that its weights do not give."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from tests.strategies import EGRESS, INGRESS
from xenoovs.decision.decision import BlockMove, Blocks, Decision, Phase, ServiceDecision, Transition
from xenoovs.model.balancer import Balancer, Protocol, Service, service_ids
from xenoovs.partition.block import Block

NOW_S = 1000.0
OFPORTS = {port: number for number, port in enumerate(sorted({*EGRESS, *INGRESS}), start=1)}
UNKNOWN_HOP = "0e:00:00:00:00:01@p1"
"""An owner that no backend is: the text of a next hop."""


@st.composite
def tilings(draw: st.DrawFn, *, most_depth: int) -> list[Block]:
    """Prefix-free blocks that cover all clients."""
    blocks = [Block(0, 0)]
    for _ in range(draw(st.integers(0, 10))):
        index = draw(st.integers(0, len(blocks) - 1))
        block = blocks[index]
        if block.depth < most_depth:
            halves = [Block(block.value | side << block.depth, block.depth + 1) for side in (0, 1)]
            blocks[index : index + 1] = halves
    return blocks


@st.composite
def owned(draw: st.DrawFn, tiles: Sequence[Block], owners: Sequence[str | None]) -> Blocks:
    chosen = [(block, draw(st.sampled_from(owners))) for block in tiles]
    return Blocks.of((block, owner) for block, owner in chosen if owner is not None)


@st.composite
def service_decisions(draw: st.DrawFn, service: Service) -> ServiceDecision:
    """Where `home` has no block, `active` has none either."""
    names = [*(backend.name for backend in service.backends), UNKNOWN_HOP]
    tiles = draw(tilings(most_depth=min(service.key.max_width, 7)))
    home = draw(owned(tiles, (*names, None)))
    if draw(st.booleans()):
        return ServiceDecision(service.key, home, home)
    cover = draw(tilings(most_depth=min(service.key.max_width, 7)))
    other = draw(owned(cover, (*names, None)))
    served = {block for block, _ in home.rows}
    parts = [(part, owner) for _, part, owner in other.within(served)]
    return ServiceDecision(service.key, home, Blocks.of((part, owner) for part, owner in parts if owner is not None))


@st.composite
def moves_of(draw: st.DrawFn, service: Service, active: Blocks) -> tuple[BlockMove, ...]:
    names = [*(backend.name for backend in service.backends), UNKNOWN_HOP]
    learns = service.claim.protocol in (None, Protocol.TCP)
    found = []
    for block, new in active.rows:
        part = block
        while part.depth < service.key.max_width and draw(st.integers(0, 2)) == 0:
            part = Block(part.value | draw(st.integers(0, 1)) << part.depth, part.depth + 1)
        if draw(st.booleans()):
            old = draw(st.sampled_from(names))
            phase = draw(st.sampled_from(Phase)) if learns and old != new else Phase.OPEN
            found.append(BlockMove(part, old, NOW_S - draw(st.integers(0, 500)), phase))
    return tuple(found)


@st.composite
def decided(draw: st.DrawFn, balancer: Balancer) -> tuple[Decision, Transition]:
    """A decision for every service, and blocks on their way."""
    ids = service_ids(service.claim for service in balancer.services)
    decisions = {ids[service.claim]: draw(service_decisions(service)) for service in balancer.services}
    moves = {
        ids[service.claim]: draw(moves_of(service, decisions[ids[service.claim]].active))
        for service in balancer.services
    }
    return Decision.of(decisions), Transition.of(moves)
