"""What happens to the bridge and its ports, noticed as it happens: told, shown, and a reason for a round.

This is a faster eye, never the only one: while ovsdb-server does not answer, the loop finds a restarted Open vSwitch by
its socket and foreign changes by its comparisons.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from xenoovs.agent.log import tell, warn
from xenoovs.agent.snapshot import PortView
from xenoovs.errors import SwitchUnreachable
from xenoovs.model.balancer import Balancer
from xenoovs.switch.api import PortState
from xenoovs.switch.ovsdb_feed import Ports, follow_ports

_RETRY_S, _LONGEST_RETRY_S = 0.1, 2.0


@dataclass(frozen=True, slots=True)
class PortNews:
    """One port (or with port "" the bridge) of the config, and what became of it. `is_bad`: an operator should look."""

    text: str
    port: str
    is_bad: bool
    needs_round: bool


def news_of(before: Ports | None, after: Ports, balancer: Balancer) -> tuple[PortNews, ...]:
    """What changed for the bridge of a config and the ports that it names. `before`: None at the first look."""
    bridge = balancer.uplinks.bridge
    now = after.get(bridge)
    if before is None:
        ports = now or {}
        first = (_link_news(None, ports[name]) for name in balancer.ports if name in ports)
        return tuple(news for news in first if news is not None and news.is_bad)
    then = before.get(bridge)
    if now is None or then is None:
        if (now is None) == (then is None):
            return ()
        text = "the bridge is gone" if now is None else "the bridge is there again"
        return (PortNews(text, "", is_bad=now is None, needs_round=now is not None),)
    return tuple(_port_news(then, now, balancer.ports))


def _port_news(then: Mapping[str, PortState], now: Mapping[str, PortState], names: Iterable[str]) -> Iterable[PortNews]:
    for name in names:
        old, new = then.get(name), now.get(name)
        if old == new:
            continue
        if new is None:
            yield PortNews("a port was taken off the bridge", name, is_bad=True, needs_round=True)
        elif old is None:
            yield PortNews("a port is on the bridge again", name, is_bad=False, needs_round=True)
        elif old.ofport != new.ofport:
            lost = new.ofport is None
            text = f"a port does not work: {new.error or 'it has no number'}" if lost else "a port has another number"
            yield PortNews(text, name, is_bad=lost, needs_round=True)
        elif (news := _link_news(old, new)) is not None:
            yield news


def _link_news(old: PortState | None, new: PortState) -> PortNews | None:
    if new.link_up is None or (old is not None and old.link_up == new.link_up):
        return None
    return PortNews(f"link {'up' if new.link_up else 'down'}", new.name, is_bad=not new.link_up, needs_round=False)


def port_views(known: Mapping[str, PortState], balancer: Balancer) -> tuple[PortView, ...]:
    """The ports that the config names, in its order, of those that are known by their names."""
    states = (known[name] for name in balancer.ports if name in known)
    return tuple(PortView(state.name, state.ofport, state.link_up, state.error or "") for state in states)


class BridgeWatch:
    """Follows the database for ever, with back-off while it does not answer.

    balancer:   the config in use, asked for at each change.
    want_round: called when the flows may not be right any more.
    """

    def __init__(self, db: str, *, balancer: Callable[[], Balancer], want_round: Callable[[], None]) -> None:
        self._db, self._balancer, self._want_round = db, balancer, want_round
        self._ports: Ports | None = None
        self._problem = ""
        self._retry_s = _RETRY_S

    def ports(self) -> tuple[PortView, ...] | None:
        """The ports of the bridge that the config names, in its order; None while nobody tells."""
        if self._ports is None or self._problem:
            return None
        balancer = self._balancer()
        known = self._ports.get(balancer.uplinks.bridge, {})
        return port_views(known, balancer)

    def problem(self) -> str:
        """Why the database does not answer; empty while it does, and until it was asked."""
        return self._problem

    async def forever(self) -> None:
        """Until cancelled."""
        while True:
            try:
                async for ports in follow_ports(self._db):
                    self._take(ports)
            except SwitchUnreachable as problem:
                self._lost(problem)
            await asyncio.sleep(self._retry_s)
            self._retry_s = min(2 * self._retry_s, _LONGEST_RETRY_S)

    def _take(self, ports: Ports) -> None:
        if self._problem:
            self._problem = ""
            tell("the database of Open vSwitch answers again", db=self._db)
            self._want_round()
        self._retry_s = _RETRY_S
        balancer = self._balancer()
        found = news_of(self._ports, ports, balancer)
        self._ports = ports
        for news in found:
            say = warn if news.is_bad else tell
            facts = {"port": news.port} if news.port else {}
            say(news.text, bridge=balancer.uplinks.bridge, **facts)
        if any(news.needs_round for news in found):
            self._want_round()

    def _lost(self, problem: SwitchUnreachable) -> None:
        if not self._problem:
            warn("the database of Open vSwitch does not answer; changes are found by looking", reason=str(problem))
        self._problem = str(problem)
