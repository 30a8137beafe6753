"""One class name in one place of a room, and one constant of a name in a module."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "xenoovs"


def test_every_class_name_of_a_room_is_unique() -> None:
    files = defaultdict(list)
    for file in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef):
                path = file.relative_to(PACKAGE)
                files[path.parts[0], node.name].append(str(path))
    assert {names: found for names, found in files.items() if len(found) > 1} == {}


def test_every_class_variable_says_of_which_type_it_is() -> None:
    """Python 3.10 cannot evaluate a bare ClassVar, which pydantic asks for."""
    bare = [
        f"{file.relative_to(PACKAGE)}:{node.lineno}"
        for file in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "ClassVar"
    ]
    assert bare == []


def test_bug_a_second_constant_of_the_same_name_replaced_the_first() -> None:
    """Two modules that became one had each a `_POLL_S`: flows of an experiment were watched five times more rarely."""
    twice = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        bound = [node.targets[0] for node in ast.parse(file.read_text()).body if isinstance(node, ast.Assign)]
        names = Counter(name.id for target in bound for name in ast.walk(target) if isinstance(name, ast.Name))
        twice[str(file.relative_to(PACKAGE))] = [name for name, times in names.items() if times > 1]
    assert {file: names for file, names in twice.items() if names} == {}
