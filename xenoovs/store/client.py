"""Clients of the store of a fleet: views of it, changes by compare-and-set, and the states of DPUs.

Each client has its own thread, because the poll loop of `ovs` does not work with asyncio.
"""

from __future__ import annotations

import json
import os
import select
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from enum import Enum
from typing import Any, TypeVar
from uuid import UUID, uuid4

from xenoovs.dataclass import dataclass, field
from xenoovs.errors import StoreError, StoreRejected, StoreUnreachable
from xenoovs.store.replica import (
    NO_ANSWER,
    Message,
    Poller,
    Replica,
    StoreSession,
    Transaction,
    open_session,
    parse_remotes,
)
from xenoovs.store.rows import (
    FLEET,
    STATUSES,
    VIEW_TABLES,
    WRITER_TABLES,
    Operation,
    StoreDatabase,
    StoreTable,
    fleet_columns,
    fleet_view,
    operations,
    status_operations,
)
from xenoovs.store.view import Changes, DpuStatus, FleetView, Freeze
from xenoovs.switch.certificates import Certificates

COMMIT_TIMEOUT_S = 6.0
"""Three election timers: a leader that is cut off from its cluster does not answer writes."""

_RESTART_S = 1.0


class CommitOutcome(Enum):
    """The outcome of a transaction. COMMITTED: the store has it. REFUSED: another writer was first; nothing was
    written. UNKNOWN: the connection was lost, or no answer came in time; the view after the next connection shows the
    outcome."""

    COMMITTED = "committed"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class StoreConnection:
    """The state of a client's connection, since when (`time.time()`), and why it is not connected. `remote`: empty if
    not connected. `is_leader`: whether the server leads its cluster, or is alone. `problem`: why the view lacks the
    newest rows; empty if it has them."""

    is_connected: bool
    remote: str
    since_s: float
    reason: str = ""
    is_leader: bool = False
    problem: str = ""


_Client = TypeVar("_Client", bound="_Threaded")


class _Threaded(ABC):
    """A client with its own thread, for the time of a `with`. `connection`: its newest state."""

    def __init__(self, remotes: str, on_change: Callable[[], None] | None, tls: Certificates | None) -> None:
        """Raises StoreError for remotes of another form, and CertificateUnusable."""
        self._remotes = parse_remotes(remotes, tls)
        self._on_change = on_change
        self._changed = threading.Condition()
        self.connection = StoreConnection(is_connected=False, remote="", since_s=time.time(), reason=NO_ANSWER)
        self._is_ending = self._is_closed = False
        self._thread: threading.Thread | None = None
        self._awake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def __enter__(self: _Client) -> _Client:
        """Start the thread, and return before it has connected."""
        self._thread = threading.Thread(target=self._run, name=type(self).__name__, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End the connection and the thread. Transactions without an answer end with UNKNOWN."""
        with self._changed:
            self._is_ending = True
            self._changed.notify_all()
        self._wake()
        if self._thread is not None:
            self._thread.join()
        with self._changed:
            self._is_closed = True
            os.close(self._awake)

    def _wake(self) -> None:
        """Wake the thread. Does nothing after the `with`."""
        with self._changed:
            if not self._is_closed:
                os.eventfd_write(self._awake, 1)

    def _run(self) -> None:
        while not self._is_ending:
            peer, reason = None, "closed"
            try:
                peer = self._open()
                while not self._is_ending:
                    self._block(self._step(peer), peer)
            except Exception as error:  # noqa: BLE001 - a peer that breaks the protocol makes `ovs` raise anything
                reason = f"internal error: {type(error).__name__}: {error}"
            self._set_connection(is_connected=False, reason=reason)
            if peer is not None:
                peer.close()
            self._lose()
            if not self._is_ending:
                self._block(_RESTART_S, None)
        self._set_connection(is_connected=False, reason="closed")
        self._lose()

    def _block(self, wait_s: float | None, peer: Any) -> None:
        poller = Poller()
        poller.fd_wait(self._awake, select.POLLIN)
        if peer is not None:
            peer.wait(poller)
        if wait_s is not None:
            poller.timer_wait(int(wait_s * 1000) + 1)
        poller.block()
        with suppress(BlockingIOError):
            os.eventfd_read(self._awake)

    def _set_connection(
        self, *, is_connected: bool, remote: str = "", reason: str = "", is_leader: bool = False, problem: str = ""
    ) -> bool:
        """Publish the state of the connection. Return whether it has changed."""
        before = self.connection
        since_s = before.since_s if before.is_connected == is_connected else time.time()
        now = StoreConnection(is_connected, remote if is_connected else "", since_s, reason, is_leader, problem)
        if now == before:
            return False
        with self._changed:
            self.connection = now
        return True

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()
        if self._on_change is not None:
            self._on_change()

    @abstractmethod
    def _open(self) -> Any:
        """Begin to connect. Return what has `wait(poller)` and `close()`."""

    @abstractmethod
    def _step(self, peer: Any) -> float | None:
        """Do all work that needs no waiting. Return the seconds until more is due; None to wait for events."""

    def _lose(self) -> None:  # noqa: B027 - most have nothing to end
        """End what depends on the connection, which is closed."""


class _Reading(_Threaded):
    """A client with a copy of a database. Subclasses make a view of it."""

    def __init__(
        self,
        remotes: str,
        on_change: Callable[[], None] | None,
        tls: Certificates | None,
        source: tuple[StoreDatabase, Mapping[str, tuple[str, ...]]],
        tables: tuple[StoreTable[Any], ...],
    ) -> None:
        super().__init__(remotes, on_change, tls)
        self._source, self._tables = source, {table.name: table for table in tables}
        self._problem: StoreError | None = None
        self._has_view = False

    def _open(self) -> Replica:
        self._values = {name: dict[Any, Any]() for name in self._tables}
        self._read = dict[tuple[str, UUID], tuple[Any, Any]]()
        self._session_number: tuple[int, int] | None = None
        database, columns = self._source
        return Replica(self._remotes, database, columns)

    def _step(self, peer: Any) -> float | None:
        replica: Replica = peer
        replica.run()
        replica.leave_if_useless()
        is_new = False
        if replica.is_current:
            if self._session_number != replica.session.number:
                self._session_number = replica.session.number
                # The IDL does not report rows that are missing in a whole copy that a server sent again.
                replica.touched |= self._read.keys() - set(replica.uuids())
                is_new = not self._has_view
            if replica.touched or is_new:
                is_new = self._take(replica)
        else:
            self._session_number = None
        reason, row = replica.reason, replica.server_row
        is_other = self._set_connection(
            is_connected=not reason,
            remote=replica.session.remote,
            reason=reason,
            is_leader=not reason and row is not None and bool(row.leader),
            problem="" if self._problem is None else str(self._problem),
        )
        wait_s = self._advance(replica)
        if is_new or is_other:
            self._notify()
        return wait_s

    def _take(self, replica: Replica) -> bool:
        """Read the changed rows. Return whether there is a new view; with one bad row the old view stays."""
        changed = {name for name, _ in replica.touched} & self._tables.keys()
        read = {place: each for place, each in self._read.items() if place not in replica.touched}
        values = self._values | {name: dict[Any, Any]() for name in changed}
        try:
            for name, uuid in replica.touched:
                if name in changed and (row := replica.row(name, uuid)) is not None:
                    table = self._tables[name]
                    read[name, uuid] = table.key(row), table.value(row)
            for (name, _), (key, value) in read.items():
                if name in changed:
                    values[name][key] = value
            self._publish(replica, values)
        except StoreError as problem:
            self._problem = problem
            return False
        self._problem, self._has_view = None, True
        self._read, self._values = read, values
        replica.touched.clear()
        return True

    def _advance(self, replica: Replica) -> float | None:
        """Send waiting transactions and take their answers. Returns what `_step` returns."""
        return None

    @abstractmethod
    def _publish(self, replica: Replica, values: Mapping[str, Mapping[Any, Any]]) -> None:
        """Make the view from the values of rows, by table and key. Raises StoreMalformed, StoreNewer."""


@dataclass(eq=False)
class _Attempt:
    """A transaction that waits for its outcome, or the StoreError in its place. `transaction`: that of the IDL, from
    request to answer. `sent_on`: numbers of the connections on which it was sent."""

    expected: int
    changes: Changes
    end_s: float
    freezes: Mapping[str, Freeze] | None
    commit_id: str = field(default_factory=lambda: uuid4().hex)
    transaction: Any = None
    sent_on: set[tuple[int, int]] = field(default_factory=set)
    is_committed: bool = False
    is_refused: bool = False
    outcome: Future[CommitOutcome] = field(default_factory=Future)


class StoreClient(_Reading):
    """Reads the database `xenoovs` as views, and changes it.

    `remotes`: active connection methods of ovsdb(7), separated by commas; the first is chosen at random.
    `with_intents`: whether it can commit, as controller and commands do. `on_change`: called in the client's thread
    after changes of view or connection. `tls`: for `ssl:` remotes. Raises StoreError if a remote has another form.
    """

    def __init__(
        self,
        remotes: str,
        *,
        with_intents: bool = False,
        on_change: Callable[[], None] | None = None,
        tls: Certificates | None = None,
    ) -> None:
        source = (StoreDatabase.FLEET, fleet_columns(with_intents=with_intents))
        tables = WRITER_TABLES if with_intents else VIEW_TABLES
        super().__init__(remotes, on_change, tls, source, tuple(tables.values()))
        self._can_commit = with_intents
        self._view: FleetView | None = None
        self._attempt: _Attempt | None = None
        self._committing = threading.Lock()

    def view(self) -> FleetView | None:
        """Return the newest view, also while there is no connection; None if none has arrived yet."""
        return self._view

    def wait_changed(self, seen: FleetView | None, *, timeout_s: float) -> FleetView | None:
        """Wait for another view than `seen`. Return the newest view, which may be `seen` after the timeout."""
        with self._changed:
            self._changed.wait_for(lambda: self._view is not seen or self._is_ending, timeout_s)
            return self._view

    def commit(
        self,
        expected_generation: int,
        changes: Changes,
        *,
        timeout_s: float = COMMIT_TIMEOUT_S,
        freezes: Mapping[str, Freeze] | None = None,
    ) -> CommitOutcome:
        """Write all changes and the generation `expected_generation + 1` in one transaction.

        Waits for a connection and the answer. After a lost connection it sends the transaction again, which can succeed
        only once. After COMMITTED the view has the changes. `expected_generation`: that of the view from which the
        changes were computed. `freezes`: those of that view, so that the store refuses the changes if it has others;
        None to accept any.

        Raises StoreError if the library is too old, as in Debian 12; StoreUnreachable if there was no connection within
        the timeout; StoreRejected if the store refuses the rows, such as two services with one claim, or this client
        may not write; StoreMalformed, StoreNewer if it has rows that cannot be read. Then nothing was written.
        """
        if not self._can_commit:
            raise ValueError("a client that commits needs with_intents=True")
        if not hasattr(Transaction, "add_op"):
            raise StoreError(
                "to change a fleet, the Python library `ovs` has to be 3.3 or newer, and here it is older, "
                "as in Debian 12; on the host of the store, install xenoovs and `xenoovs[fleet]` with pip"
            )
        attempt = _Attempt(expected_generation, changes, time.monotonic() + timeout_s, freezes)
        with self._committing:
            with self._changed:
                if self._is_ending or self._thread is None:
                    raise StoreUnreachable(remotes=",".join(self._remotes), reason="the client is closed")
                self._attempt = attempt
            self._wake()
            return attempt.outcome.result()

    def _publish(self, replica: Replica, values: Mapping[str, Mapping[Any, Any]]) -> None:
        found = next(((table, uuid) for table, uuid in replica.uuids() if table == FLEET), None)
        row = None if found is None else replica.row(*found)
        view = fleet_view(row, values, store_id="" if found is None else str(found[1]))
        if not self._can_commit:
            replica.session.dpus = len(view.dpus)
        with self._changed:
            self._view = view

    def _advance(self, replica: Replica) -> float | None:
        if (attempt := self._attempt) is not None:
            try:
                result: CommitOutcome | StoreError | None = self._try(replica, attempt)
            except StoreError as error:
                result = error
            if result is None:
                return max(0.0, attempt.end_s - time.monotonic())
            self._end(attempt, result)
        return None

    def _end(self, attempt: _Attempt, result: CommitOutcome | StoreError) -> None:
        self._attempt = None
        if isinstance(result, StoreError):
            attempt.outcome.set_exception(result)
        else:
            attempt.outcome.set_result(result)

    def _try(self, replica: Replica, attempt: _Attempt) -> CommitOutcome | None:
        """Return the outcome of an attempt; None if not known yet. Raises StoreError."""
        is_late = time.monotonic() >= attempt.end_s
        if attempt.transaction is not None:
            self._take_answer(replica, attempt)
        view, expected = self._view, attempt.expected
        generation = -1 if view is None else view.generation
        if attempt.is_committed or attempt.commit_id in replica.commit_ids:
            return CommitOutcome.COMMITTED if generation > expected or is_late or not replica.is_current else None
        if generation > expected and replica.is_current:
            # A refusal is no proof: when the leader changes, a server repeats a transaction by itself, and after the
            # success of the first the second is refused. The commits seen are proof if none was missed since.
            is_seen = generation == expected + 1 or attempt.sent_on <= {replica.session.number}
            return CommitOutcome.REFUSED if is_seen else CommitOutcome.UNKNOWN
        if is_late:
            if attempt.is_refused or (not attempt.sent_on and replica.is_current and self._problem is None):
                return CommitOutcome.REFUSED
            if attempt.sent_on:
                return CommitOutcome.UNKNOWN
            if self._problem is not None:
                raise self._problem
            raise StoreUnreachable(remotes=",".join(self._remotes), reason=replica.reason or "no view has come")
        if replica.is_current and self._problem is not None and not attempt.sent_on:
            raise self._problem
        is_ready = generation == expected and replica.is_current and self._problem is None
        if view is not None and is_ready and attempt.transaction is None and not attempt.is_refused:
            self._send(replica, attempt, view)
        return None

    def _send(self, replica: Replica, attempt: _Attempt, view: FleetView) -> None:
        ids = {(table, key): str(uuid) for (table, uuid), (key, _) in self._read.items()}
        made = operations(view, attempt.changes, ids, commit_id=attempt.commit_id, freezes=attempt.freezes)
        transaction = Transaction(replica)
        for operation in made:
            transaction.add_op(operation)
        attempt.sent_on.add(replica.session.number)
        attempt.transaction = transaction
        transaction.commit()

    def _take_answer(self, replica: Replica, attempt: _Attempt) -> None:
        status = attempt.transaction.commit()
        if status == Transaction.INCOMPLETE and replica.session.number in attempt.sent_on:
            return
        transaction, attempt.transaction = attempt.transaction, None
        if status == Transaction.SUCCESS:
            attempt.is_committed = True
        elif status == Transaction.ERROR:
            reason = transaction.get_error()
            with suppress(AttributeError, LookupError, RecursionError, ValueError):
                # An error of RFC 7047, 3.1.
                document = json.loads(reason)
                reason = str(document.get("details") or document["error"])
            raise StoreRejected(reason=reason)
        # The IDL returns TRY_AGAIN also for a lost connection.
        elif status == Transaction.TRY_AGAIN and replica.is_current and attempt.sent_on == {replica.session.number}:
            attempt.is_refused = True

    def _lose(self) -> None:
        if (attempt := self._attempt) is None:
            return
        # A sent transaction has an unknown outcome, and another one is sent later.
        attempt.transaction = None
        # Without a connection only this ends a late attempt, such as while the library raises in each step.
        is_late = attempt.end_s <= time.monotonic()
        if self._is_ending or (is_late and attempt.sent_on):
            self._end(attempt, CommitOutcome.UNKNOWN)
        elif is_late:
            self._end(attempt, StoreUnreachable(remotes=",".join(self._remotes), reason=self.connection.reason))


class DpuStatusReader(_Reading):
    """Reads the rows of all DPUs in the database `xenoovs_state`."""

    def __init__(
        self, remotes: str, *, on_change: Callable[[], None] | None = None, tls: Certificates | None = None
    ) -> None:
        source = (StoreDatabase.STATES, {STATUSES.name: STATUSES.columns})
        super().__init__(remotes, on_change, tls, source, (STATUSES,))
        self._statuses: Mapping[str, DpuStatus] | None = None

    def statuses(self) -> Mapping[str, DpuStatus] | None:
        """Return the newest statuses by name of the DPU; None if none have arrived yet, or there is no connection."""
        return self._statuses if self.connection.is_connected else None

    def _publish(self, replica: Replica, values: Mapping[str, Mapping[Any, Any]]) -> None:
        with self._changed:
            self._statuses = values[STATUSES.name]


class DpuStatusClient(_Threaded):
    """Writes the row of one DPU in the database `xenoovs_state`, and reads nothing. `written`: the newest status that
    the store has confirmed on this connection. `dpus`: how many DPUs report to the same servers."""

    def __init__(
        self, remotes: str, *, on_change: Callable[[], None] | None = None, tls: Certificates | None = None
    ) -> None:
        super().__init__(remotes, on_change, tls)
        self._wanted: DpuStatus | None = None
        self.written: DpuStatus | None = None
        self._refusal = ""
        self.dpus = 0

    def put(self, status: DpuStatus) -> None:
        """Write the row soon; a newer status replaces one that was not sent. It is sent again after a reconnect."""
        with self._changed:
            self._wanted = status.bounded
        self._wake()

    def _open(self) -> StoreSession:
        peer = StoreSession(open_session(self._remotes))
        self._forget(peer)
        return peer

    def _forget(self, peer: StoreSession) -> None:
        """Reset the state of the connection: which status the store has is not known."""
        self._number = peer.number
        self._request: tuple[Any, DpuStatus, float] | None = None
        self._is_new = self._is_left = False
        self.written = None

    def _step(self, peer: Any) -> float | None:
        before, session = self.written, peer.session
        peer.dpus = self.dpus
        session.run()
        if peer.number != self._number:
            self._forget(peer)
        while peer.is_connected and (message := session.recv()) is not None:
            self._receive(peer, message)
        wait_s = self._send(peer) if peer.is_connected else None
        is_other = self._set_connection(
            is_connected=peer.is_connected,
            remote=peer.remote,
            reason="" if peer.is_connected else peer.reason,
            problem=self._refusal,
        )
        if is_other or self.written is not before:
            self._notify()
        return wait_s

    def _send(self, peer: StoreSession) -> float | None:
        """Send the row if the store lacks it. Return the seconds until the answer is late."""
        if self._request is not None:
            left_s = self._request[2] - time.monotonic()
            if left_s <= 0:
                self._leave(peer, "no answer; perhaps it is cut off from its cluster")
            return max(left_s, _RESTART_S)
        status = self._wanted
        if status is None or status == self.written or self._is_left:
            return None
        made: list[Operation] = status_operations(status, is_new=self._is_new)
        request = Message.create_request("transact", [StoreDatabase.STATES.value, *made])
        peer.session.send(request)
        self._request = request.id, status, time.monotonic() + COMMIT_TIMEOUT_S
        return COMMIT_TIMEOUT_S

    def _receive(self, peer: StoreSession, message: Any) -> None:
        if self._request is None or message.id != self._request[0]:
            return
        (_, status, _), self._request = self._request, None
        result = message.result if message.type == Message.T_REPLY else [{"error": message.error}]
        errors = [each for each in result if isinstance(each, dict) and "error" in each]
        if errors:
            reason = errors[0].get("details") or errors[0]["error"]
            if errors[0]["error"] == "permission error":
                reason += "; the name of a DPU must be the CN of its certificate"
            # Another connection of this DPU may have inserted the row first; otherwise another server may accept it.
            self._refusal = str(StoreRejected(reason=f"the status of {status.name}: {reason}"))
            self._leave(peer, f"it refuses the status: {reason}")
        elif not self._is_new and result[0].get("count") == 0:
            self._is_new = True
        else:
            self._is_new, self._refusal, self.written = False, "", status

    def _leave(self, peer: StoreSession, reason: str) -> None:
        self._is_left = True
        peer.leave(reason)
