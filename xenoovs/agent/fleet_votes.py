"""The votes of a DPU in a fleet: which targets it cannot reach by its own checks.

They move no client on this DPU: the store decides.
"""

from __future__ import annotations

from collections.abc import Iterator

from xenoovs.agent.state import AgentState
from xenoovs.fleet.services import Memo
from xenoovs.fleet.votes import Targets, targets_of
from xenoovs.model.balancer import Balancer


class FleetVoter:
    """Finds the targets that a DPU cannot reach. It caches the targets of the last config."""

    def __init__(self) -> None:
        self._last: tuple[Balancer, Targets] | None = None
        self._memo = Memo()

    def down(self, state: AgentState) -> frozenset[str]:
        """Return the targets that this DPU cannot reach, of those whose witness it is."""
        witnessed = frozenset() if state.watches is None else state.watches.witnessed
        return frozenset(target for target in self._dark(state) if target in witnessed)

    def is_cut_off(self, state: AgentState) -> bool:
        """Return whether this DPU cannot reach more than half of the targets that are up by votes."""
        known_down = frozenset() if state.watches is None else state.watches.down
        up = self._targets(state.balancer).keys() - known_down
        return 2 * sum(target in up for target in self._dark(state)) > len(up)

    def _dark(self, state: AgentState) -> Iterator[str]:
        """Yield the targets that are down by the checks of this DPU."""
        tracker = state.tracker
        for target, names in self._targets(state.balancer).items():
            check = tracker.checks.by_backend.get(names[0])
            if check is not None and not tracker.health[check].is_up:
                yield target

    def _targets(self, balancer: Balancer) -> Targets:
        if self._last is None or self._last[0] is not balancer:
            self._last = balancer, targets_of(balancer.services, self._memo)
        return self._last[1]
