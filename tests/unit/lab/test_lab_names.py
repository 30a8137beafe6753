from __future__ import annotations

import pytest

from xenoovs.errors import LabError
from xenoovs.lab.topology import backend_namespace, check_name, clients_namespace, is_namespace_of, switch_namespace


@pytest.mark.parametrize("name", ["a", "7", "demo-2", "a" * 16])
def test_usable_names(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize("name", ["", "A", "a_b", "-a", "a-", "a/b", "a b", "ä", "..", "a\n"])
def test_unusable_names_are_quoted_in_the_error(name: str) -> None:
    with pytest.raises(LabError) as raised:
        check_name(name)
    assert repr(name) in str(raised.value)


def test_a_long_name_is_refused_with_the_reason() -> None:
    with pytest.raises(LabError, match="has 17 characters, at most 16 are possible: it becomes part of socket paths"):
        check_name("a" * 17)


def test_namespaces_of_labs_with_similar_names_are_distinguished() -> None:
    names = ("a", "a-b1", "a-sw", "a-clients")
    for name in names:
        for made in (switch_namespace(name), clients_namespace(name), backend_namespace(name, 12)):
            assert [other for other in names if is_namespace_of(made, other)] == [name]
