"""What is wrong in a snapshot, in sentences and as one verdict, for `status`, `top`, the page and metrics. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from time import gmtime, strftime

from xenoovs.display import decimal, duration, percent
from xenoovs.errors import counted, first_names, worded
from xenoovs.regex import regex
from xenoovs.show.paths import PathState
from xenoovs.show.snapshot import AnnouncementView, BackendState, Override, ServiceView, Snapshot, hw_share

_MAX_SERVICES = _MAX_VIPS = 5
"""Most that are named; further ones are only counted."""
_OLD_SAMPLE_S = 60
_NEARLY_ALL = 0.99
"""Share of the packets: software handles the first packet of each megaflow."""

Notice = tuple[str, str]
"""A sentence, and how bad it is: `bad`, `warn`, `note` or `good`."""


def is_as_desired(snapshot: Snapshot) -> bool:
    """Return whether the newest config is on the bridge, its ports are up, and all backends with clients answer."""
    return (
        not any(how == "bad" for _, how in troubles(snapshot))
        and not (
            snapshot.config_problem or snapshot.candidate or snapshot.pending_flow_mods or snapshot.last_round_s is None
        )
        and not any(_about_fleet(snapshot))
    )


def headline(snapshot: Snapshot) -> Notice:
    """Return the agent's state in a few words: the first bad condition, otherwise the first one that holds."""
    found = [(title, how) for title, how, texts in _CONDITIONS if title and any(texts(snapshot))]
    return next((each for each in found if each[1] == "bad"), found[0] if found else ("as configured", "good"))


def troubles(snapshot: Snapshot) -> Iterator[Notice]:
    """Yield the conditions that hold, the worst first."""
    return ((text, how) for _, how, texts in _CONDITIONS for text in texts(snapshot))


def hardware_share(snapshot: Snapshot) -> Notice | None:
    """Return the share of the packets in hardware, as a badge; None if it is unknown."""
    share = hw_share(backend.rate for backend in snapshot.backends if backend.rate is not None)
    return None if share is None else (f"{percent(share)} in hardware", "good" if share >= _NEARLY_ALL else "warn")


def notices(snapshot: Snapshot) -> Iterator[Notice]:
    """Yield the conditions that hold, then what operators have changed and what is in progress."""
    yield from troubles(snapshot)
    if shown := [view for view in snapshot.announcements if view.is_announced and not view.problem]:
        yield f"announced: {first_names([*map(_announced, shown)], most=_MAX_VIPS)}", "note"
    for service in snapshot.services:
        yield from ((text, "warn") for text in _about_agents(service))
    for override in snapshot.overrides:
        yield _override(override, snapshot.now_s), "note"
    if snapshot.are_moves_paused:
        yield "moves of blocks between paths are paused; `xenoovs pause --paths --end` ends it", "note"
    for remote in snapshot.remotes:
        if remote.pinned:
            undo = f"`xenoovs paths pin {remote.name} --end` reverts it"
            yield f"remote {remote.name}: pinned to {remote.pinned}; {undo}", "note"
    age_s = 0.0 if snapshot.sampled_s is None else snapshot.now_s - snapshot.sampled_s
    if age_s >= _OLD_SAMPLE_S:
        yield f"packets and rates are {duration(age_s)} old", "note"
    for service in snapshot.services:
        if service.draining:
            blocks = counted(service.draining, "block")
            yield f"{service.name}: open connections of {blocks} stay with their old backends", "note"


_AGENT_COMMAND = regex(r"`(xenoovs (?:confirm|paths|pause|reset|top)\b[^`]*)`")


def addressed(text: str, options: str) -> str:
    """Return a text with `options`, which begin with a space, added to its commands in backquotes for the agent."""
    return _AGENT_COMMAND.sub(lambda found: f"`{found[1]}{options}`", text)


def _about_agents(service: ServiceView) -> Iterator[str]:
    """Yield what is wrong with the agents of servers. It is no more than a warning: the service works without them."""
    if service.agents_refused:
        yield f"{service.name}: the weights that its servers advertise are ignored: {service.agents_refused}"
    asked = [
        (backend.name, backend.agent) for backend in service.backends if backend.agent is not None and backend.weight
    ]
    silent = [(name, agent) for name, agent in asked if agent.problem]
    for name, agent in silent[:_MAX_SERVICES]:
        stays = f"its last reply {agent.reply!r} stays in effect" if agent.reply else "its configured weight is in use"
        yield f"{service.name}/{name}: the agent of its server does not reply: {agent.problem}; {stays}"
    if len(silent) > _MAX_SERVICES:
        yield f"{service.name}: agents of {len(silent) - _MAX_SERVICES} more servers do not reply"
    are_all = len(asked) == sum(1 for backend in service.backends if backend.weight)
    if asked and are_all and not any(agent.weight for _, agent in asked):
        yield f"{service.name}: all servers advertise drain or 0%, so their configured weights are in use"


def _override(override: Override, now_s: float) -> str:
    name, since = f"{override.service}/{override.backend}", duration(now_s - override.since_s)
    left = "" if override.until_s is None else f", {duration(override.until_s - now_s)} left"
    if override.is_maintenance:
        return f"{name}: maintenance for {since}{left}; `xenoovs reset {name}` ends it"
    undo = f"`xenoovs reset {name}` reverts it"
    return f"{name}: {override.state} for {since}{left}, the config says {decimal(override.configured)}; {undo}"


# Conditions.


def _unanswered(snapshot: Snapshot) -> Iterator[str]:
    """Yield one sentence about all services that have clients without a working backend; it names the worst ones."""
    found = [(service, share) for service in snapshot.services if (share := service.unanswered)]
    if len(found) > 1:
        found.sort(key=lambda each: -each[1])
        names = [f"{service.name} ({_lost(service, share)})" for service, share in found]
        yield f"{len(found)} services have clients without a working backend: {first_names(names, most=_MAX_SERVICES)}"
        return
    for service, share in found:
        silent, stopped = _silent_or_stopped(service)
        if share < 1:
            why = "does not answer, or is reported down by its agent" if stopped else "does not answer"
            why = why if silent else "is reported down by its agent"
            yield f"service {service.name}: {percent(share)} of its clients have a backend that {why}"
        elif silent or stopped:
            why = "every backend is down, some by their agents" if stopped else "no backend answers"
            why = why if silent else "all servers advertise that they are down"
            yield f"service {service.name}: {why}; its clients stay where they are"
        else:
            yield f"service {service.name}: no backend has clients; its packets are dropped"


def _silent_or_stopped(service: ServiceView) -> tuple[bool, bool]:
    """Return whether a backend with clients does not answer, and whether one is down only by its agent."""
    away = [backend.state.is_working for backend in service.backends if backend.share and not backend.is_working]
    return not all(away), any(away)


def _lost(service: ServiceView, share: float) -> str:
    is_dropped = share == 1 and not any(backend.share for backend in service.backends)
    return f"{percent(share)}, dropped" if is_dropped else percent(share)


def _on_backups(snapshot: Snapshot) -> Iterator[str]:
    found = [(service.name, names) for service in snapshot.services if (names := service.on_backups)]
    if len(found) > 1:
        services = first_names([f"{service} ({', '.join(names)})" for service, names in found], most=_MAX_SERVICES)
        yield f"{len(found)} services have all of their clients with backups: {services}"
        return
    for service, names in found:
        backups = f"{worded(len(names), 'backup', 'backups')} {', '.join(names)}"
        yield f"service {service}: no other backend serves, all of its clients are with {backups}"


def _down(snapshot: Snapshot) -> Iterator[str]:
    """Yield the backends that are down while others serve their clients."""
    found = [
        f"{service.name}/{backend.name}"
        for service in snapshot.services
        if not (service.unanswered or service.on_backups)
        for backend in service.backends
        if backend.is_ejected and backend.state is BackendState.DOWN
    ]
    if found:
        names = first_names(found, most=_MAX_SERVICES)
        yield f"{counted(len(found), 'backend')} down, others serve the clients: {names}"


def _unannounced(snapshot: Snapshot, *, is_bad: bool) -> Iterator[str]:
    vips = defaultdict[str, list[str]](list)
    for view in snapshot.announcements:
        is_failing = bool(view.problem) and not (view.is_announced and view.peers is None)
        if is_failing is not is_bad or (view.is_announced and not view.problem):
            continue
        state = f"not announced: {view.problem}" if view.problem else f"withdrawn: {view.reason}"
        vips[view.problem if view.is_announced else state].append(view.vip)
    for text, names in vips.items():
        yield f"{worded(len(names), 'VIP', 'VIPs')} {first_names(names, most=_MAX_VIPS)}: {text}"


def _about_paths(snapshot: Snapshot) -> Iterator[str]:
    silent = [remote for remote in snapshot.remotes if remote.problem]
    for remote in silent[:_MAX_SERVICES]:
        yield f"remote {remote.name}: {remote.problem}; its blocks stay"
    if len(silent) > _MAX_SERVICES:
        yield f"{len(silent) - _MAX_SERVICES} more remotes do not answer; `xenoovs paths list` says why"
    for remote in [each for each in snapshot.remotes if each.returned][:_MAX_SERVICES]:
        came = f"{counted(remote.returned, 'packet')} of the host came back, because the host writes the TOS of probes"
        yield f"remote {remote.name}: {came}; choose another `tos` in the configs of both ends"
    failed = [(remote, paths) for remote in snapshot.remotes if (paths := remote.paths_in(PathState.FAILED))]
    if failed:
        names = [f"{remote.name} ({', '.join(paths)})" for remote, paths in failed]
        yield f"failed paths: {first_names(names, most=_MAX_SERVICES)}"


def _announced(view: AnnouncementView) -> str:
    return view.vip if view.peers is None else f"{view.vip} to {counted(view.peers, 'neighbor')}"


def _about_fleet(snapshot: Snapshot) -> Iterator[str]:
    fleet = snapshot.fleet
    if fleet is None:
        return
    stays = f"generation {fleet.generation} stays in use"
    if fleet.lost_since_s is not None:
        since = f"{strftime('%H:%M:%S', gmtime(fleet.lost_since_s))} UTC"
        lost = duration(snapshot.now_s - fleet.lost_since_s)
        yield f"store lost since {since} ({lost}): {fleet.problem}; {stays}"
    elif fleet.problem:
        yield f"the store is not followed: {fleet.problem}; {stays}"
    if fleet.report_problem:
        yield f"the fleet does not get the reports of this DPU: {fleet.report_problem}"


def _not_ready(snapshot: Snapshot) -> Iterator[str]:
    if snapshot.not_ready:
        is_said = bool(snapshot.last_error) and snapshot.last_error in snapshot.not_ready
        yield f"not ready for clients, so `GET /ready` answers 503{'' if is_said else f': {snapshot.not_ready}'}"


def _about_config(snapshot: Snapshot) -> Iterator[str]:
    newest = f"config {snapshot.candidate}" if snapshot.candidate else "the newest config"
    if snapshot.config_problem:
        yield f"{newest} is rejected, {snapshot.config_digest} stays in use: {snapshot.config_problem}"
    elif snapshot.candidate:
        yield f"{newest} is pending, {snapshot.config_digest} is in use"


def _unconfirmed(snapshot: Snapshot) -> Iterator[str]:
    if snapshot.confirm_by_s is not None:
        left, before = duration(snapshot.confirm_by_s - snapshot.now_s), snapshot.rolls_back_to or "the one before"
        yield f"run `xenoovs confirm` within {left}, or config {snapshot.config_digest} is rolled back to {before}"


def _paused(snapshot: Snapshot) -> Iterator[str]:
    if snapshot.is_paused:
        count = snapshot.pending_flow_mods
        pending = f"; {counted(count, 'flow-mod')} {worded(count, 'is', 'are')} pending" if count else ""
        yield f"paused: nothing is changed until `xenoovs pause --end`{pending}"


def _moved(snapshot: Snapshot, *, is_dropped: bool) -> Iterator[str]:
    for move in snapshot.moved_by_switch:
        if is_dropped is not bool(move.to):
            yield move.text + ("" if move.since_s is None else f", for {duration(snapshot.now_s - move.since_s)}")


def _if(condition: object, text: str) -> tuple[str, ...]:
    return (text,) if condition else ()


def _is_starting(snapshot: Snapshot) -> bool:
    return snapshot.last_round_s is None and not (snapshot.last_error or snapshot.pending_flow_mods)


_LATE = "health checks are {} late: backends that go down or come up are noticed that much later"
_CONDITIONS: tuple[tuple[str, str, Callable[[Snapshot], Iterable[str]]], ...] = (
    ("reconcile fails", "bad", lambda s: _if(s.last_error, f"reconcile fails: {s.last_error}")),
    ("partly as configured", "bad", lambda s: (f"not as configured: {problem}" for problem in s.problems)),
    ("a port is down", "bad", lambda s: (port.problem for port in s.ports or () if port.problem)),
    ("groups without a live port", "bad", lambda s: _moved(s, is_dropped=True)),
    ("the switch has moved clients", "warn", lambda s: _moved(s, is_dropped=False)),
    (
        "database unreachable",
        "bad",
        lambda s: _if(s.ports_problem, f"port and link state unavailable: {s.ports_problem}"),
    ),
    ("clients without a working backend", "bad", lambda s: () if s.last_round_s is None else _unanswered(s)),
    (
        "starting",
        "warn",
        lambda s: _if(_is_starting(s), "starting: the bridge has not been compared with the config yet"),
    ),
    ("not ready for clients", "warn", _not_ready),
    ("clients at backups", "warn", _on_backups),
    ("VIPs are not announced", "bad", partial(_unannounced, is_bad=True)),
    ("", "warn", partial(_unannounced, is_bad=False)),
    ("paths are failed or unknown", "warn", _about_paths),
    ("health checks are late", "warn", lambda s: _if(s.probes_late_s, _LATE.format(duration(s.probes_late_s)))),
    ("fleet is not followed", "warn", _about_fleet),
    ("new config is not in use", "warn", _about_config),
    ("confirmation pending", "warn", _unconfirmed),
    ("paused", "warn", _paused),
    ("a backend is down", "warn", _down),
)
"""Each condition: its headline (empty if none), how bad it is, and a function that describes it; the worst first."""
