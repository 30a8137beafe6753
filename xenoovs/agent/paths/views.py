"""The views of an agent's remotes and paths for operators, and the reasons of their states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from xenoovs.agent.paths.decide import PathVerdict, Placement
from xenoovs.agent.paths.mover import Mover
from xenoovs.agent.paths.remote import NO_MOVE, ProbedPath, ProbedRemote
from xenoovs.agent.paths.score import PathRecord
from xenoovs.agent.state import OffloadSample
from xenoovs.display import span
from xenoovs.errors import counted
from xenoovs.show.paths import BlockReason, PathReason, PathState, PathView, PlannedMove, RemoteView


def remote_views(mover: Mover) -> tuple[RemoteView, ...]:
    """Return the remotes in the order of the config; within the event loop of the agent."""
    return tuple(_remote(mover, remote) for remote in mover.remotes.values())


def _remote(mover: Mover, remote: ProbedRemote) -> RemoteView:
    placement, name, (last_move, last_move_s) = mover.placement(remote), remote.service.name, remote.last_move
    blocks = Counter(() if placement is None else placement.owners)
    each_path = zip(remote.paths, remote.record.paths, remote.verdict.paths, strict=True)
    tos, tos_sent = remote.rounds.tos or (None, remote.way_back_tos)
    return RemoteView(
        name=name,
        address=str(remote.remote.address),
        paths=tuple(_path(remote, *parts, blocks[index], mover.state.offload) for index, parts in enumerate(each_path)),
        is_unknown=remote.record.is_silent,
        rounds=remote.record.rounds,
        interval_s=mover.interval_s(remote),
        margin_s=remote.margin_us / 1e6,
        forged=remote.rounds.forged,
        returned=remote.returned,
        tos=tos,
        tos_sent=tos_sent,
        moves=dict(remote.moves),
        last_move=last_move,
        last_move_s=last_move_s,
        pinned=mover.state.runtime.pins.get(name, ""),
        problem=problem_of(mover, remote),
    )


def _path(
    remote: ProbedRemote, path: ProbedPath, record: PathRecord, verdict: PathVerdict, blocks: int, sample: OffloadSample
) -> PathView:
    name = remote.service.name, path.name
    traffic, counted, rate = sample.traffic.get(name), sample.counted.get(name), sample.rates.get(name)
    sent = None if counted is None else counted.bytes
    return PathView(
        name=path.name,
        port=path.source_port,
        hops=remote.hops.get(path.source_port, ""),
        state=verdict.state,
        excess_s=_seconds(record.score),
        worst_excess_s=_seconds(record.worst),
        answer_s=_seconds(record.answer_us),
        lost=record.lost / max(1, record.lost + record.answers),
        blocks=blocks,
        restore_s=verdict.restore_s,
        bytes=sent if traffic is None else traffic.hw_bytes + traffic.sw_bytes,
        bps=None if rate is None else rate.bps,
    )


def _seconds(microseconds: float | None) -> float | None:
    return None if microseconds is None else microseconds / 1e6


def problem_of(mover: Mover, remote: ProbedRemote) -> str:
    """Return why a remote is not probed, or does not answer; empty if it does."""
    device = remote.probe.port
    if device in mover.devices.problems:
        return f"port {device} does not work: {mover.devices.problems[device]}; add it, or `ip link set {device} up`"
    if mover.gateway(remote) is None:
        return (
            f"the MAC of the next hop is not known: the host behind {remote.tunnel.host_port} has sent nothing to "
            f"{remote.remote.address} yet; set `probe: {{gateway: MAC}}`"
        )
    if not remote.paths:
        return "its paths are not known yet"
    if remote.record.is_silent:
        return "no path answers: the remote has no reflector (run an agent there), or all ways back are dead"
    return ""


def planned_moves(mover: Mover) -> Iterator[PlannedMove]:
    """Yield the moves of the next decision, summed by remote, path, target and reason."""
    for remote in mover.remotes.values():
        placement = mover.placement(remote)
        if placement is None:
            continue
        names = [path.name for path in remote.paths]
        found = remote.planned(placement, now_s=mover.now_s)
        for (old, new, reason), blocks in Counter((each.old, each.new, each.reason) for each in found).items():
            yield PlannedMove(remote.service.name, names[old], names[new], blocks, reason.value)


# Reasons for the blocks of a path, in sentences.


def path_reasons(mover: Mover, remote: ProbedRemote) -> tuple[PathReason, ...]:
    """Return state, blocks and reason of each path, in order."""
    placement = mover.placement(remote)
    here, home = Counter[int](), Counter[int]()
    if placement is not None:
        here.update(placement.owners)
        home.update(placement.home)
    found = list[PathReason]()
    for index, path in enumerate(remote.paths):
        departure, departure_s = remote.departures.get(path.name, NO_MOVE)
        found.append(
            PathReason(
                name=path.name,
                state=remote.verdict.paths[index].state,
                blocks=here[index],
                home=home[index],
                reason="; ".join(filter(None, (_state_reason(mover, remote, index), _order(mover, placement, index)))),
                departure=departure,
                departure_s=departure_s,
            )
        )
    return tuple(found)


def block_reason(mover: Mover, remote: ProbedRemote, source_port: int) -> BlockReason | None:
    """Return why packets of the host with a source port take their path; None if the bridge has no blocks yet."""
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


def _state_reason(mover: Mover, remote: ProbedRemote, index: int) -> str:
    if problem := problem_of(mover, remote):
        return problem
    record, verdict = remote.record.paths[index], remote.verdict.paths[index]
    if verdict.state is PathState.FAILED:
        return f"its last {counted(record.lost_in_row, 'probe')} got no answer, and another path answers"
    if verdict.is_lossy:
        return f"{remote.lost_text(index)} got no answer, more than on other paths"
    if record.score is None:
        return "there were too few rounds"
    text = f"its answers are {remote.late_text(record.score)}"
    now_s = mover.now_s
    if verdict.good_since_s is None or not verdict.is_waiting(now_s):
        return text
    return f"{text}; good for {span(now_s - verdict.good_since_s)}, and gets its blocks after {span(verdict.restore_s)}"


def _order(mover: Mover, placement: Placement | None, index: int) -> str:
    """Return the override of an operator for a path; empty if there is none."""
    if mover.state.runtime.are_moves_paused:
        return "moves are paused"
    return "" if placement is None or placement.usable[index] else "all blocks are pinned to another path"
