"""Whether this host should get clients: what `GET /ready` answers to the check of a BGP speaker."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xenoovs.agent.daemon import Agent

GRACE_S = 3.0
"""For so long rounds may fail: a restart of Open vSwitch takes a second."""


class ReadyCheck:
    """Checks whether the host of an agent should get clients.

    Attributes:
        reasons: Return why the host should get none, such as by a fleet; an empty text: no reason.
    """

    def __init__(self, agent: Agent) -> None:
        self.reasons: list[Callable[[], str]] = []
        self._agent = agent
        self._failing_since_s: float | None = None
        agent.round_listeners.append(self._rounded)

    def reason(self) -> str:
        """Return why the host should get no clients; an empty text: it is ready."""
        if withheld := self.withheld():
            return withheld
        return self.bridge_problem() if self.is_known else "no round has succeeded since the start"

    def withheld(self) -> str:
        """Return the first of `reasons`; an empty text: there is none."""
        return next(filter(None, (reason() for reason in self.reasons)), "")

    def bridge_problem(self) -> str:
        """Return why the bridge cannot serve clients; an empty text: it can."""
        report = self._agent.report
        failing_s = self.failing_s()
        if failing_s is not None and failing_s >= GRACE_S:
            return f"reconcile fails: {report.last_error}"
        return "" if self.has_ingress else "no ingress port has a link"

    @property
    def is_known(self) -> bool:
        """Whether the flows of the bridge are known since the start of the agent."""
        report = self._agent.report
        return self._agent.engine.program is not None and (report.last_round_s is not None or bool(report.held))

    @property
    def has_ingress(self) -> bool:
        """Whether clients can enter by some port. The state of links comes from the switch or its database."""
        agent = self._agent
        without_link = (port.name for port in agent.ports() or () if port.link_up is False)
        down = agent.state.ports_down.union(agent.report.without, without_link)
        return not down.issuperset(self._agent.config.balancer.uplinks.ingress)

    def failing_s(self) -> float | None:
        """Return how long rounds have failed; None: the last one succeeded."""
        report, now_s = self._agent.report, time.monotonic()
        if not report.last_error:
            self._failing_since_s = None
        elif self._failing_since_s is None and not report.is_late:
            # A late round may yet succeed. One at a switch that does not answer fails by itself.
            self._failing_since_s = now_s
        return None if self._failing_since_s is None else now_s - self._failing_since_s

    def _rounded(self) -> None:
        self.failing_s()
