"""One class name in one place, over the whole package."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "xenoovs"


def test_every_class_name_is_unique() -> None:
    files = defaultdict(list)
    for file in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef):
                files[node.name].append(str(file.relative_to(PACKAGE)))
    assert {name: found for name, found in files.items() if len(found) > 1} == {}
