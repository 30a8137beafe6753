"""What operators see of the remotes and paths of an agent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from xenoovs.agent.offload import OffloadSample
from xenoovs.agent.paths.remote import ProbedRemote
from xenoovs.show.paths import PathState, PathView, PlannedMove, RemoteView

if TYPE_CHECKING:
    from xenoovs.agent.paths.mover import Mover


def remote_views(mover: Mover) -> tuple[RemoteView, ...]:
    """Return the remotes in the order of the config; within the event loop of the agent."""
    return tuple(_remote(mover, remote) for remote in mover.remotes.values())


def _remote(mover: Mover, remote: ProbedRemote) -> RemoteView:
    placement, last = mover.placement(remote), remote.last_move
    blocks = Counter(() if placement is None else placement.owners)
    sample = mover.agent.offload or OffloadSample()
    pins = mover.agent.state.runtime.pins
    came, sent = remote.rounds.tos or (None, remote.way_back.tos)
    return RemoteView(
        name=remote.service.name,
        address=str(remote.remote.address),
        paths=tuple(_path(remote, index, blocks[index], sample) for index in range(len(remote.paths))),
        is_unknown=remote.record.is_silent,
        rounds=remote.record.rounds,
        interval_s=mover.interval_s(remote),
        margin_s=remote.margin_us / 1e6,
        forged=remote.rounds.forged,
        returned=remote.returned,
        tos=came,
        tos_sent=sent,
        moves=dict(remote.moves),
        last_move="" if last is None else last.text,
        last_move_s=None if last is None else last.at_s,
        pinned=next((pin.path for pin in pins if pin.remote == remote.service.name), ""),
        problem=problem_of(mover, remote),
    )


def problem_of(mover: Mover, remote: ProbedRemote) -> str:
    """Return why a remote is not probed, or does not answer; empty: it does."""
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


def _path(remote: ProbedRemote, index: int, blocks: int, sample: OffloadSample) -> PathView:
    path, record, verdict = remote.paths[index], remote.record.paths[index], remote.verdict.paths[index]
    name = remote.service.name, path.name
    traffic, counted, rate = sample.traffic.get(name), sample.counted.get(name), sample.rates.get(name)
    sent = None if counted is None else counted.bytes
    return PathView(
        name=path.name,
        port=path.source_port,
        hops=remote.hops.get(path.source_port, ""),
        state=PathState.UNKNOWN if remote.record.is_silent else verdict.state,
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


def planned_moves(mover: Mover) -> Iterator[PlannedMove]:
    """Yield the blocks that the next decision would move, for each remote, path, target and reason together."""
    for remote in mover.remotes.values():
        placement = mover.placement(remote)
        if placement is None:
            continue
        names = [path.name for path in remote.paths]
        found = remote.planned(placement, now_s=mover.agent.clock.now_s())
        for (old, new, reason), blocks in Counter((each.old, each.new, each.reason) for each in found).items():
            yield PlannedMove(remote.service.name, names[old], names[new], blocks, reason.value)
