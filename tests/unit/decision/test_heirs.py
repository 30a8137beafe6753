"""Who gets the blocks of a backend or of a path that is gone."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from tests.tunnels import tunnelled
from tests.unit.balancer import balancer, claim, service
from xenoovs.decision.decide import decide
from xenoovs.decision.decision import Decision, DesiredState
from xenoovs.model.address import Mac
from xenoovs.model.next_hop import Direct
from xenoovs.model.remote import remotes_of


def test_the_largest_new_backend_takes_over_from_the_largest_that_is_gone() -> None:
    made = service(claim(), 1, 3, 4)
    before = decide(Decision(), DesiredState(balancer(made)))
    ((_, old),) = before.services
    small, large, stays = made.backends
    others = tuple(
        replace(each, name=f"new-{each.name}", next_hop=Direct(Mac(0x0A0000000100 + number), "p1"))
        for number, each in enumerate((small, large))
    )
    after = decide(before, DesiredState(balancer(replace(made, backends=(*others, stays)))))
    ((_, new),) = after.services
    renamed = {"b0": "new-b0", "b1": "new-b1", "b2": "b2"}
    assert new.active == old.active.renamed(renamed)


def test_the_blocks_of_a_path_that_is_gone_are_spread_over_all_others() -> None:
    made = tunnelled()
    ((_, _, remote),) = remotes_of(made)
    before = decide(Decision(), DesiredState(made))
    gone, *others = (backend.name for backend in remote.backends)
    after = decide(before, DesiredState(made, ejected={remote.name: frozenset({gone})}))
    ((_, found),) = after.services
    shares = found.active.shares()
    assert shares.keys() == set(others)
    assert max(shares.values()) - min(shares.values()) <= Fraction(1, 1 << remote.key.max_width)
