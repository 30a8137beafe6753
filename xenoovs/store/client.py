"""Clients of the store of a fleet: views of it, changes by compare-and-set, and the states of DPUs.

Each client has a thread of its own, because the poll loop of `ovs` is not that of asyncio.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from xenoovs.store.view import Changes, DpuStatus, FleetView

COMMIT_TIMEOUT_S = 6.0
"""Three election timers: a leader that is cut off does not answer writes."""


class Outcome(Enum):
    """What became of a transaction.

    COMMITTED: The store has it. REFUSED: another writer was first; nothing was written. UNKNOWN: the connection was
    lost, or no answer came in time; read the view after the next connection and go on from there.
    """

    COMMITTED = "committed"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Connection:
    """Whether a client is connected.

    Attributes:
        remote: The server, as the client was told; an empty text while there is none.
        since_s: When it was connected, or lost, on the clock of `time.time()`.
        reason: Why there is no connection; an empty text while there is one.
        is_leader: Whether the server leads its cluster, or is alone.
        problem: Why the newest rows are not in the view; an empty text: they are.
    """

    is_connected: bool
    remote: str
    since_s: float
    reason: str = ""
    is_leader: bool = False
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Tls:
    """Files in PEM for `ssl:` remotes. The identity is that of the whole process (ovs.stream)."""

    key: Path
    certificate: Path
    authorities: Path


_Client = TypeVar("_Client", bound="_Threaded")


class _Threaded:
    """A client with a thread of its own. Use it with `with`, or call `close()`."""

    def start(self) -> None:
        """Start to connect; return at once."""
        raise NotImplementedError

    def close(self) -> None:
        """End the connection and the thread."""
        raise NotImplementedError

    def __enter__(self: _Client) -> _Client:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def connection(self) -> Connection:
        raise NotImplementedError


class StoreClient(_Threaded):
    """Reads the database `xenoovs` as views, and changes it.

    Args:
        remotes: Active connection methods of ovsdb(7), divided by commas: `unix:PATH`, `tcp:IP:PORT`, `ssl:IP:PORT`.
            One of them is used at a time.
        with_intents: Read the table of intents too, as the controller and the command line need.
        on_change: Called in the thread of the client after each change of the view or the connection.
        tls: For `ssl:` remotes.
    """

    def __init__(
        self,
        remotes: str,
        *,
        with_intents: bool = False,
        on_change: Callable[[], None] | None = None,
        tls: Tls | None = None,
    ) -> None:
        raise NotImplementedError

    def view(self) -> FleetView | None:
        """Return the newest view; None: the first has not come yet. The last one stays while there is no connection."""
        raise NotImplementedError

    def wait_changed(self, seen: FleetView | None, *, timeout_s: float) -> FleetView | None:
        """Wait until the view is another than `seen`; return the newest, after the timeout also `seen` itself."""
        raise NotImplementedError

    def commit(
        self, expected_generation: int, changes: Changes, *, timeout_s: float = COMMIT_TIMEOUT_S, comment: str = ""
    ) -> Outcome:
        """Write all changes and the generation `expected_generation + 1` in one transaction.

        Waits for a connection and the answer. After COMMITTED the view has the changes.

        Args:
            expected_generation: Of the view that the changes were computed from.
            comment: For the log of the database.

        Raises:
            StoreUnreachable: There was no connection within the timeout; nothing was sent.
            StoreRejected: The store refuses the rows, such as two services with one claim, or this client may not
                write. Nothing was written.
        """
        raise NotImplementedError


class DpuStatusClient(_Threaded):
    """Writes the row of one DPU in the database `xenoovs_state`, and reads nothing."""

    def __init__(self, remotes: str, *, on_change: Callable[[], None] | None = None, tls: Tls | None = None) -> None:
        raise NotImplementedError

    def put(self, status: DpuStatus) -> None:
        """Write the row soon; a newer status replaces one that was not sent. It is sent again after a reconnect."""
        raise NotImplementedError

    @property
    def written(self) -> DpuStatus | None:
        """The newest status that the store has confirmed on this connection."""
        raise NotImplementedError


class DpuStatusReader(_Threaded):
    """Reads the rows of all DPUs in the database `xenoovs_state`."""

    def __init__(self, remotes: str, *, on_change: Callable[[], None] | None = None, tls: Tls | None = None) -> None:
        raise NotImplementedError

    def statuses(self) -> Mapping[str, DpuStatus] | None:
        """Return the newest statuses by name of the DPU; None: the first have not come yet."""
        raise NotImplementedError

    def forget(self, name: str, *, timeout_s: float = COMMIT_TIMEOUT_S) -> bool:
        """Remove the row of a DPU. Return whether there was one. Raises StoreUnreachable, StoreRejected."""
        raise NotImplementedError
