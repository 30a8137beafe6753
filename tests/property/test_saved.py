"""Any point of the history comes back, and a damaged file is read, or refused with line and column."""

from __future__ import annotations

import json
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from tests.command_line import SMALL_CONFIG
from tests.fake_switch import FakeSwitch, fake_bridge
from tests.property.test_decision_laws import desired_states
from tests.strategies import EGRESS, INGRESS, balancers, damaged, edits, share
from xenoovs.compile.pipeline import PROGRAM
from xenoovs.engine.change import Change, PlanOptions
from xenoovs.engine.document import entry_of, save
from xenoovs.engine.engine import Engine
from xenoovs.engine.history import History
from xenoovs.engine.saved import HistoryEntry, SavedPlan, load, plan_of
from xenoovs.errors import ConfigError, SavedMalformed
from xenoovs.model.balancer import Balancer
from xenoovs.model.emit import render_config
from xenoovs.model.load import parse_config
from xenoovs.openflow.flow import Flow

_LONG_S = 1e6
"""Longer than any drain."""
_MOST_ROUNDS = 5
"""Of one apply: new connections move, then the rest."""


def flows_of(switch: FakeSwitch, bridge: str) -> frozenset[Flow]:
    return frozenset(seen.flow for seen in switch.dump_flows(bridge, only=PROGRAM))


def apply(switch: FakeSwitch, balancer: Balancer, options: PlanOptions) -> Change:
    """Apply as the command does, to the end of all drains; return the first change."""
    engine, now_s = Engine(switch), 0.0
    first = change = engine.plan(balancer, options, now_s=now_s)
    engine.apply(change)
    for _ in range(_MOST_ROUNDS):
        if not change.drains:
            return first
        now_s += _LONG_S
        switch.age(change.bridge, _LONG_S)
        engine.forget()
        change = engine.plan(balancer, PlanOptions(drain=options.drain), now_s=now_s)
        engine.apply(change)
    raise AssertionError(f"the drains did not end: {change.drains}")


def has_a_config(balancer: Balancer) -> bool:
    """Return whether a config expresses this balancer."""
    with suppress(ValueError, ConfigError):
        return parse_config(render_config(balancer), file="my.yaml") == balancer
    return False


@given(st.data(), balancers(most=2).filter(has_a_config))
@share(0.4)
def test_any_point_of_the_history_comes_back(data: st.DataObject, balancer: Balancer) -> None:
    bridge = balancer.uplinks.bridge
    switch = FakeSwitch(fake_bridge(bridge, sorted({*EGRESS, *INGRESS})))
    points = dict[int, frozenset[Flow]]()
    with TemporaryDirectory() as directory:
        history = History(bridge, Path(directory) / "history")
        for _ in range(data.draw(st.integers(1, 4))):
            options = PlanOptions(rebalance=data.draw(st.booleans()), drain=data.draw(st.booleans()))
            change = apply(switch, balancer, options)
            written = history.entry(change, command="apply", file="my.yaml", partial=False, user="me")
            history.record(written)
            points[written["number"]] = flows_of(switch, bridge)
            if data.draw(st.booleans()):
                # An agent ejects backends, and lets others start slowly.
                Engine(switch).round(data.draw(desired_states(balancer)), now_s=0.0)
            balancer = data.draw(edits(balancer).filter(has_a_config))
        for number in data.draw(st.permutations(sorted(points))):
            entry = history.load(number)
            apply(switch, entry.balancer(), entry.options(drain=data.draw(st.booleans())))
            assert flows_of(switch, bridge) == points[number]
            assert Engine(switch).plan(entry.balancer(), entry.options()).difference.is_empty
            # Also on a bridge without flows, at once: it has no connection that could stay.
            empty = FakeSwitch(fake_bridge(bridge, sorted({*EGRESS, *INGRESS})))
            assert not apply(empty, entry.balancer(), entry.options()).drains
            assert flows_of(empty, bridge) == points[number]


_PIECES = ["", *'{}[],:"', "null", "true", "-1", "1e999", "\\", "\u0000", "\n", '"services": 7,', "é"]


@cache
def texts() -> dict[type[SavedPlan | HistoryEntry], str]:
    """A plan and an entry of the history, as they are written."""
    balancer = parse_config(SMALL_CONFIG, file="my.yaml")
    change = Engine(FakeSwitch(fake_bridge("ovsbr1", ["p0", "p1"]))).plan(balancer, PlanOptions())
    plan = plan_of(change, file="my.yaml", options=PlanOptions(), user="me")
    entry = entry_of(change, file="my.yaml", partial=False, user="me", number=1, command="apply my.yaml")
    with TemporaryDirectory() as directory:
        path, found = Path(directory) / "file", dict[type[SavedPlan | HistoryEntry], str]()
        kinds: tuple[type[SavedPlan | HistoryEntry], ...] = (SavedPlan, HistoryEntry)
        for kind, document in zip(kinds, (plan.model_dump(mode="json"), entry), strict=True):
            save(path, document)
            found[kind] = path.read_text()
            assert load(path, kind).model_dump(mode="json") == json.loads(found[kind])
        return found


@given(st.data(), st.sampled_from([SavedPlan, HistoryEntry]))
def test_any_text_is_read_or_refused(data: st.DataObject, kind: type[SavedPlan | HistoryEntry]) -> None:
    text = data.draw(damaged(texts()[kind], st.sampled_from(_PIECES), longest=40))
    with TemporaryDirectory() as directory:
        path = Path(directory) / "file"
        path.write_text(text)
        try:
            read = load(path, kind)
        except SavedMalformed as error:
            refused = error
        else:
            assert len(read.local_time) == len("2026-11-22 17:00:00")
            assert all(read.names.values())
            return
    assert 1 <= refused.line <= text.count("\n") + 1
    assert 1 <= refused.column <= max(map(len, text.split("\n"))) + 1
