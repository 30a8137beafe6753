"""All that is known of a fleet at one moment: the same for commands, on its page and in its metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from xenoovs.dataclass import dataclass
from xenoovs.errors import counted, worded
from xenoovs.fleet.dpus import WORST_FIRST, DpuRow, DpuState, dpu_problems, dpu_rows, fleet_problems, roll_out_lines
from xenoovs.fleet.plan import FleetChange
from xenoovs.fleet.services import Memo
from xenoovs.fleet.targets import TargetRow, target_problems, target_rows
from xenoovs.store.cluster import ServerFacts, all_problems
from xenoovs.store.view import DpuStatus, FleetView, Intent, IntentState


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    """A moment of a fleet. `view`: None: the store has not answered yet. `servers`, `is_active`: of this host.

    `problems`: what an operator should look after, in words. `now_s`: since 1970. `targets`: those that are down first.
    `is_stalled`: no controller has written what was due. `roll_out`: what it does and waits for, and which config waits
    for its time, in words.
    """

    view: FleetView | None
    rows: tuple[DpuRow, ...]
    servers: tuple[ServerFacts, ...]
    is_active: bool
    problems: tuple[str, ...]
    now_s: float
    is_stalled: bool = False
    roll_out: tuple[str, ...] = ()
    targets: tuple[TargetRow, ...] = ()

    def counts(self) -> Counter[DpuState]:
        """Return how many DPUs there are in each state."""
        return Counter(row.state for row in self.rows)

    def worst_first(self) -> list[DpuRow]:
        """Return the DPUs; those that need an operator come first, of one state those with a note."""
        return sorted(self.rows, key=lambda row: (WORST_FIRST.index(row.state), not row.note, row.name))

    @property
    def headline(self) -> tuple[str, str]:
        """The state of the fleet in a few words, and how bad it is: `good`, `warn` or `bad`."""
        counts = self.counts()
        differing = len(self.rows) - counts[DpuState.APPLIED]
        if self.view is None or self.problems:
            return "has problems", "bad"
        if not differing and self.view.wave:
            return f"wave {self.view.wave} of a roll-out", "warn"
        if not differing:
            return "all DPUs have the newest generation", "good"
        if set(counts) <= {DpuState.APPLIED, DpuState.BEHIND}:
            return f"{counted(differing, 'DPU')} behind", "warn"
        return f"{counted(differing, 'DPU')} {worded(differing, 'differs', 'differ')}", "bad"

    @property
    def newest(self) -> Intent | None:
        """The config that was given last."""
        intents = {} if self.view is None else self.view.intents
        return intents[max(intents)] if intents else None

    @property
    def is_refused(self) -> bool:
        """Whether the controller refused that config."""
        return self.newest is not None and self.newest.state is IntentState.REFUSED

    @property
    def is_well(self) -> bool:
        """Whether every DPU has the newest generation, no roll-out runs, and there is no problem."""
        return not (self.problems or self.roll_out) and all(row.state is DpuState.APPLIED for row in self.rows)


def fleet_snapshot(
    view: FleetView | None,
    statuses: Mapping[str, DpuStatus] | None,
    servers: tuple[ServerFacts, ...],
    *,
    is_active: bool,
    now_s: float,
    change: FleetChange,
    stall: str,
    unwritten: Collection[str],
    problems: Iterable[str],
    memo: Memo | None = None,
) -> FleetSnapshot:
    """Return the snapshot of these facts, with all problems. `change`: what the store lacks. `problems`: further ones.

    `stall`: as of `FleetProgress.stall`. `unwritten`: as of `UnwrittenVotes.late`.
    """
    rows = () if view is None or statuses is None else tuple(dpu_rows(view, statuses, now_s=now_s))
    targets, found, roll_out = list[TargetRow](), list[str](), list[str]()
    if view is not None:
        found = fleet_problems(change, statuses, stall=stall)
        targets = target_rows(view, statuses, now_s=now_s, unwritten=unwritten, memo=memo)
        roll_out = roll_out_lines(view, statuses, now_s=now_s)
    found += [*dpu_problems(rows), *target_problems(targets), *all_problems(servers)]
    return FleetSnapshot(
        view, rows, servers, is_active, (*problems, *found), now_s, bool(stall), tuple(roll_out), tuple(targets)
    )
