"""Mistakes of form are reported all at once, and one wrong value as one message; rules between values come after."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from xenoovs.errors import ConfigError
from xenoovs.model.load import parse_config
from xenoovs.model.values import KeyPath

GOOD: dict[str, Any] = {
    "version": 1,
    "switch": {"bridge": "br", "ingress": ["p0"], "egress": "p1", "other_traffic": "normal"},
    "health": {"probe": "tcp", "interval": "2s", "timeout": "1s", "fast_interval": "500ms", "port": 80},
    "drain": {"mode": "none", "timeout": "60s", "idle_timeout": "10s"},
    "services": [
        {
            "name": "web",
            "vip": ["192.0.2.10", "192.0.2.11"],
            "protocol": "tcp",
            "ports": [80, "8000-8003"],
            "vip_mac": "02:00:5e:10:00:01",
            "match": {"field": "ipv4_source", "bits": 8},
            "tolerance": "5%",
            "rewrite_source_mac": True,
            "churn": "least",
            "health": {"probe": "http", "path": "/up", "timeout": "1s"},
            "drain": {"mode": "pin"},
            "backends": [
                {"name": "a", "mac": "02:00:00:00:00:01", "weight": 3, "egress": "p2", "address": "198.51.100.1"},
                {"name": "b", "mac": "02:00:00:00:00:02", "weight": 2, "address": "198.51.100.2"},
                {"name": "c", "address": "198.51.100.3", "weight": 1},
            ],
        },
        {
            "name": "dns",
            "vip": "192.0.2.20",
            "protocol": "udp",
            "ports": 53,
            "health": {"probe": "arp", "interface": "eth0"},
            "backends": [
                {"name": "a", "mac": "02:00:00:00:00:01", "weight": 1},
                {"name": "b", "mac": "02:00:00:00:00:02", "weight": 1},
            ],
        },
        {"name": "idle_timeout", "vip": "192.0.2.30", "max_flows": 9, "health": {"probe": "none"},
         "backends": [{"name": "a", "mac": "02:00:00:00:00:01", "weight": 1}]},
    ],
}  # fmt: skip

# Wrong in every place: of no type, no number and no word that any key takes.
WRONG = {"not": "here"}


def _leaves(value: Any, path: KeyPath = ()) -> Iterator[KeyPath]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _leaves(inner, (*path, index))
    else:
        yield path


LEAVES = list(_leaves(GOOD))


def _with(config: Any, path: KeyPath, value: Any) -> Any:
    changed = copy.deepcopy(config)
    place = changed
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return changed


def _findings(config: Any) -> list[str]:
    try:
        parse_config(yaml.safe_dump(config, sort_keys=False), file="c.yaml")
    except ConfigError as error:
        return [finding.path for finding in error.findings]
    return []


def _name(path: KeyPath) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)[1:]


def test_nothing_is_wrong_to_begin_with() -> None:
    assert _findings(GOOD) == []


@pytest.mark.parametrize("path", LEAVES, ids=_name)
def test_one_wrong_value_is_one_message(path: KeyPath) -> None:
    (found,) = _findings(_with(GOOD, path, WRONG))
    assert _name(path).startswith(found)


def test_rules_between_values_are_checked_when_every_form_is_right() -> None:
    clash = _with(GOOD, ("services", 1, "vip"), "192.0.2.30")
    clash = _with(clash, ("switch", "ingress"), ["p0", "p0"])
    assert _findings(clash) == ["switch.ingress[1]", "services[2]"]
    assert _findings(_with(clash, ("services", 0, "name"), WRONG)) == ["services[0].name"]
