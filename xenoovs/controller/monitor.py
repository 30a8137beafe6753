"""Flow monitoring: a switch reports changes of flows as they happen (OpenFlow 1.4.0, 7.3.5.16 and 7.3.5.17).

OFPT_FLOW_REMOVED would report fewer changes, and only of flows with a flag that would show in every dump.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from threading import Lock, Timer
from time import monotonic

from xenoovs.errors import MalformedOpenFlow
from xenoovs.openflow.flow import is_ours
from xenoovs.openflow.wire.frame import ERROR, HEADER, MULTIPART_REPLY, MULTIPART_REQUEST, message

MONITOR_XID = 0xFFE
"""Of the request, below those of exchanges (`connection.py`). Later reports have none."""

_FLOW_MONITOR = 16
"""OFPMP_FLOW_MONITOR."""
_PART = Struct("!HH4x")
_REQUEST = Struct("!IIIHBBHH4x")
"""monitor_id, out_port, out_group, flags, table_id, command; a match of type OXM that is 4 bytes long: everything."""
_UPDATE = Struct("!HH")
_FULL = Struct("!HHBBHHH4xQ")
"""length, event, table_id, reason, idle_timeout, hard_timeout, priority, cookie."""

_ANY, _ALL_TABLES, _ADD_MONITOR, _OXM = 0xFFFFFFFF, 0xFF, 0, 1
_ADDED, _REMOVED, _MODIFIED = 1, 2, 3
"""OFPFME_*. The controller's own changes come as OFPFME_ABBREV, without a cookie."""
_REPORTED = 1 << 1 | 1 << 2 | 1 << 3
"""OFPFMF_ADD, OFPFMF_REMOVED, OFPFMF_MODIFY; not OFPFMF_INITIAL."""

_PAUSE_S = 2.0


def monitor_request() -> bytes:
    """Return the request to report all changes of flows. Open vSwitch before 3.0 refuses it (commit c3e64047d)."""
    body = _PART.pack(_FLOW_MONITOR, 0) + _REQUEST.pack(1, _ANY, _ANY, _REPORTED, _ALL_TABLES, _ADD_MONITOR, _OXM, 4)
    return message(MULTIPART_REQUEST, body, xid=MONITOR_XID)


def is_refusal(frame: bytes) -> bool:
    """Return whether an error refuses to monitor.

    Open vSwitch before 3.0 answers to what follows the header as if that were one: with version 1 and xid 0
    (handle_flow_monitor_request of ofproto/ofproto.c).
    """
    version, kind, _, xid = HEADER.unpack_from(frame)
    return kind == ERROR and (xid == MONITOR_XID or (version, xid) == (1, 0))


def touches_ours(frame: bytes) -> bool:
    """Return whether a message reports an external change of flows of xenoovs. Raises MalformedOpenFlow."""
    if frame[1] != MULTIPART_REPLY or len(frame) < HEADER.size + _PART.size:
        return False
    kind, _ = _PART.unpack_from(frame, HEADER.size)
    return kind == _FLOW_MONITOR and any(is_ours(cookie) for cookie in _changed(frame))


def _changed(frame: bytes) -> Iterator[int]:
    """Yield the cookies of the changed flows."""
    offset = HEADER.size + _PART.size
    while len(frame) - offset >= _UPDATE.size:
        length, event = _UPDATE.unpack_from(frame, offset)
        is_full = event in (_ADDED, _REMOVED, _MODIFIED)
        if not (_FULL.size if is_full else _UPDATE.size) <= length <= len(frame) - offset:
            raise MalformedOpenFlow(f"a flow update with the length {length}")
        if is_full:
            yield _FULL.unpack_from(frame, offset)[-1]
        offset += length


class Throttle:
    """Calls `act` at once, and then not again for a pause: two programs that revert each other must not spin."""

    def __init__(self, act: Callable[[], None], *, pause_s: float = _PAUSE_S) -> None:
        self._act, self._pause_s = act, pause_s
        self._lock = Lock()
        self._next_s = 0.0
        self._is_waiting = False

    def trigger(self) -> None:
        """Call `act` now, or when the pause is over."""
        with self._lock:
            if self._is_waiting:
                return
            wait_s = self._next_s - monotonic()
            self._is_waiting = wait_s > 0
        if wait_s <= 0:
            self._call()
            return
        timer = Timer(wait_s, self._call)
        timer.daemon = True
        timer.start()

    def _call(self) -> None:
        with self._lock:
            self._is_waiting = False
            self._next_s = monotonic() + self._pause_s
        self._act()
