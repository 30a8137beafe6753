"""Probes of servers: TCP, UDP, DNS, HTTP and TLS; what a server may answer, and what becomes of it."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from pathlib import Path

import dns.flags
import dns.message
import dns.rcode
import dns.rrset
import pytest

from tests.patience import PATIENCE_S
from tests.probe_support import Talk, ask, tcp_server, udp_answers
from xenoovs.agent.probe.run import Prober
from xenoovs.agent.probe.target import DnsTarget, HttpTarget, ProbeResult, TcpTarget, Tls, UdpTarget, Via
from xenoovs.switch.process import run


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_accepted(host: str) -> None:
    with socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as server:
        result = ask(TcpTarget(ip_address(host), server.getsockname()[1]))
    assert (result.ok, result.reason) == (True, "answered")


def test_reset_is_what_the_server_sees() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ask(TcpTarget(ip_address("127.0.0.1"), server.getsockname()[1]))
        connection, _ = server.accept()
        with connection, pytest.raises(ConnectionResetError):
            connection.recv(1)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_refused(host: str) -> None:
    assert ask(TcpTarget(ip_address(host), 1)).reason == "connection refused"


@pytest.fixture
def full_port() -> Iterator[int]:
    """A port whose backlog is full: the kernel drops every SYN."""
    with (
        socket.create_server(("127.0.0.1", 0), backlog=0) as server,
        socket.socket() as first,
        socket.socket() as second,
    ):
        for sock in (first, second):
            sock.setblocking(False)
            sock.connect_ex(server.getsockname())
        yield server.getsockname()[1]


def test_a_clock_that_jumps_changes_nothing(full_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    jumping = iter(range(0, 10**9, 3600))
    monkeypatch.setattr(time, "time", lambda: float(next(jumping)))
    result = ask(TcpTarget(ip_address("127.0.0.1"), full_port), timeout_s=0.05)
    assert result.reason == "no answer within 50ms"
    assert 0.05 <= result.latency_s < 3600


def test_absent_device_and_namespace_are_named() -> None:
    target = TcpTarget(ip_address("127.0.0.1"), 80, via=Via("nosuch0"))
    assert ask(target).reason == "interface nosuch0 does not exist"
    target = TcpTarget(ip_address("127.0.0.1"), 80, via=Via(netns="nosuch"))
    assert ask(target).reason == "network namespace nosuch does not exist"


LOCAL = ip_address("127.0.0.1")


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_udp_answered(host: str) -> None:
    with udp_answers(lambda request: [request + b" pong"], host=host) as port:
        assert ask(UdpTarget(ip_address(host), port, b"ping", b"pong")).ok


def test_udp_other_answer() -> None:
    with udp_answers(lambda _: [b"\xffno"]) as port:
        assert ask(UdpTarget(LOCAL, port, b"ping", b"pong")).reason == "answered '\\xffno', wanted 'pong' in it"


def test_udp_refused() -> None:
    assert ask(UdpTarget(LOCAL, 1, b"ping")).reason == "connection refused"


def test_udp_from_another_port_is_no_answer() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        result = ask(UdpTarget(LOCAL, silent.getsockname()[1], b"ping"), timeout_s=0.05)
    assert result.reason == "no answer within 50ms"


def answer(change: Callable[[dns.message.Message], object]) -> Callable[[bytes], list[bytes]]:
    def build(request: bytes) -> list[bytes]:
        message = dns.message.make_response(dns.message.from_wire(request))
        message.answer.append(dns.rrset.from_text("www.example.", 60, "IN", "A", "192.0.2.7"))
        change(message)
        return [message.to_wire()]

    return build


def truncate(message: dns.message.Message) -> None:
    message.flags |= dns.flags.TC


def empty(message: dns.message.Message) -> None:
    message.answer.clear()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda _: None, "answered"),
        (lambda m: m.set_rcode(dns.rcode.NXDOMAIN), "NXDOMAIN for www.example A"),
        (lambda m: m.set_rcode(dns.rcode.SERVFAIL), "SERVFAIL for www.example A"),
        (truncate, "the answer for www.example A is truncated"),
        (empty, "www.example A is without a record"),
    ],
)
def test_dns(change: Callable[[dns.message.Message], object], reason: str) -> None:
    with udp_answers(answer(change)) as port:
        result = ask(DnsTarget(LOCAL, "www.example", port=port))
    assert (result.ok, result.reason) == (reason == "answered", reason)


def test_dns_garbage() -> None:
    with udp_answers(lambda request: [request[:2] + b"\xff" * 20]) as port:
        assert ask(DnsTarget(LOCAL, "www.example", port=port)).reason.startswith("the answer is no DNS message")


def test_dns_other_id_is_passed_over() -> None:
    good = answer(lambda _: None)

    def forged_first(request: bytes) -> list[bytes]:
        real = good(request)[0]
        return [bytes([real[0] ^ 1]) + real[1:], real]

    with udp_answers(forged_first) as port:
        assert ask(DnsTarget(LOCAL, "www.example", port=port)).ok
    with udp_answers(lambda request: forged_first(request)[:1]) as port:
        reason = ask(DnsTarget(LOCAL, "www.example", port=port), timeout_s=0.1).reason
    assert reason == "only answers to other queries within 100ms"


def test_dns_query_that_cannot_be_asked() -> None:
    assert ask(DnsTarget(LOCAL, "a..b")).reason.startswith("the query cannot be asked")


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


def reply_with(data: bytes, *, reset: bool = False, hold_s: float = 0) -> Talk:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(data)
        await asyncio.sleep(hold_s)
        if reset:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.close()

    return talk


def get(
    talk: Talk,
    *,
    host: str = "127.0.0.1",
    timeout_s: float = PATIENCE_S,
    server_tls: ssl.SSLContext | None = None,
    **more: object,
) -> ProbeResult:
    async def once() -> ProbeResult:
        async with tcp_server(talk, host=host, tls=server_tls) as port:
            target = HttpTarget(ip_address(host), port, **more)  # type: ignore[arg-type]
            return await Prober().probe(target, timeout_s=timeout_s)

    return asyncio.run(once())


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_status_and_body(host: str) -> None:
    assert get(reply_with(OK), host=host, body=b"ell").ok


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", "status 503, wanted 200-399"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad", "the body has no 'hello' in it: 'bad'"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbad", "the body was cut short"),
        (b"", "connection closed before an answer"),
    ],
)
def test_wrong_answers(answer: bytes, reason: str) -> None:
    result = get(reply_with(answer), body=b"hello")
    assert (result.ok, result.reason) == (False, reason)


def test_garbage() -> None:
    assert get(reply_with(b"\x00\xffSSH-2.0\r\n\r\n")).reason.startswith("the answer is no HTTP")


def test_reset_in_the_middle() -> None:
    assert get(reply_with(b"", reset=True)).reason == "connection reset"


def test_silent_and_trickling_servers_meet_the_deadline() -> None:
    assert get(reply_with(b"", hold_s=60), timeout_s=0.1).reason == "no answer within 100ms"
    trickle = reply_with(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nb", hold_s=60)
    assert get(trickle, timeout_s=0.1, body=b"hello").reason == "no complete body within 100ms"


def test_host_and_path_are_sent_as_given() -> None:
    seen: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(OK)
        writer.close()

    async def once() -> ProbeResult:
        async with tcp_server(talk) as port:
            target = HttpTarget(ip_address("127.0.0.1"), port, path="/health?a=%2F", host="www.example")
            return await Prober().probe(target, timeout_s=PATIENCE_S)

    assert asyncio.run(once()).ok
    assert seen[0].startswith(b"GET /health?a=%2F HTTP/1.1\r\nHost: www.example\r\n")


@pytest.mark.parametrize("path", ["//192.0.2.9/", "//[::1", "/a//b"])
def test_a_path_never_names_another_server(path: str) -> None:
    seen: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(OK)
        writer.close()

    assert get(talk, path=path).ok
    assert seen[0].startswith(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:".encode())


async def hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(OK)
    writer.close()


class Authority:
    """A CA and the certificates that it signs, by openssl(1)."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.file = directory, str(directory / "ca.pem")
        self._openssl("req", "-x509", *self._subject("ca"), "-days", "2", "-out", self.file)

    def server(self, name: str, *, days: str = "2") -> ssl.SSLContext:
        """A context of a server with a certificate for an address or a name."""
        request, signed, extensions = (str(self.directory / f"{name}.{end}") for end in ("csr", "pem", "ext"))
        Path(extensions).write_text(f"subjectAltName={'IP' if name[0].isdigit() else 'DNS'}:{name}\n")
        self._openssl("req", *self._subject(name), "-out", request)
        authority = ("-CA", self.file, "-CAkey", str(self.directory / "ca.key"), "-CAcreateserial")
        self._openssl("x509", "-req", "-in", request, *authority, "-days", days, "-extfile", extensions, "-out", signed)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(signed, str(self.directory / f"{name}.key"))
        return context

    def _subject(self, name: str) -> tuple[str, ...]:
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout")
        return (*key, str(self.directory / f"{name}.key"), "-subj", f"/CN={name}")

    def _openssl(self, *argv: str) -> None:
        run(["openssl", *argv])


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


def reason(server: ssl.SSLContext | None, tls: Tls) -> str:
    async def once() -> str:
        async with tcp_server(hello, tls=server) as port:
            target = HttpTarget(ip_address("127.0.0.1"), port, body=b"hello", tls=tls)
            return (await Prober().probe(target, timeout_s=PATIENCE_S)).reason

    return asyncio.run(once())


def test_trusted_by_address_and_by_name(authority: Authority) -> None:
    assert reason(authority.server("127.0.0.1"), Tls(ca_file=authority.file)) == "answered"
    assert reason(authority.server("www.example"), Tls(ca_file=authority.file, name="www.example")) == "answered"


def test_a_private_authority_of_plain_openssl_is_trusted_under_the_strict_defaults_of_python_3_13(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its certificates have no authority key identifier, which VERIFY_X509_STRICT requires."""
    make = ssl.create_default_context

    def strict(*, cafile: str | None) -> ssl.SSLContext:
        context = make(cafile=cafile)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)
    assert reason(authority.server("127.0.0.1"), Tls(ca_file=authority.file)) == "answered"


def test_another_name(authority: Authority) -> None:
    server = authority.server("www.example")
    assert reason(server, Tls(ca_file=authority.file, name="api.example")) == "certificate for another name"
    assert reason(server, Tls(ca_file=authority.file)) == "certificate for another address"


def test_expired(authority: Authority) -> None:
    server = authority.server("127.0.0.1", days="-1")
    assert reason(server, Tls(ca_file=authority.file)) == "certificate expired"
    assert reason(server, Tls(verify=False)) == "answered"


def test_unknown_authority(authority: Authority) -> None:
    text = reason(authority.server("127.0.0.1"), Tls())
    assert text == "certificate from an authority that is not trusted"


def test_no_tls_at_all() -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK)
        await reader.read()
        writer.close()

    async def once() -> str:
        async with tcp_server(plain) as port:
            target = HttpTarget(ip_address("127.0.0.1"), port, tls=Tls(verify=False))
            return (await Prober().probe(target, timeout_s=PATIENCE_S)).reason

    assert asyncio.run(once()) == "TLS failed: wrong version number"


def test_authority_file_is_named_when_it_is_unusable(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.touch()
    assert reason(None, Tls(ca_file=str(empty))) == f"{empty} holds no certificate in PEM form"
    assert reason(None, Tls(ca_file=str(tmp_path / "no.pem"))) == f"{tmp_path / 'no.pem'}: no such file or directory"


def test_name_that_no_request_can_have() -> None:
    long = "x" * 64 + ".example"
    assert reason(None, Tls(verify=False, name=long)).startswith("the request cannot be made")
