"""What is wrong, in words and as one verdict: the same in `status`, in `top`, on the page and in metrics. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from xenoovs.agent.snapshot import BackendState, ServiceView, Snapshot
from xenoovs.display import decimal, duration, percent
from xenoovs.errors import counted, worded

_MAX_SERVICES = 5
"""Named one by one; further ones are counted."""
_MIN_SHARE = 1e-9
"""Less is a rounding error: the smallest block is 2**-16 of a service."""

Notice = tuple[str, str]
"""A sentence, and how bad it is: `bad`, `warn`, `note` or `good`."""


def unanswered(service: ServiceView) -> float:
    """Return the share of the clients, 0..1, that have no backend, or one that is down."""
    found = 1 - sum(backend.share for backend in service.backends if backend.state is not BackendState.DOWN)
    return found if found > _MIN_SHARE else 0.0


def is_as_desired(snapshot: Snapshot) -> bool:
    """Return whether the newest config is on the bridge, its ports are up, and all backends with clients answer."""
    return not any(how == "bad" for _, how in (*troubles(snapshot), headline(snapshot))) and not (
        snapshot.config_problem or snapshot.candidate or snapshot.pending_flow_mods or snapshot.last_round_s is None
    )


def headline(snapshot: Snapshot) -> Notice:
    """Return the state of the agent in a few words."""
    if snapshot.last_error:
        return "reconcile fails", "bad"
    if snapshot.last_round_s is None and not snapshot.pending_flow_mods:
        return "starting", "warn"
    if any(_ports_down(snapshot)):
        return "a port is down", "bad"
    if snapshot.problems:
        return "partly as configured", "bad"
    if snapshot.ports_problem:
        return "database unreachable", "bad"
    if any(map(unanswered, snapshot.services)):
        return "clients without a working backend", "bad"
    if snapshot.probes_late_s:
        return "health checks are late", "warn"
    if snapshot.is_paused:
        return "paused", "warn"
    if snapshot.config_problem:
        return "new config rejected", "warn"
    if snapshot.candidate:
        return "new config pending", "warn"
    if snapshot.confirm_by_s is not None:
        return "confirmation pending", "warn"
    return "as configured", "good"


def troubles(snapshot: Snapshot) -> Iterator[Notice]:
    """Yield what an operator has to know first, the worst first."""
    if snapshot.last_error:
        yield f"reconcile fails: {snapshot.last_error}", "bad"
    for problem in snapshot.problems:
        yield f"not as configured: {problem}", "bad"
    for port in _ports_down(snapshot):
        yield port, "bad"
    if snapshot.ports_problem:
        yield f"port and link state unavailable: {snapshot.ports_problem}", "bad"
    if snapshot.last_round_s is not None:
        yield from ((text, "bad") for text in _unanswered(snapshot))
    elif not (snapshot.last_error or snapshot.pending_flow_mods):
        yield "starting: the bridge has not been compared with the config yet", "warn"
    if snapshot.probes_late_s:
        late = duration(snapshot.probes_late_s)
        yield f"health checks are {late} late: backends that go down or come up are noticed that much later", "warn"
    yield from _about_config(snapshot)
    if snapshot.is_paused:
        count = snapshot.pending_flow_mods
        pending = f"; {counted(count, 'flow-mod')} {worded(count, 'is', 'are')} pending" if count else ""
        yield f"paused: nothing is changed until `xenoovs resume`{pending}", "warn"


def notices(snapshot: Snapshot) -> Iterator[Notice]:
    """Yield the troubles, and then what operators have changed and what is in progress."""
    yield from troubles(snapshot)
    for override in snapshot.overrides:
        state = f"weight {decimal(override.weight)}" if override.weight else "drained"
        yield (
            f"{override.service}/{override.backend}: {state} for {duration(snapshot.now_s - override.since_s)}, the "
            f"config says {decimal(override.configured)}; `xenoovs undrain {override.service} {override.backend}` "
            "reverts it",
            "note",
        )
    for service in snapshot.services:
        if service.draining:
            blocks = counted(service.draining, "block")
            yield f"{service.name}: open connections of {blocks} stay with their old backends", "note"


def _ports_down(snapshot: Snapshot) -> Iterator[str]:
    for port in snapshot.ports or ():
        if port.ofport is None:
            yield f"port {port.name} does not work: {port.error or 'it is not on the bridge'}"
        elif port.link_up is False:
            yield f"port {port.name} has no link"


def _unanswered(snapshot: Snapshot) -> Iterator[str]:
    found = [(service, share) for service in snapshot.services if (share := unanswered(service))]
    for service, share in found[:_MAX_SERVICES]:
        if share < 1:
            yield f"service {service.name}: {percent(share)} of its clients have a backend that does not answer"
        elif any(backend.share for backend in service.backends):
            yield f"service {service.name}: no backend answers; its clients stay where they are"
        else:
            yield f"service {service.name}: no backend has clients; its packets are dropped"
    left = len(found) - _MAX_SERVICES
    if left > 0:
        yield f"{left} more {worded(left, 'service has', 'services have')} clients whose backend does not answer"


def _about_config(snapshot: Snapshot) -> Iterator[Notice]:
    newest = f"config {snapshot.candidate}" if snapshot.candidate else "the newest config"
    if snapshot.config_problem:
        yield f"{newest} is rejected, {snapshot.config_digest} stays in use: {snapshot.config_problem}", "warn"
    elif snapshot.candidate:
        yield f"{newest} is pending, {snapshot.config_digest} is in use", "warn"
    if snapshot.confirm_by_s is not None:
        left, before = duration(snapshot.confirm_by_s - snapshot.now_s), snapshot.rolls_back_to or "the one before"
        yield (
            f"run `xenoovs confirm` within {left}, or config {snapshot.config_digest} is rolled back to {before}",
            "warn",
        )
