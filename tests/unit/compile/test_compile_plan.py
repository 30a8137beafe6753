"""Plans of hand-written flows, and the order of their bundles."""

from __future__ import annotations

import pytest

from xenoovs.compile.plan import FlowChange, bundle_of, plan
from xenoovs.errors import FlowConflict
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


def test_another_priority_is_another_flow() -> None:
    moved = flow("priority=997,ip,reg0=0x1,nw_src=0.0.0.0/0.0.0.1")
    assert plan([moved], [A]).added == (moved,)
    assert plan([moved], [A]).removed == (A,)


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


def test_removed_flows_come_in_one_order_however_they_were_read() -> None:
    assert plan([], [C, B, A]).removed == plan([], [A, C, B]).removed == (A, B, C)


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


def test_adds_go_from_the_last_table_and_the_highest_priority() -> None:
    """No packet is sent to blocks that are not there, or to a rule that a longer one shall override."""
    classify, default, longer = (
        flow("priority=9,ip", table=0),
        flow("priority=1000,ip"),
        flow("priority=1003,ip,reg0=0x1"),
    )
    assert mods([classify, default, longer], []) == ["add 1/1003", "add 1/1000", "add 0/9"]


def test_deletes_go_the_other_way_round() -> None:
    classify, default, longer = (
        flow("priority=9,ip", table=0),
        flow("priority=1000,ip"),
        flow("priority=1003,ip,reg0=0x1"),
    )
    assert mods([], [longer, default, classify]) == [
        "delete_strict 0/9",
        "delete_strict 1/1000",
        "delete_strict 1/1003",
    ]


def test_adds_then_changes_then_deletes() -> None:
    assert mods([A, B_ELSEWHERE], [B, C]) == ["add 1/999", "modify_strict 1/999", "delete_strict 1/998"]
