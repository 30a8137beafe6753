"""What no linter measures: functions of at most 40 lines, modules of at most 300."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "xenoovs"
MOST_LINES, MOST_LINES_OF_A_MODULE = 40, 300


def _long_functions(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MOST_LINES:
                yield f"{node.name}: {lines} lines"


@pytest.mark.parametrize("room", sorted(entry.name for entry in PACKAGE.iterdir() if (entry / "__init__.py").exists()))
def test_short(room: str) -> None:
    modules = {path: path.read_text() for path in (PACKAGE / room).rglob("*.py")}
    assert modules
    assert [f"{path}: {found}" for path, text in modules.items() for found in _long_functions(text)] == []
    assert [str(path) for path, text in modules.items() if len(text.splitlines()) > MOST_LINES_OF_A_MODULE] == []
