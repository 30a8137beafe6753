"""Plans of hand-written flows, and the order of their bundles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from ipaddress import IPv4Address

import pytest

from tests.compiled import compiled, draining, observed
from tests.flow_oracle import blocks_by_service, moved, pieces
from tests.unit.balancer import backends, balancer, claim, program, service
from xenoovs.compile.plan import ChangeKind, FlowChange, ServiceChange, bundle_of, plan, summarise
from xenoovs.compile.program import Program
from xenoovs.compile.read import read
from xenoovs.decision.advance import Progress
from xenoovs.errors import FlowConflict
from xenoovs.model.address import Family, Mac
from xenoovs.model.balancer import Backend, Balancer, BlockKey, Claim, Drain, DrainMode, OtherTraffic, Service, Uplinks
from xenoovs.model.next_hop import Direct, with_mac
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


def test_added_changed_removed_unchanged() -> None:
    difference = plan([A, B_ELSEWHERE], [A, B, C])
    assert (difference.added, difference.changed, difference.removed) == ((), (FlowChange(B, B_ELSEWHERE),), (C,))
    assert (difference.unchanged, difference.flow_mods, difference.is_empty) == (1, 2, False)


def test_flow_mods_are_counted_for_each_service() -> None:
    other = flow("priority=5,ip,reg0=0x2", cookie="cookie=0x786f010100000002")
    common = flow("priority=1,in_port=p0", cookie="cookie=0x786f010000000000", table=0)
    assert plan([A, B_ELSEWHERE, common], [A, B, C, other]).flow_mods_by_service() == {0: 1, 1: 2, 2: 1}


def test_new_actions_are_a_modify_that_keeps_counters() -> None:
    (mod,) = bundle_of(plan([B_ELSEWHERE], [B])).mods
    assert render_flow_mod(mod) == (
        "modify_strict table=1,priority=999,ip,reg0=0x1,nw_src=0.0.0.1/0.0.0.1 actions=output:p2"
    )


def test_a_new_cookie_is_an_add_because_a_modify_cannot_give_one() -> None:
    newer = flow("priority=999,ip,reg0=0x1,nw_src=0.0.0.0/0.0.0.1", cookie=NEWER)
    assert mods([newer], [A]) == ["add 1/999"]


def test_an_add_removes_a_foreign_time_out() -> None:
    """A modify would keep the time-out, and the flow would expire."""
    fading = flow("idle_timeout=60, priority=999,ip,reg0=0x1,nw_src=0.0.0.0/0.0.0.1")
    assert mods([A], [fading]) == ["add 1/999"]


@pytest.mark.parametrize("cookie", ["cookie=0x1", "cookie=0x786e010100000001", "cookie=0x0"])
def test_flows_of_others_are_left_alone(cookie: str) -> None:
    assert plan([], [flow("priority=7,ip", cookie=cookie)]).is_empty


def test_a_flow_of_others_is_not_replaced() -> None:
    difference = plan([A, B], [THEIRS])
    assert (difference.blocked, difference.added, difference.unchanged) == ((THEIRS,), (B,), 0)


def test_a_flow_of_others_in_the_place_of_ours_is_named() -> None:
    with pytest.raises(FlowConflict) as caught:
        plan([A], [THEIRS]).require_free()
    assert caught.value.flow == "cookie=0x2a, table=1, priority=999,ip,reg0=0x1,nw_src=0.0.0.0/0.0.0.1 actions=drop"


def test_adds_go_from_the_last_table_and_the_highest_priority_and_deletes_the_other_way_round() -> None:
    """No packet is sent to blocks that are not there, or to a rule that a longer one shall override."""
    default, longer = flow("priority=1000,ip"), flow("priority=1003,ip,reg0=0x1")
    classify = flow("priority=9,ip", table=0)
    assert mods([classify, default, longer], []) == ["add 1/1003", "add 1/1000", "add 0/9"]
    removed = mods([], [longer, default, classify])
    assert removed == ["delete_strict 0/9", "delete_strict 1/1000", "delete_strict 1/1003"]
    assert mods([A, B_ELSEWHERE], [B, C]) == ["add 1/999", "modify_strict 1/999", "delete_strict 1/998"]


VIP = IPv4Address("192.0.2.1")
TWO = service(claim(VIP), 1, 1)
NOTHING, HALF, ALL = Fraction(0), Fraction(1, 2), Fraction(1)


def changes(made: Program, installed: Sequence[Flow]) -> Iterator[ServiceChange]:
    """What becomes of a bridge with these flows."""
    before, _ = read(observed(installed), balancer(*(each.service for each in made.services)))
    return summarise(made, before, installed)


def test_a_new_service() -> None:
    (change,) = changes(program(TWO), [])
    assert (change.kind, change.moved, change.blocks_before, change.blocks_after) == (ChangeKind.NEW, NOTHING, 0, 2)
    assert [(b.name, b.target, b.before, b.after) for b in change.backends] == [
        ("b0", HALF, NOTHING, HALF),
        ("b1", HALF, NOTHING, HALF),
    ]


def test_the_same_service_under_another_name() -> None:
    (change,) = changes(program(replace(TWO, name="new-name")), program(TWO).flows)
    assert (change.name, change.kind, change.moved) == ("new-name", ChangeKind.SAME, NOTHING)


def test_a_service_that_is_gone() -> None:
    (change,) = changes(program(), program(TWO).flows)
    assert (change.kind, change.blocks_before, change.blocks_after, change.hardware_entries) == (
        ChangeKind.REMOVED,
        2,
        0,
        0,
    )
    assert (change.hardware_entries_before, change.most_entries) == (2, change.hardware_entries)
    assert [(b.target, b.before, b.after) for b in change.backends] == [(None, HALF, NOTHING)] * 2


def test_a_replaced_server_moves_its_clients() -> None:
    first, second = backends(1, 1)
    changed = replace(TWO, backends=(first, replace(second, next_hop=with_mac(second.next_hop, Mac(0x0B0000000001)))))
    (change,) = changes(program(changed), program(TWO).flows)
    assert (change.kind, change.moved) == (ChangeKind.CHANGED, HALF)
    assert [(b.name, b.before, b.after) for b in change.backends] == [
        ("b0", HALF, HALF),
        ("b1", NOTHING, HALF),
        ("(not in the config)", HALF, NOTHING),
    ]


def test_equal_backends_that_change_places_move() -> None:
    """The order of backends decides which one gets a block; the plan must show the cost of a swap."""
    swapped = replace(TWO, backends=tuple(reversed(TWO.backends)))
    (change,) = changes(program(swapped), program(TWO).flows)
    assert (change.kind, change.moved) == (ChangeKind.CHANGED, ALL)


def test_entries_before_are_those_that_were_predicted_then() -> None:
    vips = (VIP, IPv4Address("192.0.2.2"))
    old = service(claim(*vips), 1, 2, 4)
    new = replace(old, backends=backends(1, 1, 1))
    (then,) = changes(program(old), [])
    (now,) = changes(program(new), program(old).flows)
    assert (then.hardware_entries_before, now.hardware_entries_before) == (0, then.hardware_entries)


def test_another_source_mac_is_a_change_that_moves_no_client() -> None:
    (change,) = changes(program(replace(TWO, source_mac=Mac(0x0B0000000001))), program(TWO).flows)
    assert (change.kind, change.moved) == (ChangeKind.CHANGED, NOTHING)


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


def test_another_key_moves_clients() -> None:
    """Of two backends, half of the clients have the other one by another bit."""
    (change,) = changes(program(replace(TWO, key=BlockKey(positions=(7,)))), program(TWO).flows)
    assert (change.kind, change.moved) == (ChangeKind.CHANGED, HALF)


def test_ejected_backends_come_in_the_order_of_the_config() -> None:
    named = tuple(replace(one, name=name) for one, name in zip(backends(1, 1, 1), "zax", strict=True))
    three = replace(TWO, backends=named)
    ejected = compiled(balancer(three), ejected={"s": frozenset("za")})
    (change,) = changes(ejected, program(three).flows)
    assert change.ejected == ("z", "a")


WEIGHTS = (128, 64, 32, 16, 8, 4, 2, 1, 1)


def balancer_of(weights: Sequence[int], *, macs: Sequence[int] = range(100), max_flows: int | None = None) -> Balancer:
    backends = tuple(
        Backend(f"b{i}", Direct(Mac(0x020000000000 + mac), "p1"), Fraction(weight))
        for i, (weight, mac) in enumerate(zip(weights, macs, strict=False))
    )
    service = Service("nine", Claim(frozenset({Family.IPV4})), backends, max_flows=max_flows)
    return Balancer(Uplinks("ovsbr1", ("p0",), "p1", OtherTraffic.PASSTHROUGH), (service,))


def share_moved(before: Sequence[Flow], after: Sequence[Flow]) -> Fraction:
    (old,), (new,) = (blocks_by_service(flows).values() for flows in (before, after))
    return moved(pieces(old), pieces(new))


@pytest.fixture
def installed() -> tuple[Flow, ...]:
    return compiled(balancer_of(WEIGHTS)).flows


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        pytest.param(WEIGHTS, Fraction(0), id="nothing changed"),
        pytest.param((127, 64, 32, 16, 8, 4, 2, 1, 1), Fraction(0), id="still within the tolerance"),
        pytest.param((128, 64, 0, 16, 8, 4, 2, 1, 1), Fraction(32, 256), id="a backend drained: exactly its clients"),
    ],
)
def test_clients_moved(installed: tuple[Flow, ...], weights: Sequence[int], expected: Fraction) -> None:
    after = compiled(balancer_of(weights), installed=installed).flows
    assert share_moved(installed, after) == expected


def test_nested_rules_of_versions_before_0015_keep_their_clients() -> None:
    """They stand in table 3: b1 has every eighth address."""
    balancer = balancer_of((7, 1))
    (service,) = compiled(balancer).services
    match = f"ip,reg0={service.service_id:#x}"
    nested = [
        parse_flow(f"cookie={0x786F_0103 << 32 | service.service_id:#x}, table=3, {text},output:p1")
        for text in (
            f"priority=1000,{match} actions=mod_dl_dst:02:00:00:00:00:00",
            f"priority=1003,{match},nw_src=0.0.0.5/0.0.0.7 actions=mod_dl_dst:02:00:00:00:00:01",
        )
    ]
    after = compiled(balancer, installed=nested).flows
    assert share_moved(nested, after) == 0
    assert set(plan(after, nested).removed) == set(nested)


def test_a_doubled_small_weight_moves_less_than_a_new_layout(installed: tuple[Flow, ...]) -> None:
    changed = balancer_of((128, 64, 32, 16, 8, 4, 2, 2, 1))
    near, fresh = compiled(changed, installed=installed).flows, compiled(changed).flows
    assert share_moved(installed, near) == Fraction(2, 256)
    assert share_moved(installed, fresh) == Fraction(47, 256)


def test_a_new_mac_changes_the_flows_of_that_backend_and_no_other(installed: tuple[Flow, ...]) -> None:
    changed = balancer_of(WEIGHTS, macs=(0, 1, 2, 99, 4, 5, 6, 7, 8))
    difference = plan(compiled(changed, installed=installed).flows, installed)
    assert (len(difference.added), len(difference.changed), len(difference.removed)) == (0, 1, 0)


def test_a_budget_that_the_installed_blocks_exceed_gives_a_new_layout() -> None:
    equal = compiled(balancer_of((1,) * 7)).flows
    within = compiled(balancer_of((1,) * 7, max_flows=8), installed=equal)
    assert len(within.services[0].blocks) <= 8


def test_flows_of_other_bits_are_no_help() -> None:
    prefixes = compiled(balancer_of((1, 1))).flows
    foreign = [flow for flow in prefixes if flow.table == 0]
    assert compiled(balancer_of((1, 1)), installed=foreign).flows == prefixes
