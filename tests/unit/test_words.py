"""Numbers in sentences."""

from __future__ import annotations

import pytest

from xenoovs.errors import counted, worded


@pytest.mark.parametrize(("number", "text"), [(0, "0 blocks"), (1, "1 block"), (2, "2 blocks"), (-1, "-1 blocks")])
def test_one_is_singular_and_nothing_else(number: int, text: str) -> None:
    assert counted(number, "block") == text


def test_irregular_words() -> None:
    assert (counted(1, "entry", "entries"), counted(0, "entry", "entries")) == ("1 entry", "0 entries")
    assert (worded(1, "is", "are"), worded(2, "is", "are")) == ("is", "are")
