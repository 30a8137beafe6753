"""Plans of hand-written flows, and the order of their bundles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from ipaddress import IPv4Address

import pytest

from tests.compiled import compiled, draining, observed
from tests.unit.balancer import backends, balancer, claim, program, service
from xenoovs.compile.pipeline import Stage
from xenoovs.compile.plan import ChangeKind, ServiceChange, bundle_of, plan, summarise
from xenoovs.compile.program import Program
from xenoovs.compile.read import read, stage_number
from xenoovs.decision.advance import Progress
from xenoovs.errors import FlowConflict
from xenoovs.model.address import Mac
from xenoovs.model.balancer import BlockKey, Drain, DrainMode, Service
from xenoovs.model.next_hop import with_mac
from xenoovs.openflow.flow import Flow
from xenoovs.openflow.text import parse_flow, render_flow_mod

OURS, NEWER = "cookie=0x786f010100000001", "cookie=0x786f020100000001"


def flow(conditions: str, actions: str = "output:p1", *, cookie: str = OURS, table: int = 1) -> Flow:
    return parse_flow(f"{cookie}, table={table}, {conditions} actions={actions}")


A = flow("priority=999,ip,reg0=0x1,nw_src=0.0.0.0/0.0.0.1")
B = flow("priority=999,ip,reg0=0x1,nw_src=0.0.0.1/0.0.0.1")
C = flow("priority=998,ip,reg0=0x1,nw_src=0.0.0.3/0.0.0.3")
B_ELSEWHERE = flow("priority=999,ip,reg0=0x1,nw_src=0.0.0.1/0.0.0.1", "output:p2")
THEIRS = flow("priority=999,ip,reg0=0x1,nw_src=0.0.0.0/0.0.0.1", "drop", cookie="cookie=0x2a")


def mods(desired: list[Flow], observed: list[Flow]) -> list[str]:
    """Command and priority of each flow-mod."""
    texts = [render_flow_mod(mod) for mod in bundle_of(plan(desired, observed)).mods]
    return [
        f"{text.split()[0]} {text.split('table=')[1].split(',')[0]}/{text.split('priority=')[1].split(',')[0]}"
        for text in texts
    ]


def test_flow_mods_are_counted_for_each_service() -> None:
    other = flow("priority=5,ip,reg0=0x2", cookie="cookie=0x786f010100000002")
    common = flow("priority=1,in_port=p0", cookie="cookie=0x786f010000000000", table=0)
    assert plan([A, B_ELSEWHERE, common], [A, B, C, other]).flow_mods_by_service() == {0: 1, 1: 2, 2: 1}


def test_a_flow_of_others_is_not_replaced_but_named() -> None:
    difference = plan([A, B], [THEIRS])
    assert (difference.blocked, difference.added, difference.unchanged) == ((THEIRS,), (B,), 0)
    with pytest.raises(FlowConflict) as caught:
        difference.require_free()
    assert caught.value.flow == "cookie=0x2a, table=1, priority=999,ip,reg0=0x1,nw_src=0.0.0.0/0.0.0.1 actions=drop"


FADING = flow("idle_timeout=60, priority=999,ip,reg0=0x1,nw_src=0.0.0.0/0.0.0.1")


@pytest.mark.parametrize(
    ("desired", "installed", "sent"),
    [
        # A modify gives no cookie, and keeps a time-out of others.
        ([flow("priority=999,ip,reg0=0x1,nw_src=0.0.0.0/0.0.0.1", cookie=NEWER)], [A], ["add 1/999"]),
        ([A], [FADING], ["add 1/999"]),
        ([A, B_ELSEWHERE], [B, C], ["add 1/999", "modify_strict 1/999", "delete_strict 1/998"]),
    ],
    ids=["a new cookie", "a foreign time-out", "adds, changes, deletes"],
)
def test_the_flow_mods_of_a_plan_and_their_order(desired: list[Flow], installed: list[Flow], sent: list[str]) -> None:
    assert mods(desired, installed) == sent


VIP = IPv4Address("192.0.2.1")
TWO = service(claim(VIP), 1, 1)
NOTHING, HALF, ALL = Fraction(0), Fraction(1, 2), Fraction(1)


def changes(made: Program, installed: Sequence[Flow]) -> Iterator[ServiceChange]:
    """What becomes of a bridge with these flows."""
    before, _ = read(observed(installed), balancer(*(each.service for each in made.services)))
    return summarise(made, before, installed)


NEW, SAME, CHANGED, REMOVED = ChangeKind.NEW, ChangeKind.SAME, ChangeKind.CHANGED, ChangeKind.REMOVED
FIRST, SECOND = backends(1, 1)
SERVED = [("b0", HALF, HALF), ("b1", HALF, HALF)]
OTHER_SERVER = replace(SECOND, next_hop=with_mac(SECOND.next_hop, Mac(0x0B0000000001)))


@pytest.mark.parametrize(
    ("made", "kind", "moved", "shares"),
    [
        (replace(TWO, name="new-name"), SAME, NOTHING, SERVED),
        (
            replace(TWO, backends=(FIRST, OTHER_SERVER)),
            CHANGED,
            HALF,
            [("b0", HALF, HALF), ("b1", NOTHING, HALF), ("(not in the config)", HALF, NOTHING)],
        ),
        # The order of backends decides which one gets a block; the plan must show the cost of a swap.
        (replace(TWO, backends=(SECOND, FIRST)), CHANGED, ALL, [("b1", HALF, HALF), ("b0", HALF, HALF)]),
        (replace(TWO, source_mac=Mac(0x0B0000000001)), CHANGED, NOTHING, SERVED),
        # Of two backends, half of the clients have the other one by another bit.
        (replace(TWO, key=BlockKey(positions=(7,))), CHANGED, HALF, SERVED),
    ],
    ids=["another name", "another server", "backends that change places", "another source MAC", "another key"],
)
def test_what_becomes_of_a_service(
    made: Service, kind: ChangeKind, moved: Fraction, shares: list[tuple[str, Fraction, Fraction]]
) -> None:
    (change,) = changes(program(made), program(TWO).flows)
    assert (change.name, change.kind, change.moved) == (made.name, kind, moved)
    assert [(each.name, each.before, each.after) for each in change.backends] == shares


def test_clients_that_nobody_served_do_not_count_as_moved() -> None:
    *others, _ = (flow for flow in program(TWO).flows if stage_number(flow) == Stage.BALANCE.value)
    classify = (flow for flow in program(TWO).flows if stage_number(flow) == Stage.CLASSIFY.value)
    (change,) = changes(program(TWO), [*classify, *others])
    assert (change.kind, change.moved, change.least_moved) == (CHANGED, NOTHING, NOTHING)
    assert sorted(each.before for each in change.backends) == [NOTHING, HALF]


def test_a_service_that_is_new_and_one_that_is_gone() -> None:
    (new,), (gone,) = changes(program(TWO), []), changes(program(), program(TWO).flows)
    assert (new.kind, new.moved, new.blocks_before, new.blocks_after) == (NEW, NOTHING, 0, 2)
    assert [(b.name, b.target, b.before, b.after) for b in new.backends] == [
        ("b0", HALF, NOTHING, HALF),
        ("b1", HALF, NOTHING, HALF),
    ]
    assert (gone.kind, gone.blocks_before, gone.blocks_after) == (REMOVED, 2, 0)
    assert (gone.hardware_entries_before, gone.hardware_entries, gone.most_entries) == (2, 0, 0)
    assert [(b.target, b.before, b.after) for b in gone.backends] == [(None, HALF, NOTHING)] * 2


def test_entries_before_are_those_that_were_predicted_then() -> None:
    vips = (VIP, IPv4Address("192.0.2.2"))
    old = service(claim(*vips), 1, 2, 4)
    new = replace(old, backends=backends(1, 1, 1))
    (then,) = changes(program(old), [])
    (now,) = changes(program(new), program(old).flows)
    assert (then.hardware_entries_before, now.hardware_entries_before) == (0, then.hardware_entries)


def test_ejected_backends_come_in_the_order_of_the_config() -> None:
    named = tuple(replace(one, name=name) for one, name in zip(backends(1, 1, 1), "zax", strict=True))
    three = replace(TWO, backends=named)
    (change,) = changes(compiled(balancer(three), ejected={"s": frozenset("za")}), program(three).flows)
    assert change.ejected == ("z", "a")


def test_a_drain_that_goes_on_or_ends_is_no_change() -> None:
    """Blocks count as they are once it is over: clients moved when it began."""
    before = replace(TWO, backends=backends(1, 1, 0), drain=Drain(DrainMode.PIN))
    after, progress = balancer(replace(before, backends=backends(1, 0, 1))), Progress(0.0, {"p0", "p1"})
    made, installed = [], program(before).flows
    for age_s in (0.0, 30.0, 90.0):
        made.append(draining(after, observed(installed, age_s=age_s), progress, ofports={}))
        (change,) = changes(made[-1], installed)
        assert (change.kind, change.moved) == ((ChangeKind.SAME, NOTHING) if age_s else (ChangeKind.CHANGED, HALF))
        installed = made[-1].flows
    assert [len(each.services[0].moves) for each in made] == [1, 1, 0]


def test_a_budget_that_the_installed_blocks_exceed_gives_a_new_layout() -> None:
    equal = service(claim(), *(1,) * 7)
    within = compiled(balancer(replace(equal, max_flows=8)), installed=program(equal).flows)
    assert len(program(equal).services[0].blocks) > 8 >= len(within.services[0].blocks)
