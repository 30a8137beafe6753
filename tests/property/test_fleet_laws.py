"""The laws of a fleet's changes: computed once or again they are the same, and a lost race costs no movement."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from tests import fleet_support
from tests.fleet_support import EMPTY, committed
from tests.strategies import balancers, edits
from xenoovs.compile.program import compile_program
from xenoovs.config.emit import render_config
from xenoovs.config.fleet import NEUTRAL
from xenoovs.decision.decide import decide
from xenoovs.decision.decision import DesiredState, ServiceDecision, moved
from xenoovs.errors import ConfigError, XenoovsError
from xenoovs.fleet.change import next_change, parse_intent
from xenoovs.fleet.services import ViewReader, decision_of, digest
from xenoovs.model.balancer import Balancer
from xenoovs.store.view import FleetView, StoredService


def text_of(balancer: Balancer) -> str:
    """The config of a balancer, if there is one."""
    text = ""
    try:
        text = render_config(balancer)
        parse_intent(text, file="drawn")
    except (ValueError, ConfigError):
        assume(False)
    return text


@st.composite
def views(draw: st.DrawFn) -> tuple[FleetView, Balancer]:
    """A fleet with some services."""
    balancer = draw(balancers(most=3).filter(lambda balancer: balancer.services))
    return fleet_support.settled(fleet_support.given(EMPTY, text_of(balancer))), balancer


@given(st.data(), views())
def test_the_same_view_gives_the_same_change_and_a_settled_one_none(
    data: st.DataObject, drawn: tuple[FleetView, Balancer]
) -> None:
    view, balancer = drawn
    later = fleet_support.given(view, text_of(data.draw(edits(balancer))))
    change = next_change(later)
    assert next_change(later) == change
    assert next_change(committed(later, change.changes)).is_empty


@given(st.data(), views())
def test_a_refused_change_is_computed_anew_from_what_the_other_writer_left(
    data: st.DataObject, drawn: tuple[FleetView, Balancer]
) -> None:
    """Two controllers saw one view; the second is refused, reads, and has nothing to do."""
    view, balancer = drawn
    later = fleet_support.given(view, text_of(data.draw(edits(balancer))))
    first = committed(later, next_change(later).changes)
    assert first.generation == later.generation + 1
    assert next_change(first).is_empty


@given(st.data(), views())
def test_no_more_clients_move_than_on_one_bridge(data: st.DataObject, drawn: tuple[FleetView, Balancer]) -> None:
    view, balancer = drawn
    text = text_of(data.draw(edits(balancer)))
    after = fleet_support.settled(fleet_support.given(view, text))
    old, stored = ViewReader().read(view.services.values(), NEUTRAL, file="old")
    new, assigned = ViewReader().read(after.services.values(), NEUTRAL, file="new")
    alone = decide(decision_of(old, stored), DesiredState(new))
    theirs, ours = dict(alone.services), dict(decision_of(new, assigned).services)
    before = dict(decision_of(old, stored).services)
    for service_id in before.keys() & ours.keys():
        assert moved(before[service_id], ours[service_id]) <= moved(before[service_id], theirs[service_id])


@given(views())
def test_what_flows_say_has_the_digest_of_what_is_stored(drawn: tuple[FleetView, Balancer]) -> None:
    view, _ = drawn
    local = NEUTRAL.replace("egress: egress", "egress: p1")
    config, stored = ViewReader().read(view.services.values(), local, file="local")
    program = compile_program(config, decide(decision_of(config, stored), DesiredState(config, stored=stored)))
    for made in program.services:
        name = made.service.name
        assert digest(name, made.decision) == digest(name, stored[name])
        other = replace(made.decision, active=made.decision.active.renamed({"b0": "b9"}))
        assert isinstance(other, ServiceDecision)
        assert (digest(name, other) == digest(name, stored[name])) is ("b0" not in stored[name].active.owners)


LOCALS = [NEUTRAL, NEUTRAL.replace("egress: egress", "egress: p1"), "version: 1\nswitch: {ingress: p0, egress: p0}\n"]


@given(st.data(), views(), views())
def test_views_read_one_after_the_other_say_what_each_says_alone(
    data: st.DataObject, drawn: tuple[FleetView, Balancer], other: tuple[FleetView, Balancer]
) -> None:
    """Also with services that cannot be together, cannot be read, or do not fit their blocks."""
    edited = fleet_support.settled(fleet_support.given(drawn[0], text_of(data.draw(edits(drawn[1])))))
    rows = [row for view in (drawn[0], edited, other[0]) for row in view.services.values()]
    rows += [replace(row, config=text) for row in rows[:2] for text in (rows[-1].config, "[")]
    reader = ViewReader()
    for _ in range(4):
        view = {row.name: row for row in data.draw(st.lists(st.sampled_from(rows), max_size=6))}.values()
        local = data.draw(st.sampled_from(LOCALS))
        assert outcome(reader.read, view, local) == outcome(ViewReader().read, view, local)


def outcome(read: Callable[..., object], view: Iterable[StoredService], local: str) -> object:
    try:
        return read(view, local, file="local")
    except XenoovsError as error:
        return str(error)
