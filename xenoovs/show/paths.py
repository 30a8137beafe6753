"""The tables of the remotes of tunnels and of the paths to them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from xenoovs.display import duration, percent, quantity, span
from xenoovs.show.column import Column, Row, column, counter, gauge, number, record, text


class MoveReason(Enum):
    """Why blocks of a remote move between paths."""

    FAILED = "failed"
    CONGESTED = "congested"
    LOSSY = "lossy"
    RESTORED = "restored"
    OPERATOR = "operator"


class PathState(Enum):
    """State of a path by its probes. `good`: as fast as the best path. `bad`: slower by more than the margin. `failed`:
    it does not answer, while others do. `unknown`: no path answers, or there were too few rounds."""

    GOOD = "good"
    BAD = "bad"
    FAILED = "failed"
    UNKNOWN = "unknown"


PATH_STYLES = {PathState.GOOD: "good", PathState.BAD: "warn", PathState.FAILED: "bad", PathState.UNKNOWN: "note"}


@record
class PathView:
    """One path to a remote. Times of answers are in seconds."""

    remote_cell = Column(of=lambda row: row.parent.name, shown=text("REMOTE"))
    name: str = column("`p1`, `p2` and so on, or the uplink.", shown=text("PATH"))
    port: int = column("UDP source port of its probes and, where that selects the path, of its packets.")
    hops: str = column("The routers on it, separated by commas, `*` for one that does not answer; empty if unknown.")
    state: PathState = column(
        "State by the last rounds of probes.",
        gauge(
            "xenoovs_path_state",
            "1 for the state of the path to a remote (good, bad, failed, unknown); the other states are absent.",
            lambda v: {v.state.value: 1},
            ("state",),
        ),
        shown=text("STATE", lambda state: state.value, style=lambda row: PATH_STYLES[row.value.state]),
    )
    blocks_cell = Column(of=lambda row: row.value.blocks, shown=number("BLOCKS"))
    excess_s: float | None = column(
        "Median delay of its answers behind the fastest path in the last rounds; null if unknown.",
        gauge(
            "xenoovs_path_excess_seconds",
            "Delay of a path's answers behind the fastest path, in the last nine rounds: median (0.5) and largest (1).",
            lambda v: {"0.5": v.excess_s, "1": v.worst_excess_s},
            ("quantile",),
        ),
        shown=number("EXCESS", span),
    )
    worst_excess_s: float | None = column(
        "Largest delay of its answers behind the fastest path in the last rounds; null if unknown.",
        shown=number("WORST", span, keep=2),
    )
    answer_s: float | None = column(
        "Round-trip time of its last answer; only the difference from other paths says something about the path.",
        gauge("xenoovs_path_answer_seconds"),
    )
    lost: float = column(
        "Fraction of its probes (0-1) without an answer in time since the agent started.",
        gauge("xenoovs_path_lost_ratio"),
        shown=number("LOST", percent),
    )
    blocks: int = column("Blocks of the host's packets on the path.", gauge("xenoovs_path_blocks"))
    restore_s: float = column("How long it has to be good until blocks return.")
    bytes: int | None = column(
        "Bytes of the host sent on the path; none before the first offload sample.",
        counter("xenoovs_path_bytes_total"),
        default=None,
    )
    bps: float | None = column(
        "Bits a second between the last two offload samples; null if not counted.",
        default=None,
        shown=number("BPS", quantity, keep=3),
    )
    port_cell = Column(of=lambda row: row.value.port, shown=number("PORT", keep=4))
    hops_cell = Column(of=lambda row: row.value.hops or "-", shown=text("HOPS", keep=1))


def _remote_state(row: Row[RemoteView]) -> str:
    """Return the worst state among the paths; `unknown` if the remote is not probed."""
    if row.value.problem:
        return PathState.UNKNOWN.value
    bad = (PathState.FAILED, PathState.BAD, PathState.UNKNOWN)
    return next((state for state in bad if row.value.paths_in(state)), PathState.GOOD).value


def _largest_excess(row: Row[RemoteView]) -> float | None:
    """Return the largest excess of a path that answers."""
    paths = (path for path in row.value.paths if path.state is not PathState.FAILED)
    return max((path.excess_s for path in paths if path.excess_s is not None), default=None)


def _last_move(row: Row[RemoteView]) -> str:
    remote = row.value
    ago = "" if remote.last_move_s is None else f"{duration(row.now_s - remote.last_move_s)} ago: "
    return f"{ago}{remote.last_move}" or "-"


@record
class RemoteView:
    """One remote of a tunnel, and the paths to it."""

    name: str = column("Tunnel and remote, such as `rack7/b`.", shown=text("REMOTE"))
    address: str = column("Address of its end of the tunnel.")
    paths: tuple[PathView, ...] = column("Its paths in the order of the config.")
    state_cell = Column(
        of=_remote_state, shown=text("STATE", style=lambda row: PATH_STYLES[PathState(_remote_state(row))])
    )
    good_cell = Column(
        of=lambda row: f"{len(row.value.paths_in(PathState.GOOD))}/{len(row.value.paths)}", shown=number("GOOD")
    )
    blocks_cell = Column(
        of=lambda row: "/".join(str(path.blocks) for path in row.value.paths) or "-", shown=text("BLOCKS")
    )
    excess_cell = Column(of=_largest_excess, shown=number("EXCESS", span, keep=3))
    is_unknown: bool = column(
        "Whether no path answers, so that its blocks stay.",
        gauge("xenoovs_remote_unknown", of=lambda v: v.is_unknown or bool(v.problem)),
    )
    rounds: int = column(
        "Rounds of probes to the remote, one probe on each path.", counter("xenoovs_probe_rounds_total")
    )
    interval_s: float = column(
        "Time between two rounds of probes; longer than configured if the budget of probes is used up.",
        gauge("xenoovs_probe_interval_seconds"),
    )
    margin_s: float = column("By how much a good path may be slower than the best one.")
    forged: int = column(
        "Answers that do not carry what was sent, or come from another address.",
        counter("xenoovs_remote_forged_answers_total"),
        default=0,
    )
    returned: int = column(
        "Packets of the host with the TOS of probes, which the remote sent back for that reason.",
        counter("xenoovs_remote_returned_packets_total"),
        default=0,
    )
    tos: int | None = column("Type of service of the last answer; null if there was none.", default=None)
    tos_sent: int = column("Type of service of the probes.", default=0)
    moves: Mapping[str, int] = column(
        "Blocks that moved since the agent started, by reason: failed, congested, lossy, restored, operator.",
        counter(
            "xenoovs_path_moves_total",
            of=lambda v: {reason.value: v.moves.get(reason.value, 0) for reason in MoveReason},
            labels=("reason",),
        ),
        factory=dict,
        shown=number("MOVES", lambda moves: str(sum(moves.values())), keep=2),
    )
    last_move: str = column("The last blocks that moved together, and why; empty if none did.", default="")
    last_move_s: float | None = column("When they moved; null if none.", default=None)
    last_move_cell = Column(of=_last_move, shown=text("LAST MOVE", keep=1))
    pinned: str = column("The only path that an operator lets carry traffic; empty if all may.", default="")
    problem: str = column("Why it is not probed now; empty if it is.", default="")

    def paths_in(self, state: PathState) -> tuple[str, ...]:
        return tuple(path.name for path in self.paths if path.state is state)


@record
class PathReason:
    """Why a path to a remote has its blocks."""

    name: str = column("Name of the path.")
    state: PathState = column("State by the last rounds of probes.")
    blocks: int = column("Number of its blocks.")
    home: int = column("Number of blocks that it has while all paths are good.")
    reason: str = column("Why it is in this state, a sentence.")
    departure: str = column(
        "The last blocks that left it, and why; empty if none did since the agent started.", default=""
    )
    departure_s: float | None = column("When they left, UTC; null if none did.", default=None)


@record
class BlockReason:
    """Why the packets of one block of the host take their path."""

    block: int = column("Number of their block: the low bits of their source port.")
    path: str = column("The path that the block is on.")
    home: str = column("The path that it has while all are good.")
    reason: str = column("Why it is there, a sentence.")
    moved_s: float | None = column("When it moved there, UTC; null if not since the agent started.", default=None)


@record
class PlannedMove:
    """Blocks that would move now."""

    remote: str = column("Name of the tunnel and the remote.")
    path: str = column("The path that they are on.")
    to: str = column("The path that they would move to.")
    blocks: int = column("How many.")
    reason: str = column("failed, congested, lossy, restored or operator.")
