"""A copy of a database that its server keeps up to date, by the IDL of the Python library `ovs`."""

from __future__ import annotations

import errno
import json
import os
import select
import ssl
import sys
from codecs import IncrementalDecoder, getincrementaldecoder
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import count
from random import uniform
from typing import Any
from uuid import UUID

from xenoovs.errors import StoreError
from xenoovs.regex import DOTALL, regex

try:
    # Where it is installed, `ovs.poller` imports it, which takes a quarter of a second and warns of its age on stderr.
    sys.modules.setdefault("eventlet", None)  # type: ignore[arg-type]
    import ovs.poller
except ModuleNotFoundError:
    raise StoreError(
        "a fleet needs the Python library `ovs`; install openvswitch-switch, or with pip `xenoovs[fleet]`"
    ) from None
finally:
    # No other import notices.
    if sys.modules["eventlet"] is None:
        del sys.modules["eventlet"]

import ovs.db.idl
import ovs.json
import ovs.jsonrpc
import ovs.reconnect
import ovs.stream

from xenoovs.store.rows import COMMIT_ID, FLEET, Row, StoreDatabase, monitored_schema
from xenoovs.switch.certificates import Certificates
from xenoovs.switch.endpoint import is_loopback

PROBE_INTERVAL_MS = 60_000
"""With the 5 s of `ovs.reconnect`, a client that parses a large update for longer is disconnected, and starts over."""

_SPREAD_S, _MAX_SPREAD_S = 0.01, 10.0
"""Seconds per DPU, and at most. ovsdb-server lets ten clients wait at a port (listen(2) in lib/socket-util.c), and
accepts one in each round of its loop; the kernel drops packets of the others, which retry after a second."""

NO_ANSWER = "no server has answered yet"
"""The reason before any connection has failed."""

_REMOTE = regex(r"unix:/[^,]+|(tcp|ssl):([^:,\[\]]+|\[[0-9a-fA-F:.%]+\]):[0-9]{1,5}")

Message, Transaction = ovs.jsonrpc.Message, ovs.db.idl.Transaction


class _Poll:
    """poll(2) in place of select(2) of `ovs.poller`, which fails for descriptors above 1023."""

    def __init__(self) -> None:
        self._events = dict[int, int]()

    def register(self, fd: Any, events: int) -> None:
        """Add events of a descriptor. `select.poll` would replace the earlier ones, such as that it waits to write."""
        number = fd if isinstance(fd, int) else fd.fileno()
        self._events[number] = self._events.get(number, 0) | events

    def poll(self, timeout_ms: int) -> list[tuple[int, int]]:
        """Return the descriptors with their events; empty after `timeout_ms`, which has no limit below 0."""
        poll = select.poll()
        for number, events in self._events.items():
            poll.register(number, events)
        return poll.poll(timeout_ms)


class Poller(ovs.poller.Poller):  # type: ignore[misc]
    """A poller of the library that waits by poll(2), for one `block()`."""

    def __init__(self) -> None:
        super().__init__()
        self.poll = _Poll()


class WholeCharacters:
    """Makes a stream of `ovs` hold back an incomplete UTF-8 character until its last byte arrives.
    `ovs.jsonrpc.Connection.recv` decodes each part, and loses these bytes; then the other bytes end the connection."""

    _decoder: IncrementalDecoder | None = None

    def recv(self, size: int) -> tuple[int, Any]:
        """Return an error number, 0 if there is none, and the bytes of whole characters."""
        error, data = super().recv(size)  # type: ignore[misc]
        if error or not data:
            return error, data
        # Bytes that are no UTF-8 pass as they are.
        self._decoder = self._decoder or getincrementaldecoder("utf-8")("surrogateescape")
        whole = self._decoder.decode(data).encode(errors="surrogateescape")
        return (0, whole) if whole else (errno.EAGAIN, b"")


class _UnixStream(WholeCharacters, ovs.stream.UnixStream):  # type: ignore[misc]
    pass


class _TcpStream(WholeCharacters, ovs.stream.TCPStream):  # type: ignore[misc]
    pass


class _TlsStream(WholeCharacters, ovs.stream.SSLStream):  # type: ignore[misc]
    """Returns the error of a handshake, which the library 3.1 raises."""

    def connect(self) -> Any:
        """Return the error number; 0 if there is none."""
        try:
            return super().connect()
        except ssl.SSLError:
            return errno.EPERM


for _method, _stream in (("unix", _UnixStream), ("tcp", _TcpStream), ("ssl", _TlsStream)):
    ovs.stream.Stream.register_method(_method, _stream)


def parse_remotes(text: str, tls: Certificates | None) -> list[str]:
    """Return the active connection methods in a text, and set the certificates of this process for TLS (`ovs.stream`).
    Raises StoreError if one has another form, is `ssl:` without certificates, or is another host without TLS;
    CertificateUnusable."""
    remotes = [part.strip() for part in text.split(",")]
    for remote in remotes:
        found = _REMOTE.fullmatch(remote)
        if found is None:
            raise StoreError(f"{remote or text!r}: expected unix:/PATH, ssl:ADDRESS:PORT or tcp:ADDRESS:PORT")
        if remote.startswith("ssl:") and tls is None:
            raise StoreError(f"{remote}: TLS needs --tls-key, --tls-cert and --tls-ca")
        if remote.startswith("tcp:") and not is_loopback(found[2]):
            raise StoreError(f"{remote} is another host: use ssl:, with --tls-key, --tls-cert and --tls-ca")
    if tls is not None:
        # `ovs` reads the files for every connection, and would ask for a key's passphrase at the terminal.
        tls.context()
        ovs.stream.Stream.ssl_set_private_key_file(str(tls.key))
        ovs.stream.Stream.ssl_set_certificate_file(str(tls.certificate))
        ovs.stream.Stream.ssl_set_ca_cert_file(str(tls.authority))
    return remotes


def spread_s(dpus: int) -> float:
    """Return the seconds over which the clients of a fleet spread their reconnects."""
    return min(_SPREAD_S * dpus, _MAX_SPREAD_S)


def open_session(remotes: list[str]) -> Any:
    """Return a session of `ovs.jsonrpc` with one of the remotes; when it is lost, it connects to another one."""
    return ovs.jsonrpc.Session.open_multiple(list(remotes), probe_interval=PROBE_INTERVAL_MS)


class StoreSession:
    """Observes a session of `ovs.jsonrpc`. `reason`: why it was lost last. `error`: the newest refusal of a request.
    `dpus`: how many DPUs may lose the same server at the same time; their reconnects are spread."""

    _instances = count()

    def __init__(self, session: Any) -> None:
        self.session, self._instance = session, next(self._instances)
        self._disconnected = session.reconnect.disconnected
        self._recv = session.recv
        session.reconnect.disconnected, session.recv = self._lost, self._received
        self.error: Any = None
        self.dpus = 0
        self.reason = NO_ANSWER

    def _lost(self, now: int, error: int) -> None:
        name = self.remote
        if error == errno.EPERM and name.startswith("ssl:"):
            # `ovs.stream` reports only the number of an ssl.SSLError, which is that of EPERM.
            self.reason = f"{name}: TLS failed: one side does not accept the certificate of the other one"
        elif error > 0:
            self.reason = f"{name}: {os.strerror(error)}"
        elif error < 0:
            self.reason = f"{name}: the server closed the connection"
        reconnect = self.session.reconnect
        is_attempt = reconnect.state is ovs.reconnect.Reconnect.ConnectInProgress
        self._disconnected(now, error)
        if not is_attempt:
            # The wait begins then (ovs.reconnect.Reconnect.Backoff); after a failed attempt it is up to 8 s anyway.
            reconnect.state_entered += int(1000 * uniform(0, spread_s(self.dpus)))  # noqa: S311

    def _received(self) -> Any:
        connection = self.session.rpc
        if connection is not None and connection.parser is None and ovs.json.PARSER == ovs.json.PARSER_PY:
            connection.parser = MessageParser()
        message = self._recv()
        if message is not None and message.type == Message.T_ERROR:
            self.error = message
        return message

    @property
    def is_connected(self) -> bool:
        return bool(self.session.is_connected())

    @property
    def remote(self) -> str:
        return str(self.session.get_name())

    @property
    def number(self) -> tuple[int, int]:
        """Return two numbers that differ for each connection."""
        return self._instance, int(self.session.get_seqno())

    def leave(self, reason: str) -> None:
        """End the connection, and connect to the next remote."""
        self.reason = f"{self.remote}: {reason}"
        self.session.force_reconnect()

    def wait(self, poller: Poller) -> None:
        """Register the events that must wake the thread."""
        self.session.wait(poller)
        self.session.recv_wait(poller)

    def close(self) -> None:
        self.session.close()


class Replica(ovs.db.idl.Idl):  # type: ignore[misc]
    """A copy of some tables of a database. Its monitor has no conditions, because with one a server cannot send the
    same cached text to all clients (docs/adr/0028). `touched`: tables and ids of rows that have changed since it was
    emptied. `commit_ids`: those of the newest transactions."""

    def __init__(self, remotes: list[str], database: StoreDatabase, columns: Mapping[str, tuple[str, ...]]) -> None:
        helper = ovs.db.idl.SchemaHelper(schema_json=monitored_schema(database, columns))
        helper.register_all()
        super().__init__(",".join(remotes), helper, probe_interval=PROBE_INTERVAL_MS, leader_only=False)
        self.session = StoreSession(self._session)
        self.touched = set[tuple[str, UUID]]()
        self.commit_ids = deque[str](maxlen=256)
        self._database = database.value
        self._cluster: object = None

    def notify(self, event: str, row: Any, updates: Any = None) -> None:
        """Record that a row has changed. `run()` calls it after each transaction."""
        if row._table.name not in self.tables:
            return  # Before version 3.3 the library also reports rows of `_Server`.
        self.touched.add((row._table.name, row.uuid))
        if row._table.name == FLEET and COMMIT_ID in row._table.columns and event != ovs.db.idl.ROW_DELETE:
            self.commit_ids.append((self.row(FLEET, row.uuid) or {})[COMMIT_ID])

    def force_reconnect(self) -> None:
        """Leave a server that cannot serve the database. `run()` calls it."""
        row = self.server_row
        if row is not None and self._cluster not in (None, row.cid):
            # Another cluster, as after a restore, counts its log from the beginning, so its index is not stale.
            self._cluster, self._min_index = row.cid, 0
        self.session.reason = f"{self.session.remote}: {self._complaint or 'the server serves the database no longer'}"
        super().force_reconnect()

    @property
    def is_current(self) -> bool:
        """Return whether the server has sent all rows, and sends changes."""
        return self.state == self.IDL_S_MONITORING and self.session.is_connected

    @property
    def server_row(self) -> Any:
        """Return the row of the database in `Database` of `_Server` (ovsdb-server(5)); None if not known."""
        tables = self.server_tables or {}
        rows = tables["Database"].rows.values() if "Database" in tables else ()
        return next((row for row in rows if row.name == self._database), None)

    @property
    def _complaint(self) -> str:
        """Return why the server cannot serve the database; empty if it can."""
        row = self.server_row
        if row is None:
            return "" if self.server_tables is None else f"the server has no database {self._database}"
        if row.model == "clustered" and not row.connected:
            return "the server is cut off from its cluster, or has not joined it yet"
        # The IDL itself stays with a relay that has lost its source, and shows old rows.
        return "the relay has lost its source" if row.model == "relay" and not row.connected else ""

    def leave_if_useless(self) -> None:
        """Leave a relay without a source, and a server that refuses the monitor; the IDL would wait there forever."""
        error, row = self.session.error, self.server_row
        if self.is_current and row is not None:
            self._cluster = row.cid
        if self.is_current and self._complaint:
            self.session.leave(self._complaint)
        elif error is not None and error.id == self._monitor_request_id and self.session.is_connected:
            details = error.error.get("details", error.error) if isinstance(error.error, dict) else error.error
            self.session.error = None
            self.session.leave(
                f"the server refuses to send database {self._database}: {details}; its schema is that of another "
                "version of xenoovs: on a host of the store that has this version, start `xenoovs fleet server` again"
            )

    @property
    def reason(self) -> str:
        """Return why the copy is not current; empty if it is."""
        if self.is_current:
            return self._complaint
        return self.session.reason

    def row(self, table: str, uuid: UUID) -> Row | None:
        """Return the columns of a row; None if it does not exist."""
        found = self.tables[table].rows.get(uuid)
        if found is None:
            return None
        return {column: found._data[column].to_python(_as_is) for column in self.tables[table].columns}

    def uuids(self) -> Iterator[tuple[str, UUID]]:
        """Yield the tables and ids of all rows."""
        for table in self.tables.values():
            for uuid in table.rows:
                yield table.name, uuid


def _as_is(atom: Any, _base: Any) -> Any:
    return atom


# Messages of JSON-RPC. The library from PyPI lacks the parser in C, and the one in Python parses each character:
# 0.7 s for the services of a large fleet, instead of 0.04 s.


_MARK = regex(r'["{}]')
_STRING = regex(r'[^"\\]*(?:\\.[^"\\]*)*', DOTALL)


class MessageParser:
    """Finds the end of one message, an object (RFC 7047, 4), and parses it. Has the methods of `ovs.json.Parser`."""

    def __init__(self) -> None:
        self._parts = list[str]()
        self._depth = 0
        self._is_in_string = self._is_escaped = self._is_done = False

    def feed(self, text: str) -> int:
        """Take more text. Return how many characters of it belong to the message."""
        at, end = int(self._is_escaped and bool(text)), len(text)
        self._is_escaped = self._is_escaped and not text
        while at < end and not self._is_done:
            if self._is_in_string:
                at = self._string_end(text, at)
            elif (found := _MARK.search(text, at)) is not None:
                at = found.end()
                self._mark(found[0])
            else:
                # Text before the first brace is no message, and could be of any length.
                self._is_done = self._depth == 0 and not text.isspace()
                at = end
        self._parts.append(text[:at])
        return at

    def _string_end(self, text: str, at: int) -> int:
        found = _STRING.match(text, at)
        at = len(text) if found is None else found.end()
        if at == len(text):
            return at
        # The match ends at a quotation mark, or at a backslash that is the last character of this text.
        self._is_escaped = text[at] == "\\"
        self._is_in_string = self._is_escaped
        return at + 1

    def _mark(self, mark: str) -> None:
        if mark == '"':
            self._is_in_string = True
            self._is_done = self._depth == 0
        else:
            self._depth += 1 if mark == "{" else -1
            self._is_done = self._depth <= 0

    def is_done(self) -> bool:
        """Return whether the message has ended."""
        return self._is_done

    def finish(self) -> Any:
        """Return the message; a text with the error if it is no JSON."""
        try:
            return json.loads("".join(self._parts))
        except (ValueError, RecursionError) as error:
            return f"no JSON: {error}"
