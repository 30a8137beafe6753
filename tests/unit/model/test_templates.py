"""The configs that ship with xenoovs."""

from __future__ import annotations

import pytest

from xenoovs.model.templates import read_template, template_names


def test_names() -> None:
    assert template_names() == (
        "bluefield-host",
        "hardware-budget",
        "ipv6",
        "many-services",
        "minimal",
        "nat-clients",
        "next-hops",
        "quickstart",
    )


@pytest.mark.parametrize("name", ["nothing", "../pyproject", ""])
def test_no_such_template(name: str) -> None:
    with pytest.raises(KeyError):
        read_template(name)
