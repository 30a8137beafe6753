"""A client without a token cannot hold connections, fill the log, or read more than a refusal."""

from __future__ import annotations

import json
import logging
import re
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import pytest
import trustme

from tests.agent_support import Scene
from tests.patience import PATIENCE_S, eventually
from xenoovs.agent.control import app, limits
from xenoovs.agent.control.serve import ApiListener, Listen, open_port
from xenoovs.agent.log import LOGGER

GET = b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(autouse=True)
def _no_other_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is on stderr comes from these requests."""
    monkeypatch.setattr(logging.getLogger(LOGGER), "handlers", [])


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


def everything(sock: socket.socket) -> bytes:
    """What comes until the other side ends."""
    found = b""
    try:
        while data := sock.recv(65536):
            found += data
    except ConnectionResetError:
        pass
    return found


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
    opened = open_port(Listen("127.0.0.1", 0))
    with scene.agent(also=(opened,)) as (_, client):
        for half in (b"", b"GET /v1/sta", b"GET /v1/status HTTP/1.1\r\nHost: lo"):
            with connected(opened, half) as sock:
                assert everything(sock) == b""
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
    opened = open_port(Listen("127.0.0.1", 0))
    with scene.agent(also=(opened,)), ExitStack() as stack:
        held = [stack.enter_context(connected(opened, b"GET / HT")) for _ in range(3 * limits.MAX_CONNECTIONS)]
        eventually(lambda: is_answered(opened), "a request is answered beside the idle connections")
        eventually(
            lambda: sum(is_open(sock) for sock in held) <= limits.MAX_CONNECTIONS,
            "the end of all connections but these",
        )


def test_streams_that_are_read_take_no_more_than_their_places(scene: Scene) -> None:
    opened = open_port(Listen("127.0.0.1", 0))
    stream = GET.replace(b"/v1/events", b"/v1/events/stream")
    with scene.agent(also=(opened,)), ExitStack() as stack:
        for _ in range(limits.MAX_CONNECTIONS):
            sock = stack.enter_context(connected(opened, stream))
            assert sock.recv(65536).startswith(b"HTTP/1.1 200")
        with connected(opened, GET) as sock:
            assert everything(sock) == b""
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


def test_what_is_no_http_is_refused_and_not_logged(scene: Scene, capfd: pytest.CaptureFixture[str]) -> None:
    opened = open_port(Listen("127.0.0.1", 0))
    with scene.agent(also=(opened,)) as (agent, _):
        for garbage in GARBAGE:
            with connected(opened, garbage) as sock:
                sock.shutdown(socket.SHUT_WR)
                answer = everything(sock)
                assert answer == b"" or re.match(rb"HTTP/1.[01] 4[0-9][0-9] ", answer), (garbage[:60], answer)
        assert is_answered(opened)
        assert not agent.state.runtime.is_paused
    assert "Traceback" not in capfd.readouterr().err


ABSOLUTE = b"GET http://%s/v1/events HTTP/1.1\r\nHost: %s\r\n\r\n"
FORGED = [b"evil.example", b"localhost.evil.example", b"localhost@evil.example:80", b"192.0.2.1", b"[2001:db8::1]:80"]


def test_the_host_of_an_absolute_form_target_is_checked_in_place_of_the_host_header(scene: Scene) -> None:
    """RFC 9112, section 3.2.2: servers must accept it, and must ignore the header then."""
    opened = open_port(Listen("127.0.0.1", 0))
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
    scene: Scene, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    chain, key = scene.directory / "chain.pem", scene.directory / "key.pem"
    issued.cert_chain_pems[0].write_to_path(str(chain))
    issued.private_key_pem.write_to_path(str(key))
    monkeypatch.setattr("xenoovs.agent.control.serve.REQUEST_TIMEOUT_S", 0.3)
    opened = open_port(Listen("127.0.0.1", 0, tls=(chain, key)))
    with scene.agent(also=(opened,)):
        for sent in (GET, b"\x16\x03\x01\x00\x05hello", b""):
            with connected(opened, sent) as sock:
                assert b"HTTP/1.1 200" not in everything(sock)
        context = ssl.create_default_context()
        with connected(opened) as sock, pytest.raises(ssl.SSLCertVerificationError):
            context.wrap_socket(sock, server_hostname="localhost")
        authority.configure_trust(context)
        with connected(opened) as sock, context.wrap_socket(sock, server_hostname="localhost") as secure:
            secure.sendall(GET)
            assert secure.recv(65536).startswith(b"HTTP/1.1 200")
    assert capfd.readouterr().err == ""


def test_answers_that_take_long_do_not_hold_up_rounds(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have threads of their own; the default ones of asyncio are few, and rounds need them."""
    gate = threading.Event()

    def stuck(_: object) -> str:
        gate.wait(PATIENCE_S)
        return "{}"

    monkeypatch.setattr(app, "to_json", stuck)
    opened = open_port(Listen("127.0.0.1", 0))
    with scene.agent(also=(opened,)) as (agent, _), ExitStack() as stack:
        for _ in range(40):
            stack.enter_context(connected(opened, GET))
        before_s = agent.state.round.last_s or 0.0
        eventually(lambda: (agent.state.round.last_s or 0.0) > before_s, "another round is done")
        gate.set()
