"""The JSON Schema and the loader accept and refuse the same configs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from xenoovs.errors import ConfigError
from xenoovs.model.fleet import join
from xenoovs.model.load import compose, parse_config
from xenoovs.model.schema import FILE, json_schema
from xenoovs.model.values import Number

CASES = Path(__file__).parents[2] / "golden" / "config_errors"

# Mistakes of form that a JSON Schema finds too; the messages of the loader are in the golden files.
FORM = [
    "bad_macs", "bad_names", "bad_ports", "bad_tolerances", "bits_out_of_range", "drain_mistakes",
    "empty_values", "match_field_unknown", "missing_keys", "no_backends", "not_a_mapping", "port_names",
    "protocol_unknown", "unknown_keys", "wrong_types", "wrong_version",
]  # fmt: skip


def plain(value: Any) -> Any:
    """The tree as a JSON reader would have it."""
    if isinstance(value, Number):
        return int(value.text, 0) if value.other_notation else float(value.text.replace(".nan", "nan"))
    if isinstance(value, list):
        return [plain(item) for item in value]
    return {key: plain(item) for key, item in value.items()} if isinstance(value, dict) else value


def errors(text: str | bytes) -> list[str]:
    checker = jsonschema.Draft202012Validator(json_schema())
    return [error.message for error in checker.iter_errors(plain(compose(text, file="c.yaml").root))]


@pytest.mark.parametrize("name", FORM)
def test_mistakes_of_form_are_found_by_both(name: str) -> None:
    text = (CASES / f"{name}.yaml").read_bytes()
    assert errors(text)
    with pytest.raises(ConfigError):
        parse_config(text, file=name)


def test_the_file_of_an_agent_in_a_fleet_is_valid_and_no_other_may_have_its_key() -> None:
    text = "version: 1\nswitch: {ingress: p0, egress: p1, fleet_ports: {hosts: p2}}\n"
    assert errors(text) == []
    assert join(text, {}, file="local").uplinks.egress == "p1"
    assert errors(text.replace("hosts: p2", "hosts: [p2]"))
    with pytest.raises(ConfigError, match="`fleet_ports` is for an agent with --fleet; remove it here"):
        parse_config(f"{text}services: []", file="c.yaml")


def test_it_is_a_json_schema_with_the_keys_of_the_loader_and_each_has_a_description_and_examples_or_a_choice() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())
    assert list(json_schema()["properties"]) == list(FILE.keys)
    assert json_schema()["additionalProperties"] is False
    for form in [json_schema(), *json_schema()["$defs"].values()]:
        for name, key in form["properties"].items():
            if "$ref" in key or {"$ref", "oneOf"} & set(key.get("items", {})):
                continue
            assert key["description"], name
            assert {"examples", "enum", "const", "default"} & set(key), name


def test_examples_and_defaults_are_accepted() -> None:
    for form in json_schema()["$defs"].values():
        for key in form["properties"].values():
            if "$ref" not in key:
                checker = jsonschema.Draft202012Validator(key)
                examples = [*key.get("examples", []), *([key["default"]] if "default" in key else [])]
                assert [error.message for example in examples for error in checker.iter_errors(example)] == []


_SERVICES = "services: [{name: web, vip: 10.3.10.1, backends: [{name: a, mac: 02:00:5e:10:00:02, weight: 1}]}]"


@pytest.mark.parametrize(
    ("text", "is_valid"),
    [
        # Files that others include; one schema has to do for both.
        (_SERVICES, True),
        (f"version: 1\n{_SERVICES}", True),
        ("include: [more.yaml]\ndefaults: {services: {ports: [53]}}", True),
        # The first file.
        (f"version: 1\nswitch: {{ingress: p0, egress: p1}}\n{_SERVICES}", True),
        (f"switch: {{ingress: p0, egress: p1}}\n{_SERVICES}", False),
        (f"version: 1\nhealth: {{probe: icmp}}\n{_SERVICES}", False),
        (f"version: 1\nswitch: {{ingress: p0}}\n{_SERVICES}", False),
    ],
)
def test_the_first_file_needs_its_bridge_and_an_included_one_does_not(text: str, *, is_valid: bool) -> None:
    assert (errors(text) == []) is is_valid
