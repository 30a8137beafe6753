"""Where switches connect: addresses, certificates, sockets, and a limit of connections that are not admitted yet."""

from __future__ import annotations

import os
import select
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from threading import Event, Lock, Thread
from time import monotonic

from xenoovs.controller.log import surviving
from xenoovs.dataclass import dataclass
from xenoovs.errors import CannotListen
from xenoovs.regex import regex
from xenoovs.switch.certificates import Certificates
from xenoovs.switch.endpoint import bind_unix, parse_host_port

MAX_PENDING = 64
"""Most simultaneous connections that have not identified themselves as expected bridges."""


class PendingConnections:
    """Limits connections that have not identified themselves yet; admitted bridges are never evicted.

    Above the limit it closes the oldest connection of the address with most of them. So no bridge has to wait, as it
    identifies itself within milliseconds.
    """

    def __init__(self, *, limit: int = MAX_PENDING) -> None:
        self._limit = limit
        self._lock = Lock()
        self._hosts: dict[socket.socket, str] = {}

    def add(self, sock: socket.socket, host: str) -> None:
        """Count a connection from an address, and close another one above the limit."""
        with self._lock:
            evicted = self._next_to_evict() if len(self._hosts) >= self._limit else None
            if evicted is not None:
                del self._hosts[evicted]
            self._hosts[sock] = host
        if evicted is not None:
            with suppress(OSError):
                # Not that of TLS, which would change the state of a handshake under way in another thread.
                socket.socket.shutdown(evicted, socket.SHUT_RDWR)

    def release(self, sock: socket.socket) -> None:
        """Stop counting a connection that is admitted or closed."""
        with self._lock:
            self._hosts.pop(sock, None)

    def _next_to_evict(self) -> socket.socket | None:
        # Oldest first: a dictionary keeps the order of insertion.
        numbers = Counter(self._hosts.values())
        most = max(numbers.values(), default=0)
        return next((sock for sock, host in self._hosts.items() if numbers[host] == most), None)


_READ_TICK_S = 0.5
"""How long `recv` waits before it raises TimeoutError."""
_SEND_TIMEOUT_S = 20.0
"""A switch that reads nothing for this time is dead. A busy one may process a large bundle for some seconds."""
_PIECE = 1 << 16


class Stream:
    """The socket of one switch, plain or TLS: one thread reads while others write. Implements `Transport`.

    Only one thread at a time may call OpenSSL for a connection (ssl(7ssl), thread safety); threads wait outside of it.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._socket, self._lock = sock, Lock()
        sock.settimeout(0)

    def recv(self, size: int) -> bytes:
        """Return the received bytes; empty at the end. Raises TimeoutError if nothing came for a moment, OSError."""
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
        """Send all data. Raises TimeoutError, OSError: part of it may have been sent."""
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


_UNIX = regex(r"p?unix:(/.+)")
_BACKLOG = 128
"""Connections that the kernel accepts before we do."""
_TLS_TIMEOUT_S = 5.0
_ACCEPT_TICK_S = 0.2
_EXHAUSTED_PAUSE_S = 0.5
"""Pause between two tries to accept while no file descriptor or no memory is left."""
_LOOPBACK = {4: "127.0.0.1", 6: "::1"}


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """A TCP port; any free one if it is 0."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_local(self) -> bool:
        """Return whether only processes of this host can connect."""
        return ip_address(self.host).is_loopback

    def target(self, *, is_tls: bool) -> str:
        """Return what `ovs-vsctl set-controller` takes."""
        return f"{'ssl' if is_tls else 'tcp'}:{self}"

    @property
    def for_this_host(self) -> TcpAddress:
        """The same for a bridge of this host."""
        host = ip_address(self.host)
        return TcpAddress(_LOOPBACK[host.version], self.port) if host.is_unspecified else self

    def listen(self) -> socket.socket:
        """Raises OSError."""
        sock = socket.socket(socket.AF_INET6 if ":" in self.host else socket.AF_INET, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # Inherited by the connections: bundles end in messages that must not wait for an acknowledgement.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.bind((self.host, self.port))
        except OSError:
            sock.close()
            raise
        return sock


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """A socket in the run directory of Open vSwitch, for its user and root only.

    Open vSwitch refuses sockets elsewhere (bridge_configure_remotes() of vswitchd/bridge.c), and finds a name without a
    directory there.
    """

    path: Path

    def __str__(self) -> str:
        return f"punix:{self.path}"

    def target(self, *, is_tls: bool) -> str:
        """Return what `ovs-vsctl set-controller` takes."""
        return f"unix:{self.path.name}"

    @property
    def for_this_host(self) -> UnixAddress:
        return self

    def listen(self) -> socket.socket:
        """Replace a socket that a killed process left behind. Raises OSError."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            bind_unix(sock, self.path)
            owner = self.path.parent.stat()
            if os.geteuid() == 0 and owner.st_uid != 0:
                # Open vSwitch does not run as root here (--ovs-user of ovs-ctl(8)).
                os.chown(self.path, owner.st_uid, owner.st_gid)
        except OSError:
            sock.close()
            raise
        return sock


Address = TcpAddress | UnixAddress


def parse_address(text: str) -> Address:
    """Parse `127.0.0.1:6653`, `[::1]:6653` or `punix:/run/openvswitch/name`. Raises ValueError."""
    if found := _UNIX.fullmatch(text):
        return UnixAddress(Path(found[1]))
    host, port = parse_host_port(text)
    return TcpAddress(str(ip_address(host)), port)


class SwitchListener:
    """Accepts connections until it is closed, and serves each in a thread. `target`: what `ovs-vsctl set-controller`
    takes; `local_target`: the same for a bridge of this host.

    `serve` is called after the TLS handshake with the stream, the peer (ADDRESS:PORT, or the path of the socket), the
    monotonic time of the connection, and a function to call when the bridge is admitted. `warn`: logs refused peers.
    """

    def __init__(
        self,
        address: Address,
        *,
        serve: Callable[[Stream, str, float, Callable[[], None]], None],
        warn: Callable[..., None],
        certificates: Certificates | None = None,
    ) -> None:
        """Raises CannotListen, CertificateUnusable."""
        self._serve, self._warn = serve, warn
        self._context = certificates.context() if certificates is not None else None
        self._socket = _listen(address)
        self.address = address
        if isinstance(address, TcpAddress):
            self.address = TcpAddress(address.host, self._socket.getsockname()[1])
        is_tls = self._context is not None
        self.target = self.address.target(is_tls=is_tls)
        self.local_target = self.address.for_this_host.target(is_tls=is_tls)
        self._inode = _inode_of(address)
        self._closing = Event()
        self._pending = PendingConnections()
        self._accepting = Thread(target=self._accept_forever, name="xenoovs-listen", daemon=True)
        self._accepting.start()

    def close(self) -> None:
        self._closing.set()
        self._accepting.join()
        self._socket.close()
        # Not the socket of another process, which may have replaced it.
        is_own = self._inode is not None and _inode_of(self.address) == self._inode
        if isinstance(self.address, UnixAddress) and is_own:
            self.address.path.unlink(missing_ok=True)

    def _accept_forever(self) -> None:
        is_exhausted = False
        while not self._closing.is_set():
            try:
                plain, peer = self._socket.accept()
            except TimeoutError:
                with surviving("listening"):
                    self._replace_lost_socket()
                continue
            except OSError as error:
                # EMFILE, ENFILE, ENOBUFS and ENOMEM come back at once while the connection waits (accept(2)).
                if not is_exhausted:
                    reason = error.strerror or type(error).__name__
                    self._warn("connections cannot be accepted; retrying", reason=reason)
                is_exhausted = True
                self._closing.wait(_EXHAUSTED_PAUSE_S)
                continue
            is_exhausted = False
            with surviving("listening"):
                try:
                    self._start(plain, peer)
                except (OSError, RuntimeError):
                    # The peer has closed it already, or the system has no thread left.
                    plain.close()

    def _replace_lost_socket(self) -> None:
        """Listen again if the socket file has vanished, as with the run directory of a stopped Open vSwitch."""
        if not isinstance(self.address, UnixAddress) or self.address.path.exists():
            return
        try:
            replacement = _listen(self.address)
        except CannotListen:
            # The directory comes back with Open vSwitch.
            return
        self._socket.close()
        self._socket, self._inode = replacement, _inode_of(self.address)

    def _start(self, plain: socket.socket, peer: tuple[str, int] | str) -> None:
        if isinstance(peer, tuple):
            host, name = peer[0], str(TcpAddress(*peer[:2]))
        else:
            host = name = self.target
        sock = plain
        if self._context is not None:
            sock.settimeout(_TLS_TIMEOUT_S)
            sock = self._context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        self._pending.add(sock, host)
        welcome = partial(self._welcome, sock, host, name, monotonic())
        Thread(target=welcome, name="xenoovs-switch", daemon=True).start()

    def _welcome(self, sock: socket.socket, host: str, peer: str, accepted_s: float) -> None:
        try:
            with surviving("a connection"), suppress(OSError), sock:
                self._secure(sock, host)
                self._serve(Stream(sock), peer, accepted_s, partial(self._pending.release, sock))
        finally:
            self._pending.release(sock)

    def _secure(self, sock: socket.socket, host: str) -> None:
        if not isinstance(sock, ssl.SSLSocket):
            return
        try:
            sock.do_handshake()
        except OSError as error:
            reason = getattr(error, "reason", None) or error.strerror or type(error).__name__
            self._warn("a connection is refused: no TLS with a certificate we trust", peer=host, reason=reason)
            raise


def _inode_of(address: Address) -> int | None:
    """Return the inode of a unix socket; None if there is no file."""
    try:
        return address.path.stat().st_ino if isinstance(address, UnixAddress) else None
    except FileNotFoundError:
        return None


def _listen(address: Address) -> socket.socket:
    try:
        sock = address.listen()
    except OSError as error:
        raise CannotListen(address=str(address), reason=error.strerror or str(error)) from None
    sock.listen(_BACKLOG)
    sock.settimeout(_ACCEPT_TICK_S)
    return sock
