"""The parts of an agent: none sets what another one has, and none grows for ever."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import xenoovs.agent
from tests.fake_switch import FakeSwitch, fake_bridge
from xenoovs.agent.report import Report
from xenoovs.agent.state import RoundFacts
from xenoovs.decision.decision import DesiredState
from xenoovs.engine.engine import Engine
from xenoovs.model.balancer import Balancer
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
    """A service of each name, whose only backend has this MAC."""
    head = "version: 1\nswitch: {bridge: ovsbr1, ingress: [p0], egress: p1}\nservices:\n"
    services = (
        f"  - name: {name}\n    vip: 203.0.113.{number}\n    backends: [{{name: b, {where}, weight: 1}}]\n"
        for number, (name, where) in enumerate(macs.items(), start=1)
    )
    return parse_config(head + "".join(services), file="c.yaml")


def test_the_share_of_moved_clients_is_forgotten_with_its_service() -> None:
    report, facts = Report(), RoundFacts()
    engine = Engine(FakeSwitch(fake_bridge("ovsbr1", ["p0", "p1"])))
    first, other = "mac: 02:00:5e:10:00:01", "mac: 02:00:5e:10:00:02"
    rounds = ({"web": first, "dns": first}, {"web": other, "dns": other}, {"dns": other})
    moved = []
    for services in rounds:
        change = engine.round(DesiredState(config(**services)), now_s=1.0)
        facts = report.succeeded(facts, change, bridge="ovsbr1", config="c", now_s=1.0)
        moved.append(facts.moved)
    assert [each.keys() for each in moved[1:]] == [{"web", "dns"}, {"dns"}]
