"""Backends behind ports without link are out, as long as somebody is left."""

from __future__ import annotations

from fractions import Fraction

import pytest

from xenoovs.agent.aim import Aim
from xenoovs.agent.clock import MonotonicClock
from xenoovs.agent.links import with_links
from xenoovs.agent.watch import Watch
from xenoovs.compile.program import Outages
from xenoovs.model.address import Family, Mac
from xenoovs.model.backend import Backend
from xenoovs.model.balancer import Balancer, OtherTraffic, Uplinks
from xenoovs.model.next_hop import Direct
from xenoovs.model.service import Claim, Service

_BACKENDS = tuple(
    Backend(name, Direct(Mac(number), egress), Fraction(weight))
    for number, (name, weight, egress) in enumerate(
        (("a", 1, "p1"), ("b", 1, "p2"), ("c", 1, "p2"), ("unused", 0, "p1")), start=1
    )
)
_BALANCER = Balancer(
    Uplinks("ovsbr1", ("p0",), "p1", OtherTraffic.DROP),
    (Service("web", Claim(frozenset({Family.IPV4}), (), None, ()), _BACKENDS),),
)


@pytest.mark.parametrize(
    ("fallen", "down", "out"),
    [
        ("", "", ""),
        ("", "p2", "bc"),
        ("", "p1", "a"),
        ("b", "p1", "ab"),
        ("a", "p2", "a"),
        ("", "p1 p2", ""),
        ("abc", "p1", "abc"),
        ("", "p9", ""),
    ],
)
def test_who_is_out(fallen: str, down: str, out: str) -> None:
    told: Outages = {"web": frozenset(fallen)}
    assert with_links(_BALANCER, told, frozenset(down.split())) == {"web": frozenset(out)}


def test_what_is_desired_knows_of_ports() -> None:
    down = {"ovsbr1": frozenset({"p2"})}
    aim = Aim(Watch(), MonotonicClock(), lambda bridge: down.get(bridge, frozenset()))
    aim.follow(_BALANCER, (), {})
    assert aim.desired(_BALANCER, ()).out == {"web": frozenset("bc")}
    assert aim.trial(_BALANCER, (), {}).out == {"web": frozenset("bc")}
    down.clear()
    assert aim.desired(_BALANCER, ()).out == {"web": frozenset()}
