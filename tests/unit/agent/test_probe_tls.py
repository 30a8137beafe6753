"""TLS: certificates of an authority made here, as they should be and as they should not."""

from __future__ import annotations

import asyncio
import ssl
from ipaddress import ip_address
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.probe_support import tcp_server
from xenoovs.agent.probe.run import Prober
from xenoovs.agent.probe.target import HttpTarget, Tls
from xenoovs.switch.process import run

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


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
