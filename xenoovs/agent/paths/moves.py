"""Where the blocks of a remote are on the bridge, and what is logged about them."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from xenoovs.agent.log import info, warn
from xenoovs.agent.paths.decide import BlockShift, MoveReason, Placement, RemoteVerdict
from xenoovs.agent.paths.reasons import departure_text
from xenoovs.agent.paths.remote import LastMove, ProbedRemote
from xenoovs.display import span
from xenoovs.errors import counted
from xenoovs.show.paths import PathState

if TYPE_CHECKING:
    from xenoovs.agent.daemon import Agent


def placement_of(agent: Agent, remote: ProbedRemote) -> Placement | None:
    """Return where the blocks of a remote are, or are about to be; None: the bridge has none yet, or others."""
    decided = agent.engine.decided
    if decided is None or not remote.paths:
        return None
    service, names = remote.service, [path.name for path in remote.paths]
    # Sorted by id; of a hundred remotes each asks twenty times a second.
    index = bisect_left(decided.services, (remote.service_id,), key=lambda pair: pair[:1])
    if index == len(decided.services) or decided.services[index][0] != remote.service_id:
        return None
    found = decided.services[index][1]
    owners, home = remote.owners(agent.state.placed.get(service.name, found.active)), remote.owners(found.home)
    if owners is None or home is None:
        return None
    pin = next((pin.path for pin in agent.state.runtime.pins if pin.remote == service.name), None)
    return Placement(owners, home, tuple(pin not in names or name == pin for name in names))


def describe_moves(remote: ProbedRemote, found: Sequence[BlockShift]) -> LastMove:
    """Log the blocks that leave paths together, and return all that move for people."""
    names, parts, now_s = [path.name for path in remote.paths], list[str](), time.time()
    remote.shifted |= {shift.block: (shift, now_s) for shift in found}
    for (old, reason), blocks in Counter((shift.old, shift.reason) for shift in found).items():
        targets = sorted({names[shift.new] for shift in found if (shift.old, shift.reason) == (old, reason)})
        if reason is not MoveReason.RESTORED:
            facts = {"blocks": blocks, "path": names[old], "to": ",".join(targets), "reason": reason.value}
            info("blocks moved", remote=remote.service.name, **facts)
        parts.append(f"{counted(blocks, 'block')} {names[old]} to {', '.join(targets)}: {reason.value}")
        figures = departure_text(remote, old, reason)
        text = f"{counted(blocks, 'block')} left to {', '.join(targets)}: {reason.value}"
        remote.departures[names[old]] = LastMove(f"{text} ({figures})" if figures else text, now_s)
    # They come back a few in each decision; one event is for all of them.
    remote.restored.update(names[shift.new] for shift in found if shift.reason is MoveReason.RESTORED)
    return LastMove("; ".join(parts), now_s)


def log_restored(remote: ProbedRemote) -> None:
    """Log the blocks that have come back, when no more do."""
    for path, blocks in remote.restored.items():
        info("blocks came back", remote=remote.service.name, path=path, blocks=blocks)
    remote.restored.clear()


def log_states(remote: ProbedRemote, before: RemoteVerdict, after: RemoteVerdict) -> bool:
    """Log paths whose state has changed. Return whether one has failed."""
    states = [path.state for path in after.paths]
    was_unknown = any(path.state is PathState.UNKNOWN for path in before.paths)
    name = remote.service.name
    if states and all(state is PathState.UNKNOWN for state in states):
        if not was_unknown:
            warn("remote does not answer; its blocks stay", remote=name, rounds=remote.record.silent_rounds)
        return False
    for path, old, new, record in zip(remote.paths, before.paths, after.paths, remote.record.paths, strict=True):
        if old.state is new.state:
            continue
        score = "-" if record.score is None else span(record.score / 1e6)
        if new.state is PathState.FAILED:
            warn("path failed", remote=name, path=path.name, lost_in_row=record.lost_in_row)
        elif new.state is PathState.BAD:
            warn("path is congested", remote=name, path=path.name, excess=score, margin=span(remote.margin_us / 1e6))
        elif new.state is PathState.GOOD:
            info("path is good", remote=name, path=path.name, excess=score, was=old.state.value)
    states_before = [path.state for path in before.paths]
    return any(new is PathState.FAILED and old is not new for old, new in zip(states_before, states, strict=True))
