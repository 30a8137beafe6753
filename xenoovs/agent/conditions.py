"""The conditions of a bridge, as sentences and as one verdict, for `status`, `top`, the page and metrics. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from xenoovs.agent.snapshot import BackendState, ServiceView, Snapshot
from xenoovs.display import duration, percent

_MAX_SERVICES = 5
"""How many services are named; of more only the number."""
_LEAST_SHARE = 1e-9
"""Less is a rounding error: the smallest block is 2**-16 of a service."""

Condition = tuple[str, str]
"""A text and its severity: `bad`, `warn` or `good`."""


def keeping(blocks: int) -> str:
    """Return what a drain does for so many blocks."""
    return "1 block keeps open connections" if blocks == 1 else f"{blocks} blocks keep open connections"


def unanswered(service: ServiceView) -> float:
    """Return the share of clients, 0..1, without a backend, or with one that health checks find down."""
    share = 1 - sum(each.share_installed for each in service.backends if each.state is not BackendState.DOWN)
    return share if share > _LEAST_SHARE else 0.0


def is_as_desired(snapshot: Snapshot) -> bool:
    """Return whether the newest config is on the bridge, the state of ports is known, and all clients are answered."""
    return not any(severity == "bad" for _, severity in (*troubles(snapshot), headline(snapshot))) and not (
        snapshot.config_problem or snapshot.candidate or snapshot.held or snapshot.last_round_s is None
    )


def headline(snapshot: Snapshot) -> Condition:
    """Return the most important condition in a few words."""
    if snapshot.last_error:
        return "reconcile fails", "bad"
    if snapshot.last_round_s is None and not snapshot.held:
        return "starting", "warn"
    if any(_port_troubles(snapshot)):
        return "a port is down", "bad"
    if snapshot.problems:
        return "partly as configured", "bad"
    if snapshot.ports_problem:
        return "database unreachable", "bad"
    if any(map(unanswered, snapshot.services)):
        return "clients without an answer", "bad"
    if snapshot.probes_late_s:
        return "health checks are late", "warn"
    if snapshot.is_paused:
        return "paused", "warn"
    if snapshot.config_problem:
        return "bad config, last good one in use", "warn"
    if snapshot.candidate:
        return "new config not in use yet", "warn"
    if snapshot.confirm_by_s is not None:
        return "confirmation pending", "warn"
    return "as configured", "good"


def troubles(snapshot: Snapshot) -> Iterator[Condition]:
    """Yield what an operator should know first, worst first."""
    if snapshot.last_error:
        yield f"reconcile fails: {snapshot.last_error}", "bad"
    for problem in snapshot.problems:
        yield f"not as configured: {problem}", "bad"
    for trouble in _port_troubles(snapshot):
        yield trouble, "bad"
    if snapshot.ports_problem:
        yield f"port and link state unavailable: {snapshot.ports_problem}", "bad"
    if snapshot.last_round_s is not None:
        yield from ((trouble, "bad") for trouble in _unanswered(snapshot))
    elif not (snapshot.last_error or snapshot.held):
        yield "starting: the bridge has not been compared with the config yet", "warn"
    if snapshot.probes_late_s:
        late = duration(snapshot.probes_late_s)
        yield f"health checks are {late} late: backends that go down or come up are noticed so much later", "warn"
    yield from _config_troubles(snapshot)
    if snapshot.is_paused:
        held = f"; {snapshot.held} flow-mods are held back" if snapshot.held else ""
        yield f"paused: nothing is changed until `xenoovs resume`{held}", "warn"


def _port_troubles(snapshot: Snapshot) -> Iterator[str]:
    for port in snapshot.ports or ():
        if port.ofport is None:
            yield f"port {port.name} does not work: {port.error or 'it is not on the bridge'}"
        elif port.link_up is False:
            yield f"port {port.name} has no link"


def _unanswered(snapshot: Snapshot) -> Iterator[str]:
    shares = [(service, share) for service in snapshot.services if (share := unanswered(service))]
    for service, share in shares[:_MAX_SERVICES]:
        if share < 1:
            yield f"service {service.name}: {percent(share)} of its clients have a backend that does not answer"
        elif any(each.share_installed for each in service.backends):
            yield f"service {service.name}: no backend answers; clients stay with their backends"
        else:
            yield f"service {service.name}: no backend has clients; its packets are dropped"
    left = len(shares) - _MAX_SERVICES
    if left > 0:
        yield f"{left} more {'service has' if left == 1 else 'services have'} clients without an answer"


def _config_troubles(snapshot: Snapshot) -> Iterator[Condition]:
    named = f"config {snapshot.candidate}" if snapshot.candidate else "the newest config"
    if snapshot.config_problem:
        yield f"{named} is not in use, {snapshot.config_digest} is: {snapshot.config_problem}", "warn"
    elif snapshot.candidate:
        yield f"{named} waits to be tried on the bridge; {snapshot.config_digest} is in use", "warn"
    if snapshot.confirm_by_s is not None:
        left, back = duration(snapshot.confirm_by_s - snapshot.now_s), snapshot.goes_back_to or "the one before"
        yield f"config {snapshot.config_digest} goes back to {back} in {left} unless `xenoovs confirm` comes", "warn"
