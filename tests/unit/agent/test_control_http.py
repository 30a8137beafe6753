"""No input by HTTP is trusted; every refusal has the same JSON form."""

from __future__ import annotations

import asyncio
import json
import threading
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from tests.agent_support import Scene
from tests.patience import PATIENCE_S
from tests.unix_http import ask
from xenoovs.agent.control import app, handlers
from xenoovs.agent.control.serve import ApiListener, Listen, open_port
from xenoovs.agent.snapshot_builder import Moment, service_views
from xenoovs.agent.state import Membership
from xenoovs.errors import ListenError
from xenoovs.show.snapshot import FleetMembership, LazySnapshot, ServiceView


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


def test_a_refused_method_names_those_that_are_allowed(scene: Scene) -> None:
    """RFC 9110, section 15.5.6: an answer of 405 must have `Allow`."""
    with scene.agent() as (_, client):
        refused = ask(client.path, "/v1/drain", method="PUT")
        assert (refused.status, refused.headers["Allow"]) == (405, "POST")


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


def test_a_port_of_this_machine_shows_and_changes_nothing(scene: Scene) -> None:
    opened = open_port(Listen("127.0.0.1", 0))
    with scene.agent(also=(opened,)) as (agent, _):
        assert ask_port(opened, "GET", "/v1/status") == "200"
        assert ask_port(opened, "POST", "/v1/pause") == "403 read_only"
        assert ask_port(opened, "GET", "/v1/status", Host="evil.example") == "403 wrong_host"
        assert not agent.state.runtime.is_paused


def test_with_a_token_all_is_possible_and_without_it_nothing(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is compared in constant time."""
    compared: list[bytes] = []

    def noted(one: bytes, other: bytes) -> bool:
        compared.append(one)
        return one == other

    monkeypatch.setattr("xenoovs.agent.control.auth.hmac.compare_digest", noted)
    token = scene.directory / "token"
    token.touch(mode=0o600)
    token.write_text("0123456789abcdef\n")
    opened = open_port(Listen("127.0.0.1", 0, token_file=token))
    with scene.agent(also=(opened,)) as (agent, _):
        for wrong in ({}, {"Authorization": "Bearer 0123456789abcdeX"}, {"Authorization": "Bearer"}):
            assert ask_port(opened, "GET", "/v1/status", **wrong) == "401 unauthorized"
        assert compared == [b"", b"0123456789abcdeX", b""]
        right = {"Authorization": "Bearer 0123456789abcdef"}
        assert ask_port(opened, "GET", "/v1/status", **right) == "200"
        assert ask_port(opened, "POST", "/v1/pause", **right).startswith("415")
        assert ask_port(opened, "POST", "/v1/pause", Content_Type="application/json", **right) == "200"
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
    makers, loops = list[int](), list[int]()

    def made(seen: Moment) -> tuple[ServiceView, ...]:
        makers.append(threading.get_ident())
        return service_views(seen)

    monkeypatch.setattr("xenoovs.agent.snapshot_builder.service_views", made)
    with scene.agent() as (agent, client):
        lazy_snapshot = agent.lazy_snapshot

        def counted_snapshot() -> LazySnapshot:
            loops.append(threading.get_ident())
            return lazy_snapshot()

        agent.lazy_snapshot = counted_snapshot  # type: ignore[method-assign]
        client.ask("status")
    assert (len(makers), len(loops)) == (1, 1)
    assert makers != loops
