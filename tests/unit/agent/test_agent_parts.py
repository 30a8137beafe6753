"""The parts of an agent: none sets what another one has, and none grows for ever."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import xenoovs.agent
from tests.fake_switch import FakeSwitch
from xenoovs.agent import neighbour
from xenoovs.agent.neighbour import Neighbours
from xenoovs.agent.report import Report
from xenoovs.agent.state import RoundFacts
from xenoovs.decision.decision import DesiredState
from xenoovs.engine.engine import Engine
from xenoovs.model.balancer import Balancer, sought
from xenoovs.model.load import parse_config

ROOM = Path(xenoovs.agent.__file__).parent
FILES = sorted(ROOM.rglob("*.py"))
TREES = {path: ast.parse(path.read_text()) for path in FILES}
_MUTATORS = {"append", "extend", "update", "add", "pop", "clear", "remove", "discard", "setdefault"}


def named(node: ast.AST, *names: str) -> bool:
    return isinstance(node, ast.Name) and (not names or node.id in names)


def declared(tree: ast.Module) -> set[str]:
    """The attributes that classes of a module have: fields, and those that are set on `self`."""
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    fields = (field.target for each in classes for field in each.body if isinstance(field, ast.AnnAssign))
    own = {node.attr for each in classes for node in changed_attributes(each) if named(node.value, "self")}
    return own | {field.id for field in fields if isinstance(field, ast.Name)}


def changed_attributes(tree: ast.AST) -> Iterator[ast.Attribute]:
    """Those that are assigned, or whose content is changed by a method of lists, sets and dictionaries."""
    for node in ast.walk(tree):
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node
        elif isinstance(called, ast.Attribute) and called.attr in _MUTATORS and isinstance(called.value, ast.Attribute):
            yield called.value


def test_no_part_sets_an_attribute_of_another() -> None:
    own = {path: declared(tree) for path, tree in TREES.items()}
    everywhere = set[str]().union(*own.values())
    found = [
        f"{path.relative_to(ROOM)}:{node.lineno} {ast.unparse(node)}"
        for path, tree in TREES.items()
        for node in changed_attributes(tree)
        if not named(node.value, "self", "cls") and node.attr in everywhere - own[path]
    ]
    assert found == []


def config(**macs: str) -> Balancer:
    """A service of each name, whose only backend has this MAC, or address."""
    head = "version: 1\nswitch: {bridge: ovsbr1, ingress: [p0], egress: p1}\nservices:\n"
    services = (
        f"  - name: {name}\n    vip: 203.0.113.{number}\n    backends: [{{name: b, {where}, weight: 1}}]\n"
        for number, (name, where) in enumerate(macs.items(), start=1)
    )
    return parse_config(head + "".join(services), file="c.yaml")


def test_the_share_of_moved_clients_is_forgotten_with_its_service(switch: FakeSwitch) -> None:
    report, facts, engine = Report(), RoundFacts(), Engine(switch)
    first, other = "mac: 02:00:5e:10:00:01", "mac: 02:00:5e:10:00:02"
    rounds = ({"web": first, "dns": first}, {"web": other, "dns": other}, {"dns": other})
    moved = []
    for services in rounds:
        change = engine.round(DesiredState(config(**services)), now_s=1.0)
        facts = report.succeeded(facts, change, bridge="ovsbr1", config="c", now_s=1.0)
        moved.append(facts.moved)
    assert [each.keys() for each in moved[1:]] == [{"web", "dns"}, {"dns"}]


def test_addresses_that_the_config_lacks_now_are_waited_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbour, "_POLL_S", 0.001)
    monkeypatch.setattr(Neighbours, "poll", lambda _neighbours, *_balancers: {})
    neighbours, configs = Neighbours(), [config(web=f"address: 192.0.2.{n}") for n in (1, 2)]
    for each in configs:
        neighbours.settle(each, timeout_s=0.0)
    assert neighbours._waited_for == sought(configs[0]).keys() | sought(configs[1]).keys()

    async def follow() -> None:
        task = asyncio.create_task(neighbours.follow(lambda: (configs[1],), on_change=lambda: None))
        while len(neighbours._waited_for) > 1:
            await asyncio.sleep(0.001)
        task.cancel()

    asyncio.run(follow())
    assert neighbours._waited_for == sought(configs[1]).keys()
