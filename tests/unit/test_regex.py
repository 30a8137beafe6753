"""Regular expressions compile at their first use, so that a mistake in one would show itself late."""

from __future__ import annotations

import re
from importlib import import_module
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
