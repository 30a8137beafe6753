"""Regular expressions compile at their first use, so that a mistake in one would show itself late."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest

import xenoovs
from xenoovs.regex import regex


def test_each_of_the_product_compiles() -> None:
    found = 0
    for module in walk_packages(xenoovs.__path__, "xenoovs."):
        if not module.name.endswith("__main__"):
            for value in vars(import_module(module.name)).values():
                if isinstance(value, regex):  # type: ignore[arg-type]  # a class, where types are not checked
                    assert value.pattern
                    found += 1
    assert found > 200


def test_it_compiles_at_the_first_use_and_is_the_pattern_of_re_then() -> None:
    late = regex("(", re.ASCII)
    with pytest.raises(re.error, match="missing"):
        late.match("(")
    assert [each[0] for each in regex("[a-c]", re.IGNORECASE).finditer("aXB")] == ["a", "B"]


_PACKAGE = Path(xenoovs.__file__).parent
_SENT = [*_PACKAGE.rglob("*_program.py"), *_PACKAGE.rglob("runner.py"), *_PACKAGE.rglob("echo_requests.py")]


@pytest.mark.parametrize("file", _SENT, ids=lambda file: file.name)
def test_bug_a_program_that_other_machines_run_imported_it(file: Path) -> None:
    assert "import xenoovs" not in (text := file.read_text())
    assert "from xenoovs" not in text
