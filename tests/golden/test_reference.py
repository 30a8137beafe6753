"""The generated pages of docs/reference are those that are committed; `make docs` regenerates them."""

from __future__ import annotations

import pytest

from scripts.reference import REFERENCE, pages

PAGES = pages()


@pytest.mark.parametrize("name", sorted(PAGES))
def test_the_page_is_as_generated(name: str) -> None:
    assert (REFERENCE / name).read_text(encoding="utf-8") == PAGES[name], "run `make docs` and commit what it writes"


def test_no_page_is_left_over() -> None:
    assert {path.name for path in REFERENCE.iterdir()} == {*PAGES, "glossary.md"}
