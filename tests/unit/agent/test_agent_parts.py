"""The parts of an agent: none sets what another one has."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import xenoovs.agent

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
