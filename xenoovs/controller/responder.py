"""Answers neighbour solicitations for the addresses of the services of one bridge."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Event, Lock, Thread
from time import monotonic

from xenoovs.controller.answers import LEASE_S, answer, answer_flows, macs_of
from xenoovs.controller.bucket import full_bucket, take
from xenoovs.controller.line import Line
from xenoovs.controller.voice import Voice
from xenoovs.errors import NotEncodable, WireError
from xenoovs.model.balancer import Balancer
from xenoovs.openflow.bundle import Command, FlowMod
from xenoovs.openflow.flow import Flow
from xenoovs.openflow.wire.codec import decode, encode
from xenoovs.openflow.wire.flow_mod import encode_flow_mod
from xenoovs.openflow.wire.packet import PacketIn

RATE_PER_S, BURST = 200.0, 400.0
"""Packets from switches that are looked at. Hosts ask again after a second (RFC 4861, 10: RETRANS_TIMER)."""

_STEP_S = LEASE_S / 3
_QUIET_S = 60.0
_XID = 0
"""Below all that is waited for (`line.py`)."""

Lines = Callable[[], Iterable[Line]]


class Responder:
    """`hear` is called by reading threads, `follow` by any; flows are kept by a thread of its own until `close`.

    answered, dropped: packets; dropped are those that came faster than RATE_PER_S and were not looked at.
    """

    def __init__(self, lines: Lines, *, voice: Voice, now_s: Callable[[], float] = monotonic) -> None:
        self._lines, self._voice, self._now_s = lines, voice, now_s
        self._macs: dict[int, bytes] = {}
        self._flows: dict[str, tuple[Flow, ...]] = {}
        self._balancer: Balancer | None = None
        self._bucket = full_bucket(rate=RATE_PER_S, size=BURST, now_s=now_s())
        self._quiet_until_s = 0.0
        self._lock = Lock()
        self._sent: dict[Line, tuple[Flow, ...]] = {}
        self._wake, self._is_closing = Event(), False
        self._thread: Thread | None = None
        self.answered = self.dropped = 0

    def follow(self, balancer: Balancer) -> None:
        """Answer for the addresses of this balancer from now on, and see to the flows of all bridges now."""
        if balancer is not self._balancer:
            self._balancer = balancer
            self._macs, self._flows = macs_of(balancer), {balancer.uplinks.bridge: tuple(answer_flows(balancer))}
        if self._macs and self._thread is None:
            self._thread = Thread(target=self._keep, name="xenoovs-neighbours", daemon=True)
            self._thread.start()
        self._wake.set()

    def hear(self, line: Line, frame: bytes) -> None:
        """A packet-in came. Beyond the rate it costs a few microseconds. The master alone answers."""
        if line.is_standby:
            return
        with self._lock:
            self._bucket, may = take(self._bucket, self._now_s())
            self.dropped += not may
        if not may:
            self._complain(line)
            return
        try:
            packet = decode(frame, names=line.names).message
            out = answer(packet, self._macs) if isinstance(packet, PacketIn) else None
            if out is not None:
                packed = encode(out, xid=_XID, ofports=line.numbers)
                self.answered += 1
                line.carrier.send(packed)
        except (WireError, NotEncodable) as strange:
            self._voice.warn("a packet of a bridge is not understood", bridge=line.label, reason=str(strange))

    def close(self) -> None:
        """Take the flows away, so that neighbour discovery goes on without us at once."""
        self._is_closing = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _keep(self) -> None:
        while not self._is_closing:
            self._wake.wait(_STEP_S)
            self._wake.clear()
            lines = [line for line in self._lines() if not line.is_standby]
            self._sent = {line: flows for line, flows in self._sent.items() if line in lines}
            for line in lines:
                self._step(line, () if self._is_closing else self._flows.get(line.bridge, ()))

    def _step(self, line: Line, wanted: tuple[Flow, ...]) -> None:
        keys = {flow.key for flow in wanted}
        gone = (flow for flow in self._sent.get(line, ()) if flow.key not in keys)
        mods = [*(FlowMod(Command.ADD, flow) for flow in wanted), *(FlowMod(Command.DELETE, flow) for flow in gone)]
        try:
            packed = b"".join(encode_flow_mod(mod, xid=_XID, ofports=line.numbers) for mod in mods)
        except NotEncodable:
            # A port that is not there: the agent says so, and this is tried again.
            return
        if packed:
            line.carrier.send(packed)
        self._sent[line] = wanted

    def _complain(self, line: Line) -> None:
        now_s = self._now_s()
        if now_s >= self._quiet_until_s:
            self._quiet_until_s = now_s + _QUIET_S
            self._voice.warn("packets come faster than they are answered", bridge=line.label, limit_pps=RATE_PER_S)
