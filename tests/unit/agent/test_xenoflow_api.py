"""XenoFlow's `/api` at an agent, as its dashboard and its scripts use it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from tests.agent_support import Scene
from tests.patience import PATIENCE_S
from tests.snapshots import snapshot
from xenoovs.agent.control.serve import ApiListener, Listen, open_port
from xenoovs.agent.control.xenoflow import mount_xenoflow, xenoflow_document
from xenoovs.agent.daemon import Agent
from xenoovs.migrate.xenoflow import read_xenoflow
from xenoovs.show.snapshot import Counted

TOKEN = "0123456789abcdef"
FIPS2 = {"name": "fips2", "mac_address": "02:00:5E:10:00:02"}
FIPS3 = {"name": "fips3", "mac_address": "02:00:5e:10:00:03"}


@pytest.fixture
def port(tmp_path: Path) -> ApiListener:
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text(f"{TOKEN}\n")
    return open_port(Listen("127.0.0.1", 0, token_file=token, option="--xenoflow-api", is_readable=True))


def ask(port: ApiListener, method: str, document: object = None, **headers: str) -> tuple[int, dict[str, Any]]:
    connection = HTTPConnection("127.0.0.1", port.socket.getsockname()[1], timeout=PATIENCE_S)
    body = None if document is None else json.dumps(document)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, "/api", body, named)
    response = connection.getresponse()
    found = json.loads(response.read())
    connection.close()
    return response.status, found


def post(port: ApiListener, *backends: Mapping[str, object]) -> tuple[int, dict[str, Any]]:
    headers = {"Authorization": f"Bearer {TOKEN}", "Content_Type": "application/json"}
    return ask(port, "POST", {"backends": backends}, **headers)


def mounts(agent: Agent) -> tuple[Any, ...]:
    return (mount_xenoflow(agent),)


def weights(agent: Agent) -> dict[str, Fraction]:
    return {backend.name: backend.weight for backend in agent.state.in_use.services[0].backends}


def test_the_dashboard_gets_what_xenoflow_answers_and_changes_need_a_token(scene: Scene, port: ApiListener) -> None:
    with scene.agent(also=(port,), mounts=mounts):
        status, document = ask(port, "GET")
        assert ask(port, "GET", Host="evil.example")[0] == 403
        assert ask(port, "POST", {"backends": [FIPS2]}, Content_Type="application/json")[0] == 401
        # A form of a web page, whose browser has stored the password.
        assert ask(port, "POST", {"backends": [FIPS2]}, Authorization=f"Bearer {TOKEN}")[0] == 415
        assert ask(port, "GET")[1] == document
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


def test_a_post_gives_clients_to_the_listed_backends_alone(scene: Scene, port: ApiListener) -> None:
    with scene.agent(also=(port,), mounts=mounts) as (agent, client):
        status, document = post(port, FIPS3)
        assert (status, document["status"], document["is_applied"]) == (200, "Ok", True)
        assert weights(agent) == {"fips2": 0, "fips3": 30}
        # From one backend to the other in one step: at no time has the service none.
        assert post(port, FIPS2)[0] == 200
        assert weights(agent) == {"fips2": 70, "fips3": 0}
        post(port, FIPS2, {**FIPS3, "weight": 10})
        assert weights(agent) == {"fips2": 70, "fips3": 10}
        post(port, FIPS2, FIPS3)
        assert weights(agent) == {"fips2": 70, "fips3": 30}
        assert not agent.state.runtime.overrides
        assert ask(port, "GET")[1]["backendNumber"] == 2
        # It does not end a maintenance.
        client.ask("maintenance", {"backend": "fips3", "service": "dns"})
        assert post(port, FIPS2, FIPS3)[0] == 200
        assert [each.is_maintenance for each in agent.state.runtime.overrides] == [True]


@pytest.mark.parametrize(
    ("backends", "status", "code", "words"),
    [
        (({**FIPS2, "name": "fips9"},), 404, "unknown_backend", "'fips9' is not a backend of the config"),
        (({**FIPS2, "mac_address": "02:00:5e:10:00:09"},), 409, "other_mac", "fips2 has the MAC 02:00:5e:10:00:02"),
        (({**FIPS2, "mac_address": "02:00:5e:10:00:09"}, FIPS2), 409, "other_mac", "not 02:00:5e:10:00:09"),
        (({**FIPS2, "mac_address": "nonsense"},), 400, "bad_request", "'nonsense' is not a MAC address"),
        (({**FIPS2, "mac_address": "0" * 64},), 400, "bad_request", "have at most 63 characters"),
        (({"name": "fips2"},), 400, "bad_request", "each backend needs `name` and `mac_address`"),
        (({**FIPS2, "name": 7},), 400, "bad_request", "are texts"),
        (({**FIPS2, "weight": -1},), 400, "bad_request", "-1"),
        ((), 400, "bad_request", "not a list of backends"),
        (({**FIPS2, "weight": 0},), 409, "impossible", "every backend with a weight is drained"),
    ],
)
def test_a_post_that_cannot_be_done_changes_nothing(
    scene: Scene, port: ApiListener, backends: tuple[Mapping[str, object], ...], status: int, code: str, words: str
) -> None:
    with scene.agent(also=(port,), mounts=mounts) as (agent, _):
        found, document = post(port, *backends)
        assert (found, document["error"]["code"]) == (status, code)
        assert words in document["error"]["message"]
        assert not agent.state.runtime.overrides
