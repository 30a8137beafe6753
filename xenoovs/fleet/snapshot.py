"""All that is known of a fleet at one moment: the same on its page and in its metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from xenoovs.display import decimal
from xenoovs.errors import counted, worded
from xenoovs.fleet.dpus import WORST_FIRST, DpuRow, DpuState
from xenoovs.fleet.switch_time import LARGEST_ERROR_US
from xenoovs.fleet.targets import TargetRow, TargetState
from xenoovs.store.cluster import ServerFacts
from xenoovs.store.view import FleetView, Intent, IntentState


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    """A moment of a fleet.

    Attributes:
        view: What the store has; None: it has not answered yet.
        rows: The DPUs.
        servers: Of the store on this host.
        is_active: Whether the controller of this host decides.
        problems: What an operator should look after, in words.
        now_s: Seconds since 1970.
        targets: Of health checks, those that are down first.
        is_stalled: Whether no controller has written what was due.
        roll_out: What a roll-out does and waits for, and which config waits for its time, in words.
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
    def has_groups(self) -> bool:
        """Whether a DPU is in a group."""
        return any(row.groups for row in self.rows)

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

    def document(self) -> dict[str, object]:
        """Return what the page shows, as values of JSON."""
        view, counts, newest = self.view, self.counts(), self.newest
        role = (
            ("controller active", "good")
            if self.is_active
            else ("controller passive: its server does not lead", "warn")
        )
        notices = [*((text, "bad") for text in self.problems), *((text, "warn") for text in self.roll_out)]
        if newest is not None and self.is_refused:
            notices.append((f"config {newest.number} was refused: {newest.comment}", "bad"))
        overrides = () if view is None else sorted(view.overrides.items())
        return {
            "name": "" if view is None else view.name,
            "badges": [self.headline, role],
            "notices": notices,
            "overrides": [
                {
                    "of": "/".join(names),
                    "weight": decimal(one.weight) if one.weight else "",
                    "author": one.author,
                    "for_s": self.now_s - one.since_ms / 1000,
                }
                for names, one in overrides
            ],
            "generation": None if view is None else view.generation,
            "config": None if view is None else view.intent,
            "services": None if view is None else len(view.services),
            "targets": {
                "up": sum(row.state is not TargetState.DOWN for row in self.targets),
                "all": len(self.targets),
            },
            "drift": sum(len(row.status.drift) for row in self.rows),
            "clock_error_ms": LARGEST_ERROR_US // 1000,
            "databases": {"served": sum(server.is_connected for server in self.servers), "all": len(self.servers)},
            "has_groups": self.has_groups,
            "states": [(state.value, counts[state]) for state in WORST_FIRST],
            "dpus": [
                {
                    "name": row.name,
                    "groups": sorted(row.groups),
                    "state": row.state.value,
                    "applied": row.status.applied,
                    "hw_share": None if row.hw_share is None else float(row.hw_share),
                    "seen_s": row.seen_s,
                    "clock": row.clock,
                    "is_clock_good": row.is_clock_good,
                    "has_reported": bool(row.status.seen_ms),
                    "version": row.status.version,
                    "note": row.note,
                }
                for row in self.worst_first()
            ],
            "servers": [row for server in self.servers for row in _server_rows(server)],
        }


def _server_rows(server: ServerFacts) -> Iterator[dict[str, object]]:
    """Yield a row for a database of this host, and one for each server of its cluster that it leads."""
    cluster, database = server.cluster, server.database.value
    yield {
        "database": database,
        "server": "this host",
        "role": (server.role.value, "good" if server.is_connected else "bad"),
        "term": None if cluster is None else cluster.term,
        "index": None if cluster is None else cluster.index,
        "size_bytes": server.size_bytes,
        "free_bytes": server.free_bytes,
    }
    for member in () if cluster is None else cluster.members:
        lag = None if cluster is None else cluster.lag(member)
        if cluster is not None and lag is not None and not member.is_self:
            role = ("silent", "bad") if member in cluster.silent() else ("follower", "good")
            yield {
                "database": database,
                "server": member.address,
                "role": role,
                "index": member.match_index,
                "lag": lag,
            }
