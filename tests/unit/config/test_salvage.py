"""One wrong value gives one message: its consequences are not reported, all other mistakes are."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from xenoovs.config.load import parse_config
from xenoovs.config.values import KeyPath
from xenoovs.errors import ConfigError

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


SERVICE: KeyPath = ("services", 0)
BACKENDS: KeyPath = (*SERVICE, "backends")
BESIDE: list[tuple[KeyPath, Any, str, list[KeyPath]]] = [
    ((*BACKENDS, 1, "name"), "a", "services[0].backends[1].name", [(*BACKENDS, 0, "name"), (*BACKENDS, 1, "name")]),
    ((*BACKENDS, 2, "address"), "198.51.100.4", "services[0].backends[2].mac", [(*BACKENDS, 1), (*BACKENDS, 2)]),
    ((*SERVICE, "ports", 1), "80-90", "services[0].ports[1]", [(*SERVICE, "ports"), (*SERVICE, "protocol")]),
    ((*SERVICE, "vip", 1), "192.0.2.10", "services[0].vip[1]", [(*SERVICE, "vip"), (*SERVICE, "match")]),
    ((*SERVICE, "match", "bits"), 1, "services[0].match.bits", [(*SERVICE, "match"), BACKENDS]),
    ((*SERVICE, "health", "timeout"), "3s", "services[0].health.timeout", [(*SERVICE, "health"), ("health",)]),
    ((*SERVICE, "max_flows"), 2, "services[0].max_flows", [BACKENDS]),
]
"""A mistake between values: where it is made, by which value, where it is reported, which values it depends on."""


@pytest.mark.parametrize(
    ("where", "value", "message", "hangs_on"), BESIDE, ids=[message for _, _, message, _ in BESIDE]
)
def test_other_mistakes_are_reported_too(where: KeyPath, value: Any, message: str, hangs_on: list[KeyPath]) -> None:
    config = _with(GOOD, where, value)
    if message.endswith("mac"):
        config = _with(config, (*BACKENDS, 2, "mac"), "02:00:00:00:00:02")
    assert _findings(config) == [message]
    for path in LEAVES:
        if path[:2] == SERVICE and not any(path[: len(one)] == one for one in hangs_on):
            assert message in _findings(_with(config, path, WRONG)), _name(path)


def test_a_wrong_backend_hides_nothing_of_the_others() -> None:
    config = _with(GOOD, ("services", 0, "backends", 0), "a")
    config = _with(config, ("services", 0, "backends", 2, "name"), "b")
    assert _findings(config) == ["services[0].backends[0]", "services[0].backends[2].name"]


@pytest.mark.parametrize("missing", ["name", "weight"])
def test_nor_does_a_backend_without_a_key(missing: str) -> None:
    config = _with(GOOD, ("services", 0, "backends", 2, "mac"), "02:00:00:00:00:02")
    del config["services"][0]["backends"][0][missing]
    assert _findings(config) == ["services[0].backends[0]." + missing, "services[0].backends[2].mac"]


def test_a_wrong_switch_hides_only_what_hangs_on_it() -> None:
    config = _with(_with(GOOD, ("switch", "egress"), ""), ("switch", "ingress"), ["p0", "p0"])
    assert _findings(config) == ["switch.ingress[1]", "switch.egress"]


def test_services_that_claim_the_same_are_reported_beside_other_mistakes() -> None:
    config = _with(_with(GOOD, ("services", 1, "vip"), "192.0.2.30"), ("services", 1, "name"), "!")
    assert _findings(config) == ["services[1].name", "services[2]"]
