"""Mistakes of form are reported all at once, and one wrong value as one message; rules between values come after."""

from __future__ import annotations

import copy
import importlib
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.golden.cases import CASES, file_of
from xenoovs.dataclass import fields
from xenoovs.errors import ConfigError
from xenoovs.model.balancer import Drain, Uplinks
from xenoovs.model.form import form_of
from xenoovs.model.load import parse_config
from xenoovs.model.schema import SWITCH
from xenoovs.model.templates import read_template, template_names
from xenoovs.model.values import KeyPath

CHECKED = """\
version: 1
switch: {ingress: [p0], egress: p1}
health: {probe: tcp, interval: 2s, timeout: 1s, fast_interval: 500ms, port: 80}
drain: {mode: none, timeout: 60s, idle_timeout: 10s}
services:
  - name: web
    vip: 192.0.2.10
    churn: least
    health: {probe: http, path: /up, timeout: 1s}
    drain: {mode: pin}
    backends: [{name: a, mac: 02:00:00:00:00:01, weight: 3, address: 198.51.100.1}]
  - name: idle_timeout
    vip: 192.0.2.20
    health: {probe: arp, interface: eth0}
    backends: [{name: a, mac: 02:00:00:00:00:01, weight: 1, address: 198.51.100.1}]
"""
CONFIGS = {
    "health and drain": CHECKED,
    **{name: read_template(name) for name in template_names()},
    **{case: file_of(case, "config.yaml").read_text() for case in CASES},
}
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


def _with(config: Any, path: KeyPath, value: Any) -> Any:
    place = changed = copy.deepcopy(config)
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


@pytest.mark.parametrize("text", CONFIGS.values(), ids=CONFIGS)
def test_one_wrong_value_is_one_message(text: str) -> None:
    config = yaml.safe_load(text)
    assert _findings(config) == []
    said = {_name(path): _findings(_with(config, path, WRONG)) for path in _leaves(config)}
    assert {name: found for name, found in said.items() if len(found) != 1 or not name.startswith(found[0])} == {}


def test_rules_between_values_are_checked_when_every_form_is_right() -> None:
    clash = _with(yaml.safe_load(CHECKED), ("services", 1, "vip"), "192.0.2.10")
    clash = _with(clash, ("switch", "ingress"), ["p0", "p0"])
    assert _findings(clash) == ["switch.ingress[1]", "services[1]"]
    assert _findings(_with(clash, ("services", 0, "name"), WRONG)) == ["services[0].name"]


def test_a_form_refuses_to_write_a_field_that_it_has_not() -> None:
    with pytest.raises(TypeError, match="DrainConfig has no timeout"):
        form_of(Drain).write(Drain(), timeout=5)


HOMES = ("model.balancer", "model.schema", "model.tunnel", "measure.machines_bed", "measure.path_plan")


@pytest.mark.parametrize("home", HOMES)
def test_the_meaning_of_a_key_is_that_of_a_field(home: str) -> None:
    kinds = [each for each in vars(importlib.import_module(f"xenoovs.{home}")).values() if isinstance(each, type)]
    records = [each for each in kinds if hasattr(each, "__dataclass_fields__")]
    forms = [each for each in records if any("key" in one.metadata for one in fields(each))]
    assert forms
    for form in forms:
        named = {*re.findall(r"^ {4}(\w+): ", form.__doc__ or "", re.MULTILINE)}
        known = {one.name for one in fields(form)} | {key.field for key in SWITCH.keys.values() if form is Uplinks}
        assert named - known == set(), form
