"""Where switches connect: an address, certificates, sockets, and a limit for connections that are not known yet."""

from __future__ import annotations

import re
import select
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from threading import Event, Lock, Thread
from time import monotonic

from xenoovs.controller.log import Voice
from xenoovs.errors import CannotListen, CertificateUnusable

# Who has come and is not known yet. Strangers have few places among themselves, and none of those who are known.


STRANGERS = 64
"""Connections, at one time, of which nobody knows yet whether they are bridges that are wanted."""


class Doorway:
    """Where there is no room for one more stranger, one has to leave: of the address with most of them the oldest.

    So nobody is kept waiting: a bridge says who it is within milliseconds, and then it is no stranger. Strangers that
    come one after the other drive out each other.
    """

    def __init__(self, *, strangers: int = STRANGERS) -> None:
        self._most = strangers
        self._lock = Lock()
        self._strangers: dict[socket.socket, str] = {}

    def enter(self, sock: socket.socket, host: str) -> None:
        """A connection from that address."""
        with self._lock:
            leaving = self._next_to_leave() if len(self._strangers) >= self._most else None
            if leaving is not None:
                del self._strangers[leaving]
            self._strangers[sock] = host
        if leaving is not None:
            with suppress(OSError):
                # Not that of TLS, which would change the state of a handshake under way in another thread.
                socket.socket.shutdown(leaving, socket.SHUT_RDWR)

    def known(self, sock: socket.socket) -> None:
        """It is a stranger no more, or it has gone."""
        with self._lock:
            self._strangers.pop(sock, None)

    def _next_to_leave(self) -> socket.socket | None:
        """Oldest first: a dictionary keeps the order in which they came."""
        numbers = Counter(self._strangers.values())
        most = max(numbers.values(), default=0)
        return next((sock for sock, host in self._strangers.items() if numbers[host] == most), None)


# The socket of one switch, plain or TLS, as a session uses it: one thread reads while others write.


_READ_TICK_S = 0.5
"""How long `recv` waits before it says that nothing came."""
_SEND_TIMEOUT_S = 20.0
"""A switch that takes nothing for so long is dead. A busy one may chew on a large bundle for some seconds."""
_PIECE = 1 << 16


class Pipe:
    """Has of a socket what the session of the framework calls.

    OpenSSL must not be entered twice at once for one connection (ssl(7ssl), thread safety); waiting happens outside.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._socket, self._lock = sock, Lock()
        sock.settimeout(0)

    def recv(self, size: int) -> bytes:
        """What is there; empty at the end. Raises TimeoutError when nothing came for a moment, OSError."""
        deadline = monotonic() + _READ_TICK_S
        while True:
            try:
                with self._lock:
                    return self._socket.recv(size)
            except (BlockingIOError, ssl.SSLWantReadError):
                self._wait(select.POLLIN, deadline)
            except ssl.SSLWantWriteError:
                self._wait(select.POLLOUT, deadline)

    def sendall(self, data: bytes) -> None:
        """All of it. Raises TimeoutError, OSError; part of it may have left then."""
        view, deadline = memoryview(data), monotonic() + _SEND_TIMEOUT_S
        while view:
            try:
                with self._lock:
                    sent = self._socket.send(view[:_PIECE])
            except (BlockingIOError, ssl.SSLWantWriteError):
                self._wait(select.POLLOUT, deadline)
                continue
            except ssl.SSLWantReadError:
                self._wait(select.POLLIN, deadline)
                continue
            view, deadline = view[sent:], monotonic() + _SEND_TIMEOUT_S

    def setsockopt(self, level: int, option: int, value: int) -> None:
        if self._socket.family != socket.AF_UNIX:
            self._socket.setsockopt(level, option, value)

    def settimeout(self, seconds: float | None) -> None:
        """The framework's own time limits do not hold here."""

    def shutdown(self, how: int) -> None:
        with self._lock:
            self._socket.shutdown(how)

    def close(self) -> None:
        with self._lock:
            self._socket.close()

    def _wait(self, event: int, deadline: float) -> None:
        poll = select.poll()
        try:
            poll.register(self._socket, event)
        except ValueError:
            raise ConnectionAbortedError("closed on our side") from None
        if not poll.poll(max(0.0, deadline - monotonic()) * 1000):
            raise TimeoutError


_ADDRESS = re.compile(r"(?:\[([0-9a-fA-F:.]+)\]|([0-9.]+)):([0-9]{1,5})", re.ASCII)
_QUEUE = 128
"""Connections that the kernel accepts ahead of us."""
_TLS_TIMEOUT_S = 5.0
_ACCEPT_TICK_S = 0.2
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
        sock.settimeout(_ACCEPT_TICK_S)
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
