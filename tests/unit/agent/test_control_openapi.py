"""The OpenAPI document: complete, consistent in itself, and true to what a running agent answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from tests.agent_support import Scene
from xenoovs.agent.control.client import READS
from xenoovs.agent.control.handlers import ROUTES
from xenoovs.agent.control.schemas import READY_PATH, openapi_document

DOCUMENT = openapi_document(ROUTES)
SCHEMAS = DOCUMENT["components"]["schemas"]


def values(node: Any, key: str) -> Iterator[Any]:
    if isinstance(node, dict):
        if key in node:
            yield node[key]
        node = list(node.values())
    if isinstance(node, list):
        for item in node:
            yield from values(item, key)


def schema(name: str) -> dict[str, Any]:
    """With everything it refers to, for jsonschema."""
    text = json.dumps({"$ref": f"#/components/schemas/{name}", "components": {"schemas": SCHEMAS}})
    found: dict[str, Any] = json.loads(text)
    return found


def test_every_route_is_in_it_with_answers_and_handlers() -> None:
    described = {
        (method.upper(), path): operation
        for path, operations in DOCUMENT["paths"].items()
        for method, operation in operations.items()
    }
    assert set(described.pop(("GET", READY_PATH))["responses"]) >= {"200", "503", "401", "403"}
    assert set(described) == {(route.method, route.path) for route in ROUTES}
    names = [operation["operationId"] for operation in described.values()]
    assert len(set(names)) == len(ROUTES)
    assert all({"200", "400", "401", "403"} <= set(operation["responses"]) for operation in described.values())
    assert {route.name for route in ROUTES if route.method == "GET" and route.handler is not None} == READS


def test_its_form_is_that_of_openapi() -> None:
    """The required keys of OpenAPI 3.1.0, sections 4.8.1, 4.8.10, 4.8.12 and 4.8.17."""
    assert DOCUMENT["openapi"] == "3.1.0"
    assert {"title", "version"} <= set(DOCUMENT["info"])
    for parameter in (one for found in values(DOCUMENT["paths"], "parameters") for one in found):
        assert {"name", "in", "schema"} <= set(parameter)
    for responses in values(DOCUMENT["paths"], "responses"):
        assert all("description" in response for response in responses.values())
    for body in values(DOCUMENT["paths"], "requestBody"):
        assert list(body["content"]) == ["application/json"]


def test_every_reference_leads_somewhere_and_every_schema_is_one_that_refuses_other_keys() -> None:
    for reference in values(DOCUMENT, "$ref"):
        assert reference.removeprefix("#/components/schemas/") in SCHEMAS
    for one in SCHEMAS.values():
        jsonschema.Draft202012Validator.check_schema(one)
        assert one["description"]
    for request in ({"service": "dns"}, {"service": "dns", "backend": "b", "more": 1}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(request, schema("BackendRequest"))


def test_the_answers_of_an_agent_are_as_described(scene: Scene) -> None:
    with scene.agent() as (_, client):
        done = client.ask("drain", {"service": "dns", "backend": "fips2"})
        jsonschema.validate(done, schema("Done"))
        jsonschema.validate(client.ask("status"), schema("Status"))
        jsonschema.validate(client.ask("events"), schema("EventList"))
