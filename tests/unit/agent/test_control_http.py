"""No input by HTTP is trusted: who may ask, every refusal in one JSON form, and what the OpenAPI document promises."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import jsonschema  # type: ignore[import-untyped]
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from tests.agent_support import Scene
from tests.patience import PATIENCE_S
from tests.unix_http import ask
from xenoovs.agent.control import app, handlers
from xenoovs.agent.control.auth import TokenAuth, is_loopback, read_token
from xenoovs.agent.control.client import READS
from xenoovs.agent.control.handlers import ROUTES
from xenoovs.agent.control.schemas import READY_PATH, openapi_document
from xenoovs.agent.control.serve import ApiListener, Listen, open_port
from xenoovs.agent.snapshot_builder import Moment, service_views
from xenoovs.agent.state import Membership
from xenoovs.errors import ListenError, RequestRefused
from xenoovs.show.snapshot import FleetMembership, ServiceView


def send(path: Path, method: str, target: str, body: bytes = b"") -> tuple[int, dict[str, Any]]:
    answer = ask(path, target, method=method, body=body)
    return answer.status, json.loads(answer.body)


BODIES = [
    b"",
    b"{",
    b"[]",
    b"7",
    b'{"service": "dns"}',
    b'{"service": "dns", "backend": "fips2", "more": 1}',
    b'{"service": "dns", "service": "dns", "backend": "fips2"}',
    b'{"service": 7, "backend": "fips2"}',
    b'{"service": "dns", "backend": "../../etc"}',
    b'{"service": "dns", "backend": NaN}',
    b"[" * 60_000,
    b"\xff\xfe",
]
WEIGHTS = (b"1e999999999", b'"7"', b"true", b"null", b"1e-40", b"-1", b"1" * 5000)
NO_PATHS = [
    "/",
    "/v1/../v1/status",
    "/v1/%2e%2e/v1/status",
    "//v1/status",
    "/v1/status/",
    "/v1/status%00",
    "/V1/STATUS",
    "/v1/status;x=1",
    "/%2fetc/passwd",
    "/v1/openapi.json/../../../etc/passwd",
]
REFUSALS: list[tuple[str, str, bytes, str, str]] = [
    *(("POST", "/v1/drain", body, "400 bad_request", "the request cannot be used: ") for body in BODIES),
    *(
        ("POST", "/v1/weight", b'{"service":"dns","backend":"fips2","weight":%s}' % weight, "400 bad_request", "")
        for weight in WEIGHTS
    ),
    *(("GET", path, b"", "404 not_found", "") for path in NO_PATHS),
    ("GET", "/v1/drain", b"", "405 method_not_allowed", ""),
    ("POST", "/v1/status", b"", "405 method_not_allowed", ""),
    ("POST", "/v1/drain", b" " * 70_000, "413 request_entity_too_large", ""),
    ("GET", "/v1/events?since=x", b"", "400 bad_request", ""),
    ("GET", "/v1/events?since=-1", b"", "400 bad_request", ""),
    ("GET", "/v1/blocks?service=dsn", b"", "404 unknown_service", "did you mean dns?"),
    ("GET", "/v1/blocks", b"", "400 bad_request", "service is missing; the keys are service, after"),
    ("GET", "/v1/blocks?service=dns&after=-1", b"", "400 bad_request", "after: '-1' is not a whole number"),
    ("GET", "/v1/blocks?service=dns&page=2", b"", "400 bad_request", "'page' is not a key here"),
    ("GET", "/v1/blocks?service=../dns", b"", "400 bad_request", "is not a name"),
]


def test_mistakes_of_requests_are_refused_in_one_form(scene: Scene) -> None:
    with scene.agent() as (agent, client):
        for method, target, body, code, words in REFUSALS:
            status, document = send(client.path, method, target, body)
            found, where = document["error"], (method, target, body[:80])
            assert f"{status} {found['code']}" == code, where
            assert words in found["message"], where
        assert agent.state.runtime.overrides == ()
        # RFC 9110, section 15.5.6: an answer of 405 must have `Allow`.
        assert ask(client.path, "/v1/drain", method="PUT").headers["Allow"] == "POST"


def test_ready_answers_as_described_and_status_has_the_same_reason(scene: Scene) -> None:
    with scene.agent() as (agent, client):
        for status, reason in ((200, ""), (503, "a reason")):
            agent.store.dispatch(Membership(FleetMembership("dpu1", 1, 1, None, "", ""), withheld=reason))
            assert send(client.path, "GET", "/ready") == (status, {"ready": not reason, "reason": reason})
            assert client.ask("status")["snapshot"]["not_ready"] == reason


@pytest.mark.parametrize("phrase", ["Request Entity Too Large", "Content Too Large"])
def test_error_codes_are_the_same_in_every_version_of_python(phrase: str) -> None:
    """Python 3.13 renamed phrases of `http.HTTPStatus`, of which aiohttp makes its reasons."""

    async def refuse(_: web.Request) -> web.StreamResponse:
        raise web.HTTPRequestEntityTooLarge(max_size=1, actual_size=2, reason=phrase)

    answer = asyncio.run(app._errors(make_mocked_request("POST", "/v1/drain"), refuse))
    assert isinstance(answer, web.Response)
    assert json.loads(answer.text or "")["error"] == {
        "code": "request_entity_too_large",
        "message": "POST /v1/drain: request entity too large",
    }


def ask_port(opened: ApiListener, method: str, target: str, **headers: str) -> str:
    """Return the status and the code of an error."""
    connection = HTTPConnection("127.0.0.1", opened.socket.getsockname()[1], timeout=PATIENCE_S)
    connection.request(method, target, headers={name.replace("_", "-"): value for name, value in headers.items()})
    response = connection.getresponse()
    document = json.loads(response.read())
    connection.close()
    return f"{response.status} {document.get('error', {}).get('code', '')}".strip()


def test_with_a_token_all_is_possible_and_without_it_a_port_of_this_machine_shows_and_changes_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is compared in constant time."""
    compare = Mock(wraps=hmac.compare_digest)
    monkeypatch.setattr("xenoovs.agent.control.auth.hmac.compare_digest", compare)
    token = scene.directory / "token"
    token.touch(mode=0o600)
    token.write_text(f"{TOKEN}\n")
    opened, locked = open_port(Listen("127.0.0.1", 0)), open_port(Listen("127.0.0.1", 0, token_file=token))
    with scene.agent(also=(opened, locked)) as (agent, _):
        assert ask_port(opened, "GET", "/v1/status") == "200"
        assert ask_port(opened, "POST", "/v1/pause") == "403 read_only"
        assert ask_port(opened, "GET", "/v1/status", Host="evil.example") == "403 wrong_host"
        for wrong in ({}, {"Authorization": f"Bearer {TOKEN}X"}, {"Authorization": "Bearer"}):
            assert ask_port(locked, "GET", "/v1/status", **wrong) == "401 unauthorized"
        assert [call.args[0] for call in compare.call_args_list] == [b"", f"{TOKEN}X".encode(), b""]
        right = {"Authorization": f"Bearer {TOKEN}"}
        assert ask_port(locked, "GET", "/v1/status", **right) == "200"
        assert ask_port(locked, "POST", "/v1/pause", **right).startswith("415")
        assert not agent.state.runtime.is_paused
        assert ask_port(locked, "POST", "/v1/pause", Content_Type="application/json", **right) == "200"
        assert agent.state.runtime.is_paused


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_other_machines_need_tls_and_a_token(host: str) -> None:
    with pytest.raises(ListenError, match="needs --tls-cert and --tls-key and --token-file"):
        open_port(Listen(host, 0))


def test_blocks_come_by_pages_and_fill_the_address_space(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "MAX_BLOCKS", 2)
    with scene.agent() as (agent, client):
        pages, after = list[Any](), 0
        while after is not None:
            pages.append(client.ask("blocks", query={"service": "dns", "after": after}))
            after = pages[-1]["next"]
        blocks = [block for page in pages for block in page["blocks"]]
        assert {len(page["blocks"]) for page in pages[:-1]} == {2}
        assert {(page["service"], page["total"]) for page in pages} == {("dns", len(blocks))}
        starts = [block["start"] for block in blocks]
        assert (starts, sum(block["size"] for block in blocks)) == (sorted(set(starts)), 1)
        counted = {one.name: one.flows for one in agent.snapshot().services[0].backends}
        assert {name: sum(block["backend"] == name for block in blocks) for name in counted} == counted
        assert client.ask("blocks", query={"service": "dns", "after": 10**9})["blocks"] == []


def test_the_event_loop_of_the_probes_builds_no_status(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 16,000 backends that takes a quarter of a second, in which probes would be late."""
    loops = list[object]()

    def made(seen: Moment) -> tuple[ServiceView, ...]:
        loops.append(asyncio._get_running_loop())
        return service_views(seen)

    monkeypatch.setattr("xenoovs.agent.snapshot_builder.service_views", made)
    with scene.agent() as (_, client):
        client.ask("status")
    assert loops == [None]


TOKEN = "a-token-of-24-characters"
OPEN, LOCKED = TokenAuth(), TokenAuth(TOKEN)
JSON = {"Content-Type": "application/json; charset=utf-8"}


def refusal(auth: TokenAuth, method: str, host: str, headers: Mapping[str, str]) -> tuple[int, str]:
    with pytest.raises(RequestRefused) as refused:
        auth.check(method, host, headers)
    return refused.value.status, refused.value.code


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1:80", "localhost", "LocalHost:9090", "[::1]:9090", "::1"])
def test_hosts_of_this_machine_may_read_and_change_nothing(host: str) -> None:
    assert is_loopback(host)
    OPEN.check("GET", host, {})
    assert {refusal(OPEN, method, host, {}) for method in ("POST", "PUT", "DELETE", "OPTIONS")} == {(403, "read_only")}


@pytest.mark.parametrize(
    "host",
    ["", "0.0.0.0", "10.0.0.1:80", "localhost.evil.example", "127.0.0.1.evil.example", "[::]", "::", "a b", "@::1"],
)
def test_other_hosts(host: str) -> None:
    assert not is_loopback(host)
    assert refusal(OPEN, "GET", host, {}) == (403, "wrong_host")


def basic(password: str) -> str:
    return f"Basic {base64.b64encode(f'me:{password}'.encode()).decode()}"


# Bytes of a header that are not UTF-8 come as surrogates.
_WRONG = ("", "Bearer", f"Token {TOKEN}", "Basic %%%", "Bearer \u00e9", basic("x"), "Bearer \udcff", "Basic \udcff")


def test_the_token_alone_opens_and_a_form_of_another_site_changes_nothing() -> None:
    for right in (f"Bearer {TOKEN}", f"bearer {TOKEN}", basic(TOKEN)):
        LOCKED.check("GET", "", {"Authorization": right})
        LOCKED.check("POST", "", {"Authorization": right, **JSON})
        assert refusal(LOCKED, "POST", "", {"Authorization": right, "Content-Type": "text/plain"})[0] == 415
    assert {refusal(LOCKED, "GET", "", {"Authorization": wrong})[0] for wrong in _WRONG} == {401}


@pytest.mark.parametrize(
    ("text", "mode", "message"),
    [
        (f"{TOKEN}\n", 0o600, None),
        (TOKEN, 0o644, "other users may read it"),
        ("short", 0o600, "16 characters"),
        (f"{TOKEN} {TOKEN}", 0o600, "one line"),
        (None, 0, "cannot be read"),
    ],
)
def test_a_token_file(tmp_path: Path, text: str | None, mode: int, message: str | None) -> None:
    path = tmp_path / "token"
    if text is not None:
        path.write_text(text)
        path.chmod(mode)
    if message is None:
        assert read_token(path) == TOKEN
    else:
        with pytest.raises(ListenError, match=message):
            read_token(path)


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
