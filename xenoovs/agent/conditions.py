"""What is wrong, in words and as one verdict: the same in `status`, in `top`, on the page and in metrics. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from xenoovs.agent.snapshot import BackendState, ServiceView, Snapshot
from xenoovs.display import duration, percent


def keeping(blocks: int) -> str:
    """What a drain does for so many blocks."""
    return "1 block keeps open connections" if blocks == 1 else f"{blocks} blocks keep open connections"


# What is wrong, in words and as one verdict: the same in `status`, in `top`, on the page and in metrics. Pure.


_MOST_SERVICES = 5
"""Named one by one; of more their number is told."""
_LEAST_SHARE = 1e-9
"""Less is a rounding error: the smallest block is 2**-16 of a service."""

Told = tuple[str, str]
"""Words, and how bad it is: `bad`, `warn` or `good`."""


def unanswered(service: ServiceView) -> float:
    """Share of the clients, 0..1, that lead to no backend, or to one that its probes find down."""
    found = 1 - sum(one.share_installed for one in service.backends if one.state is not BackendState.DOWN)
    return found if found > _LEAST_SHARE else 0.0


def is_as_desired(snapshot: Snapshot) -> bool:
    """Whether the newest config is on the bridge, its ports are told of, and its clients have backends that answer."""
    return not any(how == "bad" for _, how in (*troubles(snapshot), headline(snapshot))) and not (
        snapshot.config_problem or snapshot.candidate or snapshot.held or snapshot.last_round_s is None
    )


def headline(snapshot: Snapshot) -> Told:
    """All of it in a few words."""
    if snapshot.last_error:
        return "cannot be made right", "bad"
    if snapshot.last_round_s is None and not snapshot.held:
        return "starting", "warn"
    if any(_is_dead(snapshot)):
        return "a port is down", "bad"
    if snapshot.problems:
        return "partly as configured", "bad"
    if snapshot.ports_problem:
        return "the database is away", "bad"
    if any(map(unanswered, snapshot.services)):
        return "clients without an answer", "bad"
    if snapshot.is_paused:
        return "paused", "warn"
    if snapshot.config_problem:
        return "bad config, last good one in use", "warn"
    if snapshot.candidate:
        return "new config not in use yet", "warn"
    if snapshot.confirm_by_s is not None:
        return "waits to be confirmed", "warn"
    return "as configured", "good"


def troubles(snapshot: Snapshot) -> Iterator[Told]:
    """What somebody should know before anything else, worst first, each with how bad it is."""
    if snapshot.last_error:
        yield f"the bridge is not right: {snapshot.last_error}", "bad"
    for problem in snapshot.problems:
        yield f"not as configured: {problem}", "bad"
    for told in _is_dead(snapshot):
        yield told, "bad"
    if snapshot.ports_problem:
        yield f"nobody tells of ports and links: {snapshot.ports_problem}", "bad"
    if snapshot.last_round_s is not None:
        yield from ((told, "bad") for told in _unanswered(snapshot))
    elif not (snapshot.last_error or snapshot.held):
        yield "starting: the bridge has not been compared with the config yet", "warn"
    yield from _about_config(snapshot)
    if snapshot.is_paused:
        held = f"; {snapshot.held} flow-mods are held back" if snapshot.held else ""
        yield f"paused: nothing is changed until `xenoovs resume`{held}", "warn"


def _is_dead(snapshot: Snapshot) -> Iterator[str]:
    for port in snapshot.ports or ():
        if port.ofport is None:
            yield f"port {port.name} does not work: {port.error or 'it is not on the bridge'}"
        elif port.link_up is False:
            yield f"port {port.name} has no link"


def _unanswered(snapshot: Snapshot) -> Iterator[str]:
    found = [(service, share) for service in snapshot.services if (share := unanswered(service))]
    for service, share in found[:_MOST_SERVICES]:
        if share < 1:
            yield f"service {service.name}: {percent(share)} of its clients have a backend that does not answer"
        elif any(one.share_installed for one in service.backends):
            yield f"service {service.name}: no backend answers; its clients keep those that they have"
        else:
            yield f"service {service.name}: no backend has clients; its packets are dropped"
    left = len(found) - _MOST_SERVICES
    if left > 0:
        yield f"{left} more {'service has' if left == 1 else 'services have'} clients that nobody answers"


def _about_config(snapshot: Snapshot) -> Iterator[Told]:
    named = f"config {snapshot.candidate}" if snapshot.candidate else "the newest config"
    if snapshot.config_problem:
        yield f"{named} is not in use, {snapshot.config_digest} is: {snapshot.config_problem}", "warn"
    elif snapshot.candidate:
        yield f"{named} waits to be tried on the bridge; {snapshot.config_digest} is in use", "warn"
    if snapshot.confirm_by_s is not None:
        left, back = duration(snapshot.confirm_by_s - snapshot.now_s), snapshot.goes_back_to or "the one before"
        yield f"config {snapshot.config_digest} goes back to {back} in {left} unless `xenoovs confirm` comes", "warn"
