"""Where switches connect: an address, and the certificates that are needed beyond this host."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from threading import Event, Thread
from time import monotonic

from xenoovs.controller.doorway import Doorway
from xenoovs.controller.pipe import Pipe
from xenoovs.controller.voice import Voice
from xenoovs.errors import CannotListen, CertificateUnusable

_ADDRESS = re.compile(r"(?:\[([0-9a-fA-F:.]+)\]|([0-9.]+)):([0-9]{1,5})", re.ASCII)
_QUEUE = 128
"""Connections that the kernel accepts ahead of us."""
_TLS_TIMEOUT_S = 5.0
_TICK_S = 0.2
_LOOPBACK = {4: "127.0.0.1", 6: "::1"}


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen. Port 0: any that is free."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        return ip_address(self.host).is_loopback


def parse_address(text: str) -> Address:
    """`127.0.0.1:6653` or `[::1]:6653`. Raises ValueError."""
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found[3]) > 65535:
        raise ValueError(f"{text!r} is not ADDRESS:PORT, such as 127.0.0.1:6653 or [::1]:6653")
    host = found[1] or found[2]
    return Address(str(ip_address(host)), int(found[3]))


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files: our private key and certificate, and the authority whose switches may connect."""

    key: Path
    certificate: Path
    authority: Path

    def context(self) -> ssl.SSLContext:
        """For TLS 1.2 and later; a switch without a certificate is refused. Raises CertificateUnusable."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_REQUIRED
        pair = f"{self.certificate} with the key {self.key}"
        with _reading(pair):
            context.load_cert_chain(self.certificate, self.key, password=_no_password)
        with _reading(str(self.authority)):
            context.load_verify_locations(self.authority)
        return context


@dataclass(frozen=True, slots=True)
class Visit:
    """A connection that was accepted. `at_s`: when, monotonic. `let_in`: to be called when it is known who it is."""

    peer: tuple[str, int]
    at_s: float
    let_in: Callable[[], None]


class Listener:
    """Accepts connections until it is closed; each is served in a thread of its own.

    serve: takes a connection that is encrypted by now, if it has to be.
    """

    def __init__(
        self,
        address: Address,
        *,
        serve: Callable[[Pipe, Visit], None],
        voice: Voice,
        certificates: Certificates | None = None,
    ) -> None:
        """Raises CannotListen, CertificateUnusable."""
        self._serve, self._voice = serve, voice
        self._context = certificates.context() if certificates is not None else None
        self._socket = _listen(address)
        self.address = Address(address.host, self._socket.getsockname()[1])
        self._closing = Event()
        self._doorway = Doorway()
        self._accepting = Thread(target=self._accept_forever, name="xenoovs-listen", daemon=True)
        self._accepting.start()

    @property
    def target(self) -> str:
        """As `ovs-vsctl set-controller` takes it."""
        return f"{'ssl' if self._context else 'tcp'}:{self.address}"

    @property
    def local_target(self) -> str:
        """The same for a bridge of this host."""
        host = ip_address(self.address.host)
        if not host.is_unspecified:
            return self.target
        return self.target.replace(str(self.address), str(Address(_LOOPBACK[host.version], self.address.port)))

    def close(self) -> None:
        """Accept nobody any more."""
        self._closing.set()
        self._accepting.join()
        self._socket.close()

    def _accept_forever(self) -> None:
        while not self._closing.is_set():
            try:
                plain, peer = self._socket.accept()
            except OSError:
                continue
            try:
                sock = self._wrapped(plain)
                self._doorway.enter(sock, peer[0])
                visit = Visit(peer, monotonic(), partial(self._doorway.known, sock))
                Thread(target=self._welcome, args=(sock, visit), name="xenoovs-switch", daemon=True).start()
            except (OSError, RuntimeError):
                # It has gone already, or the system has no thread left: others may come all the same.
                plain.close()

    def _wrapped(self, sock: socket.socket) -> socket.socket:
        if self._context is None:
            return sock
        sock.settimeout(_TLS_TIMEOUT_S)
        return self._context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)

    def _welcome(self, sock: socket.socket, visit: Visit) -> None:
        try:
            with suppress(OSError), sock:
                self._secure(sock, visit.peer)
                self._serve(Pipe(sock), visit)
        finally:
            self._doorway.known(sock)

    def _secure(self, sock: socket.socket, peer: tuple[str, int]) -> None:
        if not isinstance(sock, ssl.SSLSocket):
            return
        try:
            sock.do_handshake()
        except OSError as error:
            reason = getattr(error, "reason", None) or error.strerror or type(error).__name__
            self._voice.warn("a connection is refused: no TLS with a certificate we trust", peer=peer[0], reason=reason)
            raise


def _listen(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address.host, address.port))
        sock.listen(_QUEUE)
        sock.settimeout(_TICK_S)
    except OSError as error:
        sock.close()
        raise CannotListen(address=str(address), reason=error.strerror or str(error)) from None
    return sock


@contextmanager
def _reading(file: str) -> Iterator[None]:
    try:
        yield
    except ssl.SSLError as error:
        raise CertificateUnusable(file=file, reason=(error.reason or str(error)).lower().replace("_", " ")) from None
    except OSError as error:
        raise CertificateUnusable(file=file, reason=error.strerror or str(error)) from None


def _no_password() -> str:
    # Without this OpenSSL asks at the terminal, where nobody sits.
    return ""
