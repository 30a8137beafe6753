"""The OpenAPI 3.1 document of the control API, made from the table of routes and the dataclasses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from fractions import Fraction
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from xenoovs import __version__
from xenoovs.agent.control.messages import API_VERSION, Problem
from xenoovs.agent.control.routes import ROUTES, Route

_SIMPLE: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    Fraction: {"type": "number"},
    object: {},
}
_MEANING = {
    400: "The request cannot be used.",
    401: "The token is missing or wrong.",
    403: "This way in only shows, or the host is another.",
    404: "There is no such service or backend.",
    409: "It cannot be done now.",
}


def openapi_document() -> dict[str, Any]:
    """Deterministic: routes in the order of the table, schemas by name."""
    schemas: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "xenoovs agent",
            "version": f"v{API_VERSION}",
            "summary": f"Control and status of a running agent (xenoovs {__version__.partition('+')[0]}).",
        },
        "servers": [{"url": "http://localhost", "description": "The agent's unix socket, or where --api says."}],
        "paths": paths,
        "components": {"schemas": dict(sorted(schemas.items())), "securitySchemes": _SECURITY},
        "security": [{}, {"bearer": []}, {"basic": []}],
    }


_SECURITY = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "The token of --token-file, over TCP."},
    "basic": {"type": "http", "scheme": "basic", "description": "The same token as password; any user name."},
}


def _operation(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    media = "application/x-ndjson" if route.is_stream else "application/json"
    refusals = (400, 401, 403, *route.refusals)
    operation: dict[str, Any] = {"operationId": route.name, "summary": route.summary}
    if route.query is not None:
        operation["description"] = _description(route.query)
        operation["parameters"] = [_parameter(route.query, one) for one in fields(route.query)]
    if route.request is not None:
        body = {"schema": _schema(route.request, schemas)}
        operation["requestBody"] = {
            "required": bool(fields(route.request)),
            "content": {"application/json": body},
        }
    answers = {"200": {"description": "Done.", "content": {media: {"schema": _schema(route.answer, schemas)}}}}
    wrong = {"content": {"application/json": {"schema": _schema(Problem, schemas)}}}
    operation["responses"] = answers | {str(status): {"description": _MEANING[status], **wrong} for status in refusals}
    return operation


def _parameter(kind: type, one: Any) -> dict[str, Any]:
    schema = {**_schema(get_type_hints(kind)[one.name], {}), **_extra(one)}
    if one.default is not MISSING:
        schema["default"] = one.default
    return {"name": one.name, "in": "query", "required": one.default is MISSING, "schema": schema}


def _schema(kind: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a type; dataclasses and enums are put into `schemas`."""
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        choices = [arg for arg in get_args(kind) if arg is not NoneType]
        return {"anyOf": [*(_schema(choice, schemas) for choice in choices), {"type": "null"}]}
    if origin is tuple:
        return {"type": "array", "items": _schema(get_args(kind)[0], schemas)}
    if origin in (dict, Mapping):
        _, value = get_args(kind)
        return {"type": "object", "additionalProperties": _schema(value, schemas)}
    if kind in _SIMPLE:
        return dict(_SIMPLE[kind])
    if kind.__name__ not in schemas:
        schemas[kind.__name__] = {}
        schemas[kind.__name__] = _object(kind, schemas) if is_dataclass(kind) else _enum(kind)
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def _object(kind: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    properties = {one.name: {**_schema(hints[one.name], schemas), **_extra(one)} for one in fields(kind)}
    # Answers always have all keys; requests must have those without a default.
    is_request = any("parse" in one.metadata for one in fields(kind))
    needed = [one.name for one in fields(kind) if not is_request or one.default is MISSING]
    described = {"type": "object", "description": _description(kind), "properties": properties, "required": needed}
    return described | ({"additionalProperties": False} if is_request or not properties else {})


def _extra(one: Any) -> dict[str, Any]:
    found: dict[str, Any] = one.metadata.get("schema", {})
    return found


def _enum(kind: type[Enum]) -> dict[str, Any]:
    return {"type": "string", "description": _description(kind), "enum": [member.value for member in kind]}


def _description(kind: type) -> str:
    return re.sub(r"\s+", " ", kind.__doc__ or "").strip()
