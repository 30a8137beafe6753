"""`xenoovs explain`: a key by its path or the end of it."""

from __future__ import annotations

import json

import pytest

from tests.command_line import CommandLine
from xenoovs.model.explain import all_keys


def test_a_key_has_its_value_default_and_meaning(xenoovs: CommandLine) -> None:
    result = xenoovs("explain", "services.health.max_down")
    assert result.status == 0
    assert result.out.splitlines()[:3] == [
        "key      services.health.max_down",
        "value    percentage",
        "default  50%",
    ]
    assert "At most this part of the backends" in result.out


def test_the_end_of_a_path_is_enough_where_all_such_keys_mean_the_same(xenoovs: CommandLine) -> None:
    assert "key      health.max_down, services.health.max_down" in xenoovs("explain", "max_down").out


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("services[0].backends[12].weight", "services.backends.weight"),
        ("switch.ingress[1]", "switch.ingress"),
        ("services[3].vip[0]", "services.vip"),
        ("services[0]", "services"),
    ],
)
def test_a_path_may_have_indexes_as_that_of_an_error(xenoovs: CommandLine, key: str, path: str) -> None:
    result = xenoovs("explain", key)
    assert (result.status, result.out) == (0, xenoovs("explain", path).out)
    assert result.out.splitlines()[0].split()[0] == "key"


def test_keys_of_one_name_with_several_meanings_are_listed(xenoovs: CommandLine) -> None:
    result = xenoovs("explain", "name")
    assert result.status == 64
    assert "'name' is several keys: services.name, services.backends.name" in result.err


def test_a_mapping_lists_its_keys(xenoovs: CommandLine) -> None:
    out = xenoovs("explain", "services.backends").out
    assert [line.split()[0] for line in out.splitlines() if line][-9:] == [
        "name",
        "mac",
        "weight",
        "egress",
        "remote",
        "key",
        "address",
        "port",
        "backup",
    ]


def test_a_mistyped_key_is_guessed(xenoovs: CommandLine) -> None:
    assert "Did you mean max_down?" in xenoovs("explain", "max_dwon").err


@pytest.mark.parametrize("key", ["", "switch"])
def test_for_programs(key: str, xenoovs: CommandLine) -> None:
    document = json.loads(xenoovs("explain", *filter(None, [key]), "-o", "json").out)
    assert {"path", "value", "default", "required", "meaning", "examples"} == set(document["keys"][0])


def test_every_key_has_a_meaning() -> None:
    assert [key.path for key in all_keys() if not key.meaning] == []
