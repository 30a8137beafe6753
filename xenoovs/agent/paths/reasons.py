"""Why a path has the blocks that it has, in sentences."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from xenoovs.agent.paths.decide import MoveReason, Placement, limit_us
from xenoovs.agent.paths.remote import ProbedRemote
from xenoovs.agent.paths.views import problem_of
from xenoovs.display import span
from xenoovs.errors import counted
from xenoovs.show.paths import BlockReason, PathReason, PathState

if TYPE_CHECKING:
    from xenoovs.agent.paths.mover import Mover


def path_reasons(mover: Mover, remote: ProbedRemote) -> tuple[PathReason, ...]:
    """Return why each path is used as it is, in their order."""
    placement = mover.placement(remote)
    here, home = Counter[int](), Counter[int]()
    if placement is not None:
        here.update(placement.owners)
        home.update(placement.home)
    found = list[PathReason]()
    for index, path in enumerate(remote.paths):
        state = PathState.UNKNOWN if remote.record.is_silent else remote.verdict.paths[index].state
        departure = remote.departures.get(path.name)
        found.append(
            PathReason(
                name=path.name,
                state=state,
                blocks=here[index],
                home=home[index],
                reason="; ".join(filter(None, (_state_reason(mover, remote, index), _order(mover, placement, index)))),
                departure="" if departure is None else departure.text,
                departure_s=None if departure is None else departure.at_s,
            )
        )
    return tuple(found)


def block_reason(mover: Mover, remote: ProbedRemote, source_port: int) -> BlockReason | None:
    """Return why packets of the host with a source port take their path; None: the bridge has no blocks yet."""
    placement = mover.placement(remote)
    if placement is None:
        return None
    block = source_port % len(placement.owners)
    owner, home, names = placement.owners[block], placement.home[block], [path.name for path in remote.paths]
    moved = remote.shifted.get(block)
    if moved is not None:
        shift, at_s = moved
        reason = f"it came from {names[shift.old]}: {shift.reason.value}"
    else:
        at_s = None
        reason = "it is at home" if owner == home else "it was there when the agent started"
    return BlockReason(block, names[owner], names[home], reason, at_s)


def departure_text(remote: ProbedRemote, path: int, reason: MoveReason) -> str:
    """Return the figures by which blocks leave a path now; empty: none."""
    record = remote.record.paths[path]
    match reason:
        case MoveReason.FAILED:
            return f"{record.lost_in_row} probes in a row were lost"
        case MoveReason.CONGESTED:
            return f"its answers were {_late(remote, record.score)}"
        case MoveReason.RESTORED | MoveReason.OPERATOR:
            return ""


def _state_reason(mover: Mover, remote: ProbedRemote, index: int) -> str:
    """Return why a path is in its state."""
    if problem := problem_of(mover, remote):
        return problem
    record, verdict = remote.record.paths[index], remote.verdict.paths[index]
    if verdict.state is PathState.FAILED:
        return f"its last {counted(record.lost_in_row, 'probe')} got no answer, and another path answers"
    if record.score is None:
        return "there were too few rounds"
    text = f"its answers are {_late(remote, record.score)}"
    now_s = mover.agent.clock.now_s()
    if verdict.good_since_s is None or not verdict.is_waiting(now_s):
        return text
    return f"{text}; good for {span(now_s - verdict.good_since_s)}, and gets its blocks after {span(verdict.restore_s)}"


def _late(remote: ProbedRemote, score_us: float | None) -> str:
    score = "-" if score_us is None else span(score_us / 1e6)
    limit = limit_us(remote.record, margin_us=remote.tunnel.margin_us)
    return f"{score} later than the fastest, and {span(limit / 1e6)} is the limit"


def _order(mover: Mover, placement: Placement | None, index: int) -> str:
    """Return the override of an operator for a path; empty: there is none."""
    if mover.agent.state.runtime.are_moves_paused:
        return "moves are paused"
    return "" if placement is None or placement.usable[index] else "all blocks are pinned to another path"
