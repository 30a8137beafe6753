"""What rounds came to: told once for one problem, and counted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from xenoovs.agent.log import tell, warn
from xenoovs.agent.reconcile import Round

_MOST_SERVICES = 20
"""Of those that one round changed are told one by one, those with the most clients that moved."""


class Report:
    """Counts from the start of the agent.

    rounds:    that changed something; flow_mods: in them; foreign: flows of others' making that were put right.
    moved:     share of clients moved, summed over all changes, by service.
    held:      flow-mods that a pause holds back now.
    last_error: why the bridge is not right now; empty while it is.
    last_round_s: UTC, when the bridge was last found or made right.
    """

    def __init__(self) -> None:
        self.rounds = self.flow_mods = self.foreign = self.held = 0
        self.moved = defaultdict[str, float](float)
        self.last_error = ""
        self.last_round_s: float | None = None
        self._kept: dict[str, frozenset[str]] = {}

    def done(self, done: Round, *, bridge: str, config: str, now_s: float) -> None:
        """A round that left the bridge right."""
        self.last_round_s, self.held = now_s, 0
        if done.lost:
            warn("the bridge had been made anew", bridge=bridge)
        if done.foreign:
            self.foreign += done.foreign
            warn("flows that somebody else had changed are put right", flows=done.foreign, bridge=bridge)
        if done.difference.is_empty:
            return
        self.rounds += 1
        self.flow_mods += done.difference.flow_mods
        for drain in done.drains:
            old, new, left_s = ",".join(drain.old), ",".join(drain.new), round(drain.left_s)
            tell("connections are kept", service=drain.service, old=old, new=new, blocks=drain.blocks, left_s=left_s)
        tell("flows changed", bridge=bridge, flow_mods=done.difference.flow_mods, config=config)
        for change in done.services:
            self.moved[change.name] += float(change.moved)
        most_moved = sorted(done.services, key=lambda change: -change.moved)
        for change in most_moved[:_MOST_SERVICES]:
            moved, least = (f"{float(share):.4f}" for share in (change.moved, change.least_moved))
            out = ",".join(change.out) or "-"
            tell("service changed", service=change.name, clients_moved=moved, clients_moved_least=least, out=out)
        if left := most_moved[_MOST_SERVICES:]:
            tell("more services changed", services=len(left), clients_moved_most=f"{float(left[0].moved):.4f}")

    def keep(self, kept: Mapping[str, frozenset[str]]) -> None:
        """Backends, by service, that are down and have their clients all the same. Told when it changes."""
        for service in sorted(kept.keys() | self._kept.keys()):
            now, before = kept.get(service, frozenset()), self._kept.get(service, frozenset())
            if now and now != before:
                warn("backends that are down keep their clients", service=service, backends=",".join(sorted(now)))
            elif before and not now:
                tell("no backend that is down keeps clients", service=service)
        self._kept = dict(kept)

    def hold(self, flow_mods: int) -> None:
        """A round that a pause kept from changing anything."""
        if flow_mods != self.held:
            warn("paused; the bridge is not as it should be", flow_mods=flow_mods)
        self.held = flow_mods

    def complain(self, problem: str, *, bridge: str) -> None:
        """A round that failed, or, with an empty `problem`, one that did not. Says so only when it is news."""
        if problem and problem != self.last_error:
            warn("the bridge cannot be made right; trying again", bridge=bridge, reason=problem)
        if self.last_error and not problem:
            tell("the bridge is right again", bridge=bridge)
        self.last_error = problem
