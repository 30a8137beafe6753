"""Several controllers for one bridge: one is master, the others stand by.

The master keeps a flow alive that ends by itself after some seconds: its lease. It stands in a table that no packet
comes to. Who stands by looks for it, and becomes master when it is gone: also when the master hangs, or its host is
cut off. The roles of OpenFlow (1.4.0, 6.3.5) with their generation ids see to it that a master of yesterday changes
nothing.
"""

from __future__ import annotations

from secrets import randbits
from threading import Event, Thread

from xenoovs.controller.bridge import Place
from xenoovs.controller.connection import Line, dump
from xenoovs.controller.log import Voice
from xenoovs.errors import SwitchError
from xenoovs.openflow.flow import LEASE_OWNER, OWNER_MASK, Command, CookieMask, Flow, FlowKey, FlowMod, Match
from xenoovs.openflow.wire.controller import Role, RoleReply, RoleRequest
from xenoovs.openflow.wire.flow import encode_flow_mod
from xenoovs.openflow.wire.frame import NO_NUMBERS
from xenoovs.switch.openflow import ask

_LEASES = (CookieMask(LEASE_OWNER << 48, OWNER_MASK),)
_TABLE = 253
"""The last table that is not Open vSwitch's own."""
_LEASE_S = 3
_STEP_S = 0.5
_NO_GENERATION = (1 << 64) - 1


class Keeper:
    """For one bridge: one that hangs must not cost another its lease. Works in a thread of its own until `close`."""

    def __init__(self, place: Place, *, voice: Voice) -> None:
        self._place, self._voice = place, voice
        self._cookie = LEASE_OWNER << 48 | randbits(48)
        self._told: set[Line] = set()
        self._closing = Event()
        self._thread = Thread(target=self._keep, name="xenoovs-roles", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Give up the lease, so that another one takes over at once."""
        self._closing.set()
        self._thread.join()
        for line in self._place.lines:
            if not line.is_standby:
                line.carrier.send(self._lease(Command.DELETE))

    def _keep(self) -> None:
        while not self._closing.wait(_STEP_S):
            lines = self._place.lines
            self._told &= set(lines)
            for line in lines:
                try:
                    self._step(line)
                except SwitchError:
                    # The connection ends, and comes back: another line, and another step.
                    continue

    def _step(self, line: Line) -> None:
        if not line.is_standby:
            line.carrier.send(self._lease(Command.ADD))
            return
        leases = {seen.flow.cookie for seen in dump(line, _LEASES)}
        if leases - {self._cookie}:
            self._stand_by(line)
            return
        _, generation = _ask(line, RoleRequest(Role.NOCHANGE))
        role, _ = _ask(line, RoleRequest(Role.MASTER, (generation + 1) & _NO_GENERATION))
        if role is Role.MASTER:
            line.carrier.send(self._lease(Command.ADD))
            line.is_standby = False
            self._told.discard(line)
            self._voice.tell("this controller is master", bridge=self._place.label)
            self._place.wake()

    def _stand_by(self, line: Line) -> None:
        if line in self._told:
            return
        self._told.add(line)
        _, generation = _ask(line, RoleRequest(Role.NOCHANGE))
        _ask(line, RoleRequest(Role.SLAVE, 0 if generation == _NO_GENERATION else generation))
        self._voice.tell("another controller is master; standing by", bridge=self._place.label)

    def _lease(self, command: Command) -> bytes:
        options = (f"hard_timeout={_LEASE_S}",)
        mod = FlowMod(command, Flow(FlowKey(_TABLE, 0, Match()), self._cookie, (), options))
        return encode_flow_mod(mod, xid=0, ofports=NO_NUMBERS)


def _ask(line: Line, request: RoleRequest) -> tuple[Role, int]:
    """The role and the generation after it. Raises SwitchError where it is refused, as a stale generation is."""
    with line.well_formed(), line.exchange() as exchange:
        reply = ask(exchange, request)
    if not isinstance(reply, RoleReply):
        raise SwitchError(f"bridge {line.bridge} answered a question for its role with something else")
    return reply.role, reply.generation_id
