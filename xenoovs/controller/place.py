"""A bridge that is wanted: what of it outlives its connections, and who is told of it. One bridge knows no other."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from threading import Condition
from time import monotonic

from xenoovs.controller.bucket import full_bucket, take
from xenoovs.controller.invitation import Invitation
from xenoovs.controller.line import Line
from xenoovs.controller.monitor import Damper
from xenoovs.errors import SwitchError, SwitchUnreachable
from xenoovs.model.balancer import label_of

NEWS, NEWS_PER_S = 40, 1.0
"""Changes of ports that are told at once, and in the long run: a link that flaps must not fill the log."""


class Place:
    """Of the bridge with this name and, unless that is None, this datapath id.

    invitation: how it is let come, for messages.
    line:  its connection, once it may be worked on. generation: another after the bridge had lost its flows.
    """

    def __init__(self, bridge: str, datapath_id: int | None = None, *, invitation: Invitation | None = None) -> None:
        self.bridge, self.datapath_id, self.invitation = bridge, datapath_id, invitation or Invitation()
        self.line: Line | None = None
        self.generation = 0
        self._problem: SwitchError | None = None
        self._lost: str | None = None
        self._changed = Condition()
        self._wake: Callable[[], None] = lambda: None
        self._hear_packet: Callable[[Line, bytes], None] = lambda _line, _frame: None
        self.damper = Damper(self.wake)
        self._news = full_bucket(rate=NEWS_PER_S, size=NEWS, now_s=monotonic())
        self._is_hushed = False

    @property
    def label(self) -> str:
        """What tells it from all others: `ovsbr1`, or `ovsbr1@0000c470bda056ac`."""
        return label_of(self.bridge, self.datapath_id)

    @property
    def lines(self) -> tuple[Line, ...]:
        """Its connection, if it has one."""
        line = self.line
        return () if line is None else (line,)

    @property
    def ports_down(self) -> frozenset[str]:
        """Ports without link. Empty while the bridge is not connected: nothing is known then."""
        return frozenset(port.name for line in self.lines for port in line.ports if not port.is_up)

    def takes(self, bridge: str, datapath_id: int) -> bool:
        """Whether a bridge that says this of itself is meant."""
        return bridge == self.bridge and self.datapath_id in (None, datapath_id)

    def on_change(self, wake: Callable[[], None]) -> None:
        """What to call, in any thread, when the bridge came or a port went up or down."""
        self._wake = wake

    def on_packet(self, hear: Callable[[Line, bytes], None]) -> None:
        """What to give packets that the bridge sends here, in its reading thread."""
        self._hear_packet = hear

    def hear_packet(self, line: Line, frame: bytes) -> None:
        """A packet-in came."""
        self._hear_packet(line, frame)

    def wait(self, *, patience_s: float) -> None:
        """Until it may be worked on, or is refused for what it is, or the patience is at its end."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_ours() or self._problem is not None, patience_s)

    def connected(self, *, patience_s: float = 0.0) -> Line:
        """The connection. Raises SwitchUnreachable, OpenFlowVersionDisabled."""
        with self._changed:
            if patience_s:
                # What was wrong before may be mended by now: the bridge comes again and again.
                self._problem = None
        self.wait(patience_s=patience_s)
        line = self.line
        if line is None:
            raise self._problem or SwitchUnreachable(target=f"bridge {self.label}", reason=self._absence())
        return line

    def has_news(self, *, now_s: float) -> tuple[bool, bool]:
        """A port has changed: whether to tell it, and whether to tell instead that no more are told for now."""
        self._news, may = take(self._news, now_s)
        was_hushed, self._is_hushed = self._is_hushed, not may
        return may, not may and not was_hushed

    def begin(self, line: Line) -> None:
        """It has connected, and may be worked on."""
        self.line, self._problem = line, None

    def end(self, line: Line, reason: str) -> bool:
        """A connection is lost. Whether it was the one in use."""
        is_current = self.line is line
        if is_current:
            self.line, since = None, datetime.now(UTC).isoformat(timespec="seconds")
            self._lost = f"it was connected, and is lost since {since} ({reason}); it connects again by itself"
        return is_current

    def fail(self, problem: SwitchError) -> None:
        """It cannot be worked on because of what it is."""
        with self._changed:
            self._problem = problem
            self._changed.notify_all()

    def wake(self) -> None:
        """Something has changed."""
        with self._changed:
            self._changed.notify_all()
        self._wake()

    def _absence(self) -> str:
        """Whoever was here knows the way: nobody has to be told to let it come."""
        return self._lost or f"it has not connected; let it: {self.invitation.words(self.bridge)}"

    def _is_ours(self) -> bool:
        return self.line is not None and not self.line.is_standby
