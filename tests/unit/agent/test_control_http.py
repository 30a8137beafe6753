"""No input by HTTP is trusted; every refusal has the same JSON form."""

from __future__ import annotations

import asyncio
import json
import ssl
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from tests.agent_support import Scene
from tests.patience import PATIENCE_S
from tests.unix_http import ask
from xenoovs.agent.control import app
from xenoovs.agent.control.serve import ApiListener, Listen, open_port
from xenoovs.agent.state import Membership
from xenoovs.errors import ListenError
from xenoovs.show.snapshot import FleetMembership


def send(path: Path, method: str, target: str, body: bytes = b"") -> tuple[int, dict[str, Any]]:
    answer = ask(path, target, method=method, body=body)
    return answer.status, json.loads(answer.body)


BAD_BODIES = [
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


def test_a_bad_body_is_refused(scene: Scene) -> None:
    with scene.agent() as (agent, client):
        for body in BAD_BODIES:
            status, document = send(client.path, "POST", "/v1/drain", body)
            assert (status, document["error"]["code"]) == (400, "bad_request"), body
            assert document["error"]["message"].startswith("the request cannot be used: ")
        assert agent.state.runtime.overrides == ()


@pytest.mark.parametrize("weight", ["1e999999999", '"7"', "true", "null", "1e-40", "-1", "1" * 5000])
def test_a_bad_weight_is_refused(scene: Scene, weight: str) -> None:
    with scene.agent() as (_, client):
        body = f'{{"service": "dns", "backend": "fips2", "weight": {weight}}}'.encode()
        status, document = send(client.path, "POST", "/v1/weight", body)
        assert (status, document["error"]["code"]) == (400, "bad_request")


OTHERS = [
    ("GET", "/", 404, "not_found"),
    ("GET", "/v1/drain", 405, "method_not_allowed"),
    ("POST", "/v1/status", 405, "method_not_allowed"),
    ("GET", "/v1/events?since=x", 400, "bad_request"),
    ("GET", "/v1/events?since=-1", 400, "bad_request"),
]


@pytest.mark.parametrize(("method", "target", "status", "code"), OTHERS)
def test_other_mistakes_have_the_same_form(scene: Scene, method: str, target: str, status: int, code: str) -> None:
    with scene.agent() as (_, client):
        answer = send(client.path, method, target)
        assert (answer[0], answer[1]["error"]["code"]) == (status, code)


def test_ready_answers_as_described_and_status_has_the_same_reason(scene: Scene) -> None:
    with scene.agent() as (agent, client):
        assert (send(client.path, "GET", "/ready"), client.ask("status")["snapshot"]["not_ready"]) == (
            (200, {"ready": True, "reason": ""}),
            "",
        )
        membership = FleetMembership("dpu1", 1, 1, None, "", "")
        agent.store.dispatch(Membership(membership, withheld="a reason"))
        assert (send(client.path, "GET", "/ready"), client.ask("status")["snapshot"]["not_ready"]) == (
            (503, {"ready": False, "reason": "a reason"}),
            "a reason",
        )


def test_too_much_is_refused(scene: Scene) -> None:
    with scene.agent() as (_, client):
        status, document = send(client.path, "POST", "/v1/drain", b" " * 70_000)
        assert (status, document["error"]["code"]) == (413, "request_entity_too_large")


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


def test_a_refused_method_names_those_that_are_allowed(scene: Scene) -> None:
    """RFC 9110, section 15.5.6: an answer of 405 must have `Allow`."""
    with scene.agent() as (_, client):
        refused = ask(client.path, "/v1/drain", method="PUT")
        assert (refused.status, refused.headers["Allow"]) == (405, "POST")


def ask_port(opened: ApiListener, method: str, target: str, **headers: str) -> tuple[int, Any]:
    connection = HTTPConnection("127.0.0.1", opened.socket.getsockname()[1], timeout=PATIENCE_S)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, target, headers=named)
    response = connection.getresponse()
    document = json.loads(response.read())
    connection.close()
    return response.status, document


def test_a_port_of_this_machine_shows_and_changes_nothing(scene: Scene) -> None:
    opened = open_port(Listen("127.0.0.1", 0))
    with scene.agent(also=(opened,)) as (agent, _):
        assert ask_port(opened, "GET", "/v1/status")[0] == 200
        status, document = ask_port(opened, "POST", "/v1/pause")
        assert (status, document["error"]["code"]) == (403, "read_only")
        status, document = ask_port(opened, "GET", "/v1/status", Host="evil.example")
        assert (status, document["error"]["code"]) == (403, "wrong_host")
        assert not agent.state.runtime.is_paused


def test_with_a_token_all_is_possible_and_without_it_nothing(scene: Scene) -> None:
    token = scene.directory / "token"
    token.touch(mode=0o600)
    token.write_text("0123456789abcdef\n")
    opened = open_port(Listen("127.0.0.1", 0, token_file=token))
    with scene.agent(also=(opened,)) as (agent, _):
        for wrong in ({}, {"Authorization": "Bearer 0123456789abcdeX"}, {"Authorization": "Bearer"}):
            status, document = ask_port(opened, "GET", "/v1/status", **wrong)
            assert (status, document["error"]["code"]) == (401, "unauthorized")
        right = {"Authorization": "Bearer 0123456789abcdef"}
        assert ask_port(opened, "GET", "/v1/status", **right)[0] == 200
        assert ask_port(opened, "POST", "/v1/pause", **right)[0] == 415
        assert ask_port(opened, "POST", "/v1/pause", Content_Type="application/json", **right)[0] == 200
        assert agent.state.runtime.is_paused


def test_over_tls(scene: Scene) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    chain, key = scene.directory / "chain.pem", scene.directory / "key.pem"
    for blob in issued.cert_chain_pems:
        blob.write_to_path(str(chain), append=True)
    issued.private_key_pem.write_to_path(str(key))
    opened = open_port(Listen("127.0.0.1", 0, tls=(chain, key)))
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with scene.agent(also=(opened,)):
        connection = HTTPSConnection("localhost", opened.socket.getsockname()[1], context=context, timeout=PATIENCE_S)
        connection.request("GET", "/v1/events")
        assert connection.getresponse().status == 200
        connection.close()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_other_machines_need_tls_and_a_token(host: str) -> None:
    with pytest.raises(ListenError, match="needs --tls-cert and --tls-key and --token-file"):
        open_port(Listen(host, 0))
