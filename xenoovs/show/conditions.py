"""What is wrong, in words and as one verdict: the same in `status`, in `top`, on the page and in metrics. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from time import gmtime, strftime

from xenoovs.display import decimal, duration, percent
from xenoovs.errors import counted, first_names, worded
from xenoovs.show.agent import AnnouncementView, Override, ServiceView, Snapshot, hw_share
from xenoovs.show.paths import PathState

_MAX_SERVICES = _MAX_VIPS = 5
"""Named one by one; further ones are counted."""
_NEARLY_ALL = 0.99
_OLD_SAMPLE_S = 60
"""Of the packets. The first packet of each megaflow is handled by software."""

Notice = tuple[str, str]
"""A sentence, and how bad it is: `bad`, `warn`, `note` or `good`."""


def is_as_desired(snapshot: Snapshot) -> bool:
    """Return whether the newest config is on the bridge, its ports are up, and all backends with clients answer."""
    return (
        not any(how == "bad" for _, how in (*troubles(snapshot), headline(snapshot)))
        and not (
            snapshot.config_problem or snapshot.candidate or snapshot.pending_flow_mods or snapshot.last_round_s is None
        )
        and not any(_about_fleet(snapshot))
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
    if any(service.unanswered for service in snapshot.services):
        return "clients without a working backend", "bad"
    if any(service.on_backups for service in snapshot.services):
        return "clients at backups", "warn"
    if any(how == "bad" for _, how in _unannounced(snapshot)):
        return "VIPs are not announced", "bad"
    if snapshot.not_ready:
        return "not ready for clients", "warn"
    if any(_about_paths(snapshot)):
        return "paths are failed or unknown", "warn"
    if snapshot.probes_late_s:
        return "health checks are late", "warn"
    if any(_about_fleet(snapshot)):
        return "fleet is not followed", "warn"
    if snapshot.is_paused:
        return "paused", "warn"
    if snapshot.config_problem:
        return "new config rejected", "warn"
    if snapshot.candidate:
        return "new config pending", "warn"
    if snapshot.confirm_by_s is not None:
        return "confirmation pending", "warn"
    return "as configured", "good"


def hardware_share(snapshot: Snapshot) -> Notice | None:
    """Return the share of the packets in hardware, as a badge; None where it is not known."""
    rates = (backend.rate for service in snapshot.services for backend in service.backends)
    share = hw_share(rate for rate in rates if rate is not None)
    return None if share is None else (f"{percent(share)} in hardware", "good" if share >= _NEARLY_ALL else "warn")


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
    if snapshot.not_ready:
        is_said = bool(snapshot.last_error) and snapshot.last_error in snapshot.not_ready
        reason = "" if is_said else f": {snapshot.not_ready}"
        yield f"not ready for clients, so `GET /ready` answers 503{reason}", "warn"
    yield from _on_backups(snapshot)
    yield from _unannounced(snapshot)
    yield from _about_paths(snapshot)
    if snapshot.probes_late_s:
        late = duration(snapshot.probes_late_s)
        yield f"health checks are {late} late: backends that go down or come up are noticed that much later", "warn"
    yield from _about_fleet(snapshot)
    yield from _about_config(snapshot)
    if snapshot.is_paused:
        count = snapshot.pending_flow_mods
        pending = f"; {counted(count, 'flow-mod')} {worded(count, 'is', 'are')} pending" if count else ""
        yield f"paused: nothing is changed until `xenoovs resume`{pending}", "warn"


def notices(snapshot: Snapshot) -> Iterator[Notice]:
    """Yield the troubles, and then what operators have changed and what is in progress."""
    yield from troubles(snapshot)
    if shown := [view for view in snapshot.announcements if view.is_announced and not view.problem]:
        yield f"announced: {first_names([*map(_announced, shown)], most=_MAX_VIPS)}", "note"
    for service in snapshot.services:
        yield from ((text, "warn") for text in _about_agents(service))
    for override in snapshot.overrides:
        yield _override(override, snapshot.now_s), "note"
    if snapshot.are_moves_paused:
        yield "moves of blocks between paths are paused; `xenoovs paths resume` ends it", "note"
    for remote in snapshot.remotes:
        if remote.pinned:
            undo = f"`xenoovs paths unpin {remote.name}` reverts it"
            yield f"remote {remote.name}: pinned to {remote.pinned}; {undo}", "note"
    age_s = 0.0 if snapshot.sampled_s is None else snapshot.now_s - snapshot.sampled_s
    if age_s >= _OLD_SAMPLE_S:
        yield f"packets and rates are {duration(age_s)} old", "note"
    for service in snapshot.services:
        if service.draining:
            blocks = counted(service.draining, "block")
            yield f"{service.name}: open connections of {blocks} stay with their old backends", "note"


_AGENT_COMMAND = re.compile(r"`(xenoovs (?:confirm|paths|pause|reset|resume|top|undrain)\b[^`]*)`")


def addressed(text: str, options: str) -> str:
    """Return a text whose commands, in backquotes, reach the agent. `options`: those that they need, after a space."""
    return _AGENT_COMMAND.sub(lambda found: f"`{found[1]}{options}`", text)


def _about_agents(service: ServiceView) -> Iterator[str]:
    """Yield what is wrong with the agents of servers. They are beside the service: none of it is bad."""
    if service.agents_refused:
        yield f"{service.name}: the weights that its servers advertise are ignored: {service.agents_refused}"
    asked = [
        (backend.name, backend.agent) for backend in service.backends if backend.agent is not None and backend.weight
    ]
    silent = [(name, agent) for name, agent in asked if agent.problem]
    for name, agent in silent[:_MAX_SERVICES]:
        stays = f"its last reply {agent.reply!r} stays in effect" if agent.reply else "it has its weight of the config"
        yield f"{service.name}/{name}: the agent of its server does not reply: {agent.problem}; {stays}"
    if len(silent) > _MAX_SERVICES:
        yield f"{service.name}: agents of {len(silent) - _MAX_SERVICES} more servers do not reply"
    are_all = len(asked) == sum(1 for backend in service.backends if backend.weight)
    if asked and are_all and not any(agent.weight for _, agent in asked):
        yield f"{service.name}: all servers advertise drain or 0%, so their weights of the config are in use"


def _override(override: Override, now_s: float) -> str:
    name, since = f"{override.service}/{override.backend}", duration(now_s - override.since_s)
    left = "" if override.until_s is None else f", {duration(override.until_s - now_s)} left"
    if override.is_maintenance:
        return f"{name}: maintenance for {since}{left}; `xenoovs reset {name}` ends it"
    undo = f"`xenoovs {'reset' if override.weight else 'undrain'} {name}` reverts it"
    return f"{name}: {override.state} for {since}{left}, the config says {decimal(override.configured)}; {undo}"


def _ports_down(snapshot: Snapshot) -> Iterator[str]:
    for port in snapshot.ports or ():
        if port.ofport is None:
            yield f"port {port.name} does not work: {port.error or 'it is not on the bridge'}"
        elif port.link_up is False:
            yield f"port {port.name} has no link"


def _unanswered(snapshot: Snapshot) -> Iterator[str]:
    """Yield one sentence, however many services have clients without a working backend; the worst ones are named."""
    found = [(service, share) for service in snapshot.services if (share := service.unanswered)]
    if len(found) > 1:
        found.sort(key=lambda each: -each[1])
        names = [f"{service.name} ({_lost(service, share)})" for service, share in found]
        yield f"{len(found)} services have clients without a working backend: {first_names(names, most=_MAX_SERVICES)}"
        return
    for service, share in found:
        silent, stopped = _silent_or_stopped(service)
        if share < 1:
            why = "does not answer, or is down by its agent" if stopped else "does not answer"
            why = why if silent else "is down by its agent"
            yield f"service {service.name}: {percent(share)} of its clients have a backend that {why}"
        elif silent or stopped:
            why = "every backend is down, some by their agents" if stopped else "no backend answers"
            why = why if silent else "all servers advertise that they are down"
            yield f"service {service.name}: {why}; its clients stay where they are"
        else:
            yield f"service {service.name}: no backend has clients; its packets are dropped"


def _silent_or_stopped(service: ServiceView) -> tuple[bool, bool]:
    """Return whether backends with clients do not answer, and whether some do whose servers advertise to be down."""
    away = [backend.state.is_working for backend in service.backends if backend.share and not backend.is_working]
    return not all(away), any(away)


def _lost(service: ServiceView, share: float) -> str:
    is_dropped = share == 1 and not any(backend.share for backend in service.backends)
    return f"{percent(share)}, dropped" if is_dropped else percent(share)


def _on_backups(snapshot: Snapshot) -> Iterator[Notice]:
    found = [(service.name, names) for service in snapshot.services if (names := service.on_backups)]
    if len(found) > 1:
        services = first_names([f"{service} ({', '.join(names)})" for service, names in found], most=_MAX_SERVICES)
        yield f"{len(found)} services have all of their clients with backups: {services}", "warn"
        return
    for service, names in found:
        backups = f"{worded(len(names), 'backup', 'backups')} {', '.join(names)}"
        yield f"service {service}: no other backend serves, all of its clients are with {backups}", "warn"


def _unannounced(snapshot: Snapshot) -> Iterator[Notice]:
    vips = defaultdict[Notice, list[str]](list)
    for view in snapshot.announcements:
        if not view.is_announced:
            state = f"not announced: {view.problem}" if view.problem else f"withdrawn: {view.reason}"
            vips[state, "bad" if view.problem else "warn"].append(view.vip)
        elif view.problem:
            vips[view.problem, "warn" if view.peers is None else "bad"].append(view.vip)
    for (text, how), names in vips.items():
        yield f"{worded(len(names), 'VIP', 'VIPs')} {first_names(names, most=_MAX_VIPS)}: {text}", how


def _about_paths(snapshot: Snapshot) -> Iterator[Notice]:
    silent = [remote for remote in snapshot.remotes if remote.problem]
    for remote in silent[:_MAX_SERVICES]:
        yield f"remote {remote.name}: {remote.problem}; its blocks stay", "warn"
    if len(silent) > _MAX_SERVICES:
        yield f"{len(silent) - _MAX_SERVICES} more remotes do not answer; `xenoovs paths list` says why", "warn"
    for remote in [each for each in snapshot.remotes if each.returned][:_MAX_SERVICES]:
        came = f"{counted(remote.returned, 'packet')} of the host came back, because the host writes the TOS of probes"
        yield f"remote {remote.name}: {came}; choose another `tos` in the configs of both ends", "warn"
    failed = [(remote, paths) for remote in snapshot.remotes if (paths := remote.paths_in(PathState.FAILED))]
    if failed:
        names = [f"{remote.name} ({', '.join(paths)})" for remote, paths in failed]
        yield f"failed paths: {first_names(names, most=_MAX_SERVICES)}", "warn"


def _announced(view: AnnouncementView) -> str:
    return view.vip if view.peers is None else f"{view.vip} to {counted(view.peers, 'neighbor')}"


def _about_fleet(snapshot: Snapshot) -> Iterator[Notice]:
    fleet = snapshot.fleet
    if fleet is None:
        return
    stays = f"generation {fleet.generation} stays in use"
    if fleet.lost_since_s is not None:
        since = f"{strftime('%H:%M:%S', gmtime(fleet.lost_since_s))} UTC"
        lost = duration(snapshot.now_s - fleet.lost_since_s)
        yield f"store lost since {since} ({lost}): {fleet.problem}; {stays}", "warn"
    elif fleet.problem:
        yield f"the store is not followed: {fleet.problem}; {stays}", "warn"
    if fleet.report_problem:
        yield f"the fleet does not get the reports of this DPU: {fleet.report_problem}", "warn"


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
