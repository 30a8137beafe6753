"""The sockets of an agent: who may ask, refusals in one form, hostile clients, OpenAPI, and the API of XenoFlow."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import logging
import os
import re
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import jsonschema  # type: ignore[import-untyped]
import pytest
import trustme
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from tests.agent_support import Scene
from tests.ovs.scripted_switch import read_to_end
from tests.patience import PATIENCE_S, eventually
from tests.snapshots import snapshot
from tests.unix_http import ask
from xenoovs.agent.control import app, handlers, limits
from xenoovs.agent.control.auth import TokenAuth, read_token
from xenoovs.agent.control.client import READS, Client
from xenoovs.agent.control.files import (
    AgentPaths,
    BridgeLocks,
    agent_paths,
    bound_socket,
    command_options,
)
from xenoovs.agent.control.handlers import ROUTES
from xenoovs.agent.control.schemas import READY_PATH, openapi_document
from xenoovs.agent.control.serve import ApiListener, open_port
from xenoovs.agent.control.xenoflow import xenoflow_document, xenoflow_routes
from xenoovs.agent.snapshot_builder import service_views
from xenoovs.errors import AgentMissing, AgentRuns, ListenError, RequestRefused
from xenoovs.log import LOGGER
from xenoovs.migrate.xenoflow import read_xenoflow
from xenoovs.show.snapshot import Counted, FleetMembership, ServiceView
from xenoovs.switch.endpoint import answers, find_endpoint, is_loopback


def send(path: Path, method: str, target: str, body: bytes = b"") -> tuple[int, dict[str, Any]]:
    answer = ask(path, target, method=method, body=body)
    return answer.status, json.loads(answer.body)


TOKEN = "a-token-of-24-characters"
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
            agent.store.dispatch(FleetMembership("dpu1", 1, 1, None, withheld=reason))
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


def send_to(
    opened: ApiListener, method: str, target: str, document: object = None, **headers: str
) -> tuple[int, dict[str, Any]]:
    """Send a request to a port; return status and document."""
    with closing(HTTPConnection("127.0.0.1", opened.socket.getsockname()[1], timeout=PATIENCE_S)) as connection:
        body = None if document is None else json.dumps(document)
        connection.request(method, target, body, {name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        return response.status, json.loads(response.read())


def ask_port(opened: ApiListener, method: str, target: str, **headers: str) -> str:
    """Return the status and the code of an error."""
    status, document = send_to(opened, method, target, **headers)
    return f"{status} {document.get('error', {}).get('code', '')}".strip()


def token_file(directory: Path, text: str = f"{TOKEN}\n", mode: int = 0o600) -> Path:
    path = directory / "token"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_with_a_token_all_is_possible_and_without_it_a_port_shows_alone(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is compared in constant time."""
    compare = Mock(wraps=hmac.compare_digest)
    monkeypatch.setattr("xenoovs.agent.control.auth.hmac.compare_digest", compare)
    opened = open_port("127.0.0.1", 0)
    locked = open_port("127.0.0.1", 0, token_file=token_file(scene.directory))
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
        open_port(host, 0)


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
        counted = {one.name: one.flows for one in agent.lazy_snapshot().snapshot().services[0].backends}
        assert {name: sum(block["backend"] == name for block in blocks) for name in counted} == counted
        assert client.ask("blocks", query={"service": "dns", "after": 10**9})["blocks"] == []


def test_the_event_loop_of_the_probes_builds_no_status(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 16,000 backends that takes a quarter of a second, in which probes would be late."""
    loops = list[object]()

    def made(*facts: Any, **named: Any) -> tuple[ServiceView, ...]:
        loops.append(asyncio._get_running_loop())
        return service_views(*facts, **named)

    monkeypatch.setattr("xenoovs.agent.snapshot_builder.service_views", made)
    with scene.agent() as (_, client):
        client.ask("status")
    assert loops == [None]


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
        (TOKEN, 0o644, "other users may read it"),
        ("short", 0o600, "16 characters"),
        (f"{TOKEN} {TOKEN}", 0o600, "one line"),
    ],
)
def test_a_token_file(tmp_path: Path, text: str, mode: int, message: str) -> None:
    with pytest.raises(ListenError, match="cannot be read"):
        read_token(tmp_path / "token")
    assert read_token(token_file(tmp_path)) == TOKEN
    with pytest.raises(ListenError, match=message):
        read_token(token_file(tmp_path, text, mode))


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


def test_its_form_is_that_of_openapi_and_every_reference_leads_to_a_schema_that_refuses_other_keys() -> None:
    """The required keys of OpenAPI 3.1.0, sections 4.8.1, 4.8.10, 4.8.12 and 4.8.17."""
    assert (DOCUMENT["openapi"], {"title", "version"} <= set(DOCUMENT["info"])) == ("3.1.0", True)
    for parameter in (one for found in values(DOCUMENT["paths"], "parameters") for one in found):
        assert {"name", "in", "schema"} <= set(parameter)
    for responses in values(DOCUMENT["paths"], "responses"):
        assert all("description" in response for response in responses.values())
    assert {tuple(body["content"]) for body in values(DOCUMENT["paths"], "requestBody")} == {("application/json",)}
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


GET = b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
def stderr(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> pytest.CaptureFixture[str]:
    """What is on stderr comes from requests."""
    monkeypatch.setattr(logging.getLogger(LOGGER), "handlers", [logging.NullHandler()])
    return capfd


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the time limits of connections."""
    monkeypatch.setattr(limits, "REQUEST_TIMEOUT_S", 0.3)
    monkeypatch.setattr(app, "REQUEST_TIMEOUT_S", 0.3)
    monkeypatch.setattr(limits, "SWEEP_S", 0.1)


@contextmanager
def connected(opened: ApiListener, data: bytes = b"") -> Iterator[socket.socket]:
    with closing(socket.create_connection(("127.0.0.1", opened.socket.getsockname()[1]), timeout=PATIENCE_S)) as sock:
        sock.sendall(data)
        yield sock


def is_answered(opened: ApiListener) -> bool:
    try:
        with connected(opened, GET) as sock:
            return sock.recv(65536).startswith(b"HTTP/1.1 200")
    except (ConnectionResetError, BrokenPipeError):
        return False


def is_open(sock: socket.socket) -> bool:
    sock.setblocking(False)
    try:
        return sock.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False


@pytest.mark.usefixtures("impatient")
def test_half_a_request_is_disconnected_and_a_body_that_does_not_come_is_not_waited_for(scene: Scene) -> None:
    opened = open_port("127.0.0.1", 0)
    with scene.agent(also=(opened,)) as (_, client):
        for half in (b"", b"GET /v1/sta", b"GET /v1/status HTTP/1.1\r\nHost: lo"):
            with connected(opened, half) as sock:
                assert read_to_end(sock) == b""
        with closing(socket.socket(socket.AF_UNIX)) as sock:
            sock.settimeout(PATIENCE_S)
            sock.connect(str(client.path))
            sock.sendall(b"POST /v1/drain HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
            answer = sock.recv(65536)
            assert answer.startswith(b"HTTP/1.1 408")
            assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "too_slow"


def test_many_idle_connections_keep_no_client_out(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a limit, idle connections took all file descriptors: every probe failed and all backends were down."""
    monkeypatch.setattr(limits, "REQUEST_TIMEOUT_S", 3600.0)
    opened = open_port("127.0.0.1", 0)
    with scene.agent(also=(opened,)), ExitStack() as stack:
        held = [stack.enter_context(connected(opened, b"GET / HT")) for _ in range(3 * limits.MAX_CONNECTIONS)]
        eventually(lambda: is_answered(opened), "a request is answered beside the idle connections")
        eventually(
            lambda: sum(is_open(sock) for sock in held) <= limits.MAX_CONNECTIONS,
            "the end of all connections but these",
        )


def test_streams_that_are_read_take_no_more_than_their_places(scene: Scene) -> None:
    opened = open_port("127.0.0.1", 0)
    stream = GET.replace(b"/v1/events", b"/v1/events/stream")
    with scene.agent(also=(opened,)), ExitStack() as stack:
        for _ in range(limits.MAX_CONNECTIONS):
            sock = stack.enter_context(connected(opened, stream))
            assert sock.recv(65536).startswith(b"HTTP/1.1 200")
        with connected(opened, GET) as sock:
            assert read_to_end(sock) == b""
        stack.close()
        eventually(lambda: is_answered(opened), "connections are accepted again")


GARBAGE = [
    b"\x00\x01\x02\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    b"GET / HTTP/1.1\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
    b"POST /v1/pause HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    b"POST /v1/pause HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /v1/pause HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
]


def test_what_is_no_http_is_refused_and_not_logged(scene: Scene, stderr: pytest.CaptureFixture[str]) -> None:
    opened = open_port("127.0.0.1", 0)
    with scene.agent(also=(opened,)) as (agent, _):
        for garbage in GARBAGE:
            with connected(opened, garbage) as sock:
                sock.shutdown(socket.SHUT_WR)
                answer = read_to_end(sock)
                assert answer == b"" or re.match(rb"HTTP/1.[01] 4[0-9][0-9] ", answer), (garbage[:60], answer)
        assert is_answered(opened)
        assert not agent.state.runtime.is_paused
    assert "Traceback" not in stderr.readouterr().err


ABSOLUTE = b"GET http://%s/v1/events HTTP/1.1\r\nHost: %s\r\n\r\n"
FORGED = [b"evil.example", b"localhost.evil.example", b"localhost@evil.example:80", b"192.0.2.1", b"[2001:db8::1]:80"]


def test_the_host_of_an_absolute_form_target_is_checked_in_place_of_the_host_header(scene: Scene) -> None:
    """RFC 9112, section 3.2.2: servers must accept it, and must ignore the header then."""
    opened = open_port("127.0.0.1", 0)
    with scene.agent(also=(opened,)):
        for named in (b"localhost", b"127.0.0.1:9090", b"[::1]:9090"):
            with connected(opened, ABSOLUTE % (named, b"evil.example")) as sock:
                assert sock.recv(65536).startswith(b"HTTP/1.1 200"), named
        for named in FORGED:
            with connected(opened, ABSOLUTE % (named, b"localhost")) as sock:
                answer = sock.recv(65536)
                assert answer.startswith(b"HTTP/1.1 403"), named
                assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "wrong_host"


def test_connections_without_tls_are_closed_and_not_logged(
    scene: Scene, stderr: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    chain, key = scene.directory / "chain.pem", scene.directory / "key.pem"
    issued.cert_chain_pems[0].write_to_path(str(chain))
    issued.private_key_pem.write_to_path(str(key))
    monkeypatch.setattr("xenoovs.agent.control.serve.REQUEST_TIMEOUT_S", 0.3)
    opened = open_port("127.0.0.1", 0, tls=(chain, key))
    with scene.agent(also=(opened,)):
        for sent in (GET, b"\x16\x03\x01\x00\x05hello", b""):
            with connected(opened, sent) as sock:
                assert b"HTTP/1.1 200" not in read_to_end(sock)
        context = ssl.create_default_context()
        with connected(opened) as sock, pytest.raises(ssl.SSLCertVerificationError):
            context.wrap_socket(sock, server_hostname="localhost")
        authority.configure_trust(context)
        with connected(opened) as sock, context.wrap_socket(sock, server_hostname="localhost") as secure:
            secure.sendall(GET)
            assert secure.recv(65536).startswith(b"HTTP/1.1 200")
    assert stderr.readouterr().err == ""


def test_answers_that_take_long_do_not_hold_up_rounds(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have threads of their own; the default ones of asyncio are few, and rounds need them."""
    gate = threading.Event()

    def stuck(_: object) -> str:
        gate.wait(PATIENCE_S)
        return "{}"

    monkeypatch.setattr(app, "to_json", stuck)
    opened = open_port("127.0.0.1", 0)
    with scene.agent(also=(opened,)) as (agent, _), ExitStack() as stack:
        for _ in range(40):
            stack.enter_context(connected(opened, GET))
        before_s = agent.state.round.last_s or 0.0
        eventually(lambda: (agent.state.round.last_s or 0.0) > before_s, "another round is done")
        gate.set()


def test_only_its_owner_gets_in_and_nothing_stays(tmp_path: Path) -> None:
    path = tmp_path / "run" / "a.sock"
    umask = os.umask(0)
    try:
        with bound_socket(path):
            assert path.stat().st_mode & 0o777 == 0o600
            assert path.parent.stat().st_mode & 0o777 == 0o700
            assert answers(path)
    finally:
        os.umask(umask)
    assert not path.parent.exists()


def test_a_stale_socket_is_taken_over_and_a_live_one_and_other_files_are_not(tmp_path: Path) -> None:
    path = tmp_path / "a.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    assert not answers(path)
    with bound_socket(path):
        assert answers(path)
        with pytest.raises(ListenError, match="Address already in use"), bound_socket(path):
            pass
    path.write_text("something")
    with pytest.raises(ListenError, match="Address already in use"), bound_socket(path):
        pass
    assert path.read_text() == "something"
    with pytest.raises(ListenError, match="longer than the 107 bytes"), bound_socket(tmp_path / ("a" * 120)):
        pass


def test_bug_a_live_socket_whose_queue_is_full_was_removed_as_that_of_a_killed_process(tmp_path: Path) -> None:
    path = tmp_path / "a.sock"
    with bound_socket(path) as busy, socket.socket(socket.AF_UNIX) as waiting, socket.socket(socket.AF_UNIX) as refused:
        busy.listen(0)
        waiting.connect(str(path))
        refused.setblocking(False)
        with pytest.raises(BlockingIOError):
            refused.connect(str(path))
        with pytest.raises(ListenError, match="Address already in use"), bound_socket(path):
            pass
        assert path.is_socket()


def test_locks_of_a_config_that_moves_to_another_bridge(tmp_path: Path) -> None:
    places = AgentPaths(tmp_path, tmp_path)
    locks = BridgeLocks(places, tmp_path / "a.sock")
    locks.hold(("ovsbr1",))
    with closing(BridgeLocks(places, None)) as others:
        others.hold(("ovsbr2",))
        with pytest.raises(AgentRuns, match="another agent reconciles bridge ovsbr2"):
            locks.hold(("ovsbr1", "ovsbr2"))
    assert [places.lock(name).exists() for name in ("ovsbr1", "ovsbr2")] == [True, False]
    locks.hold(("ovsbr1", "ovsbr2"))
    locks.hold(("ovsbr2",))
    assert [places.lock(name).exists() for name in ("ovsbr1", "ovsbr2")] == [False, True]
    assert places.lock("ovsbr2").read_text() == str(tmp_path / "a.sock")
    locks.close()
    assert not places.lock("ovsbr2").exists()


def test_a_command_names_an_agent_only_where_there_are_several(tmp_path: Path) -> None:
    places = AgentPaths(tmp_path, tmp_path)
    socket = places.socket("ovsbr1")
    with bound_socket(socket):
        assert command_options(socket, places) == ""
        assert command_options(socket, places, target=" --lab demo") == " --lab demo"
        with bound_socket(places.socket("ovsbr2")):
            assert command_options(socket, places, target=" --lab demo") == " --bridge ovsbr1 --lab demo"
    assert command_options(tmp_path / "a b", None, target=" --lab demo") == f" --control '{tmp_path}/a b'"


def test_a_database_has_one_place_however_it_is_spelled() -> None:
    host = find_endpoint(db=None, env={})
    lab = find_endpoint(db="unix:/run/xenoovs/lab/x/ovs/db.sock", env={})
    remote = find_endpoint(db="tcp:192.0.2.1:6640", env={})
    assert agent_paths(host, env={}, is_root=True).socket("br") == Path("/run/xenoovs/br.sock")
    assert agent_paths(host, env={}, is_root=True).runtime("br") == Path("/var/lib/xenoovs/br.json")
    assert agent_paths(lab, env={}, is_root=True).socket("br") == Path("/run/xenoovs/lab/x/ovs/xenoovs/br.sock")
    env = {"XDG_RUNTIME_DIR": "/run/user/7", "HOME": "/home/me"}
    assert agent_paths(host, env=env, is_root=False).socket("br") == Path("/run/user/7/xenoovs/br.sock")
    assert agent_paths(host, env=env, is_root=False).runtime("br") == Path("/home/me/.local/state/xenoovs/br.json")
    assert agent_paths(remote, env=env, is_root=True).run.parent == Path("/run/xenoovs")
    with pytest.raises(ListenError, match="XDG_RUNTIME_DIR"):
        agent_paths(host, env={}, is_root=False)
    # /var/run is a link to /run: two agents of one bridge had a lock each.
    for db in ("unix:/run/openvswitch/db.sock", "unix:/var/run/../run/openvswitch/db.sock"):
        same = find_endpoint(db=db, env={})
        assert agent_paths(same, env={}, is_root=True) == agent_paths(host, env={}, is_root=True)


API2 = {"name": "fips2", "mac_address": "02:00:5E:10:00:02"}


@pytest.fixture
def port(tmp_path: Path) -> ApiListener:
    token = token_file(tmp_path)
    return open_port("127.0.0.1", 0, token_file=token, option="--xenoflow-api", is_readable=True)


def test_the_dashboard_gets_what_xenoflow_answers_and_changes_need_a_token(scene: Scene, port: ApiListener) -> None:
    with scene.agent(also=(port,), routes=xenoflow_routes):
        status, document = send_to(port, "GET", "/api")
        assert send_to(port, "GET", "/api", Host="evil.example")[0] == 403
        assert send_to(port, "POST", "/api", {"backends": [API2]}, Content_Type="application/json")[0] == 401
        # A form of a web page, whose browser has stored the password.
        assert send_to(port, "POST", "/api", {"backends": [API2]}, Authorization=f"Bearer {TOKEN}")[0] == 415
        assert send_to(port, "GET", "/api")[1] == document
    assert status == 200
    assert document == {
        "message": "xenoovs balances bridge ovsbr1.",
        "status": "ok",
        "version": 1.0,
        "backends": [
            {"name": "fips2", "mac_address": "02:00:5e:10:00:02", "packetsProcessed": "0"},
            {"name": "fips3", "mac_address": "02:00:5e:10:00:03", "packetsProcessed": "0"},
        ],
        "backendNumber": 2,
    }
    assert [backend.name for backend in read_xenoflow(json.dumps(document)).services[0].backends] == ["fips2", "fips3"]


def test_packets_of_hardware_and_software_are_added_over_services() -> None:
    shown = snapshot()
    busy = shown.services[0].backends[0]
    again = replace(shown.services[1], backends=(replace(busy, traffic=None, counted=Counted(7, 700)),))
    rows: Any = xenoflow_document(replace(shown, services=(shown.services[0], again)))["backends"]
    assert rows[0] == {"name": busy.name, "mac_address": busy.mac, "packetsProcessed": "9001007"}
    assert sum(row["name"] == busy.name for row in rows) == 1


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"number":', b"\xff"])
def test_bug_json_of_another_program_was_a_traceback(body: bytes, tmp_path: Path) -> None:
    def serve() -> None:
        for _ in range(2):
            with listener.accept()[0] as connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "agent.sock"))
        listener.listen()
        server = threading.Thread(target=serve)
        server.start()
        client = Client(tmp_path / "agent.sock")
        with pytest.raises(AgentMissing, match="another program answered"):
            client.ask("status")
        with pytest.raises(AgentMissing, match="another program answered"):
            list(client.events(0))
        server.join(PATIENCE_S)
