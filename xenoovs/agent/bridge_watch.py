"""Follows the bridge and its ports in the database of Open vSwitch: changes are logged, shown, and start a round.

This only speeds rounds up. While ovsdb-server does not answer, the agent notices a restarted Open vSwitch by its
socket, and external changes by comparing flows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from xenoovs.agent.log import info, warn
from xenoovs.datapath.database import PortState
from xenoovs.errors import SwitchUnreachable
from xenoovs.model.balancer import Balancer
from xenoovs.show.agent import PortView
from xenoovs.switch.ovsdb import Ports, follow_ports

_RETRY_S, _LONGEST_RETRY_S = 0.1, 2.0


@dataclass(frozen=True, slots=True)
class PortEvent:
    """A change of a port that the config names, or of the bridge.

    Attributes:
        text: The event in the log.
        port: Its name; empty: the bridge itself.
        is_bad: Whether an operator may have to act.
        needs_round: Whether flows may be wrong now.
    """

    text: str
    port: str
    is_bad: bool
    needs_round: bool


def port_events(before: Ports | None, after: Ports, balancer: Balancer) -> tuple[PortEvent, ...]:
    """Return what changed for the bridge of a config and its ports. `before`: None at first."""
    bridge = balancer.uplinks.bridge
    now = after.get(bridge)
    if before is None:
        ports = now or {}
        links = (_link_event(None, ports[name]) for name in balancer.ports if name in ports)
        return tuple(event for event in links if event is not None and event.is_bad)
    then = before.get(bridge)
    if now is None or then is None:
        if (now is None) == (then is None):
            return ()
        text = "bridge removed" if now is None else "bridge added"
        return (PortEvent(text, "", is_bad=now is None, needs_round=now is not None),)
    return tuple(_changed_ports(then, now, balancer.ports))


def _changed_ports(
    then: Mapping[str, PortState], now: Mapping[str, PortState], names: Iterable[str]
) -> Iterable[PortEvent]:
    for name in names:
        old, new = then.get(name), now.get(name)
        if old == new:
            continue
        if new is None:
            yield PortEvent("port removed from the bridge", name, is_bad=True, needs_round=True)
        elif old is None:
            yield PortEvent("port added to the bridge", name, is_bad=False, needs_round=True)
        elif old.ofport != new.ofport:
            is_lost = new.ofport is None
            text = f"port does not work: {new.error or 'it has no number'}" if is_lost else "port number changed"
            yield PortEvent(text, name, is_bad=is_lost, needs_round=True)
        elif (old.type, old.options) != (new.type, new.options):
            # A tunnel may lead elsewhere now, or unencrypted.
            yield PortEvent("port has other options", name, is_bad=False, needs_round=True)
        elif (event := _link_event(old, new)) is not None:
            yield event


def _link_event(old: PortState | None, new: PortState) -> PortEvent | None:
    if new.link_up is None or (old is not None and old.link_up == new.link_up):
        return None
    return PortEvent(f"link {'up' if new.link_up else 'down'}", new.name, is_bad=not new.link_up, needs_round=False)


def port_views(known: Mapping[str, PortState], balancer: Balancer) -> tuple[PortView, ...]:
    """Return the known ports that the config names, in its order."""
    states = (known[name] for name in balancer.ports if name in known)
    return tuple(PortView(state.name, state.ofport, state.link_up, state.error or "") for state in states)


class BridgeWatch:
    """Follows the database, and connects again with increasing pauses while it does not answer."""

    def __init__(
        self,
        db: str,
        *,
        balancer: Callable[[], Balancer],
        request_round: Callable[[], None],
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """Bind it to an agent.

        Args:
            db: As of Endpoint.
            balancer: Returns the config in use.
            request_round: Called when flows may be wrong.
            on_change: Called when a port of the config, or what is known of it, has changed.
        """
        self._db, self._balancer = db, balancer
        self._request_round, self._on_change = request_round, on_change
        self._ports: Ports | None = None
        self._problem = ""
        self._retry_s = _RETRY_S

    def ports(self) -> tuple[PortView, ...] | None:
        """Return the ports that the config names, in its order; None while the database does not answer."""
        if self._ports is None or self._problem:
            return None
        balancer = self._balancer()
        return port_views(self._ports.get(balancer.uplinks.bridge, {}), balancer)

    def problem(self) -> str:
        """Return why the database does not answer; empty while it does, and until the first attempt."""
        return self._problem

    async def run(self) -> None:
        """Follow the database until cancelled."""
        while True:
            try:
                async for ports in follow_ports(self._db):
                    self._changed(ports)
            except SwitchUnreachable as problem:
                if not self._problem:
                    warn("database of Open vSwitch does not answer; polling for changes", reason=str(problem))
                self._problem = str(problem)
            await asyncio.sleep(self._retry_s)
            self._retry_s = min(2 * self._retry_s, _LONGEST_RETRY_S)

    def _changed(self, ports: Ports) -> None:
        if self._problem:
            self._problem = ""
            info("database of Open vSwitch answers again", db=self._db)
            self._request_round()
        self._retry_s = _RETRY_S
        balancer = self._balancer()
        events = port_events(self._ports, ports, balancer)
        self._ports = ports
        for event in events:
            log = warn if event.is_bad else info
            facts = {"port": event.port} if event.port else {}
            log(event.text, bridge=balancer.uplinks.bridge, **facts)
        if any(event.needs_round for event in events):
            self._request_round()
        if events:
            self._on_change()
