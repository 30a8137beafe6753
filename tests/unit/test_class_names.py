"""One class name in one place of a room."""

from __future__ import annotations

import ast
from collections import defaultdict
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
