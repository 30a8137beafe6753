"""The state of a fleet at one moment, for commands, for its page and for its metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from math import inf
from types import MappingProxyType

from xenoovs.dataclass import dataclass, replace
from xenoovs.datapath.certificate import CERTIFICATE_WARNING_S
from xenoovs.display import decimal, duration, moment, percent, quantity
from xenoovs.errors import counted, first_names, worded
from xenoovs.fleet.health import SILENT_S, TargetState, Votes, fit_dpus, targets_of, votes_on
from xenoovs.fleet.history import HistoryEntry, freeze_text, history
from xenoovs.fleet.plan import IN_USE, Memo, rolling_intent, stored_services
from xenoovs.fleet.rollout import hw_share, uncompared, waits_for
from xenoovs.model.values import split_site
from xenoovs.show.column import Column, Table, computed, counter, gauge, named, number, text
from xenoovs.store.servers import ServerFacts, ServerRole
from xenoovs.store.view import Dpu, DpuState, DpuStatus, FleetView, Intent, IntentState, sync_state
from xenoovs.switch.certificates import certificate_problem


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    """A fleet at one moment. `view`: None before the store has answered. `servers`, `is_active`: those of this host.

    `problems`: what an operator should fix, in words. `now_s`: since 1970. `targets`: those that are down first.
    `is_stalled`: whether no controller writes what is due. `roll_out`: what it does and waits for, in words.
    `clock_ms`: the time by the clock of most DPUs, in milliseconds since 1970.
    """

    view: FleetView | None
    rows: tuple[DpuRow, ...]
    servers: tuple[ServerFacts, ...]
    is_active: bool
    problems: tuple[str, ...]
    now_s: float
    is_stalled: bool = False
    roll_out: tuple[str, ...] = ()
    targets: tuple[TargetRow, ...] = ()
    clock_ms: int = 0

    def counts(self) -> Counter[DpuState]:
        """Return how many DPUs there are in each state."""
        return Counter(row.state for row in self.rows)

    def worst_first(self) -> list[DpuRow]:
        """Return the DPUs: those that need an operator first, and within a state those with a note."""
        order = list(DpuState)
        return sorted(self.rows, key=lambda row: (order.index(row.state), not row.note, row.name))

    @property
    def headline(self) -> tuple[str, str]:
        """Return the state of the fleet in a few words, and its severity: `good`, `warn` or `bad`."""
        counts = self.counts()
        differing = len(self.rows) - counts[DpuState.APPLIED]
        if self.view is None or self.problems:
            return "has problems", "bad"
        if not differing and self.view.wave:
            return f"wave {self.view.wave} of a roll-out", "warn"
        if not differing:
            return "all DPUs have the newest generation", "good"
        if set(counts) <= {DpuState.APPLIED, DpuState.BEHIND}:
            return f"{counted(differing, 'DPU')} behind", "warn"
        return f"{counted(differing, 'DPU')} {worded(differing, 'differs', 'differ')}", "bad"

    @property
    def newest(self) -> Intent | None:
        """Return the newest config."""
        intents = {} if self.view is None else self.view.intents
        return intents[max(intents)] if intents else None

    @property
    def is_refused(self) -> bool:
        """Return whether the controller refused the newest config."""
        return self.newest is not None and self.newest.state is IntentState.REFUSED

    @property
    def frozen(self) -> str:
        """Return until when the fleet is frozen, by whom and why; empty if it is not."""
        return "" if self.view is None else freeze_text(self.view, now_ms=self.clock_ms)

    @property
    def is_well(self) -> bool:
        """Return whether every DPU has the newest generation, no roll-out runs, and there is no problem."""
        return not (self.problems or self.roll_out) and all(row.state is DpuState.APPLIED for row in self.rows)


def notices(snapshot: FleetSnapshot, drains: Mapping[str, float] = MappingProxyType({})) -> Iterator[tuple[str, str]]:
    """Yield what an operator should know, the worst first, each with its style. `drains`: from `DrainWatch.left`."""
    view, now_ms = snapshot.view, snapshot.clock_ms
    yield from ((problem, "bad") for problem in snapshot.problems)
    if snapshot.frozen:
        yield snapshot.frozen, "warn"
    yield from ((line, "warn") for line in snapshot.roll_out)
    for (service, backend), one in () if view is None else sorted(view.overrides.items()):
        state = f"has the weight {decimal(one.weight)}" if one.weight else "is drained"
        since = duration((now_ms - one.since_ms) / 1000)
        since += f", ends in {duration((one.until_ms - now_ms) / 1000)}" if one.until_ms else ""
        name, group = split_site(service)
        option = f" --group {group}" if group else ""
        yield (
            f"{service}/{backend} {state} for {since}, by {one.author}; the config says "
            f"{decimal(one.configured)}; `xenoovs fleet reset {name} {backend}{option}` reverts it",
            "plain",
        )
    for name, left_s in sorted(drains.items()):
        yield f"{name}: open connections may stay with their old backends for {duration(left_s)} more", "plain"


# How DPUs compare with the newest generation, by their reports.


@dataclass(frozen=True, slots=True)
class DpuRow:
    """A DPU in the list (DPUS). `seen_s` is timed by the DPU's clock, `certificate_left_s` by that of the reader. It is
    `is_unfit` as it is cut off or its bridge is not right."""

    name: str
    state: DpuState
    status: DpuStatus
    seen_s: float | None
    is_out: bool = False
    is_unfit: bool = False
    groups: frozenset[str] = frozenset()
    certificate_left_s: float | None = None
    rack: str = ""

    @property
    def is_well(self) -> bool:
        """Return whether it needs no attention."""
        return self.state is DpuState.APPLIED and not self.note

    @property
    def hw_share(self) -> Fraction | None:
        """Return the share of its megaflows in hardware, 0..1; None if there is no traffic, or it is not known."""
        return hw_share(self.status.verdicts)

    @property
    def note(self) -> str:
        """Return the problems in words."""
        count = len(self.status.drift)
        drift = f"{counted(count, 'service')} {worded(count, 'differs', 'differ')} on the bridge: "
        drift += first_names(sorted(self.status.drift), most=3)
        drifts = drift if self.status.drift else ""
        left_s, ends = self.certificate_left_s, ""
        if left_s is not None and left_s <= CERTIFICATE_WARNING_S:
            ends = f"its certificate ends in {duration(left_s)}" if left_s > 0 else "its certificate has ended"
        reasons = (self._service, self.wrong_clock, self.status.error, drifts, ends)
        return "; ".join(filter(None, reasons))

    @property
    def _service(self) -> str:
        if self.is_out:
            return "out of service by an operator"
        if self.is_unfit:
            return "not ready: it is cut off from most backends, or its bridge is not right"
        return "" if self.status.is_fit else "reports that it is not fit, but too many others do: it stays in service"

    @property
    def wrong_clock(self) -> str:
        """Return why the time of its last report cannot be right, in words; empty if it may be."""
        if self.state is DpuState.SILENT or self.seen_s is None or abs(self.seen_s) <= SILENT_S:
            return ""
        when = f"{duration(abs(self.seen_s))} {'in the future' if self.seen_s < 0 else 'ago'}"
        return f"its last report is {when} by its clock and that of this host: set them (NTP)"


def dpu_rows(view: FleetView, statuses: Mapping[str, DpuStatus], *, now_s: float) -> list[DpuRow]:
    """Return the DPUs of the fleet by name, then others that report."""
    rows = []
    for name in (*sorted(view.dpus), *sorted(statuses.keys() - view.dpus.keys())):
        status = statuses.get(name)
        seen_s = None if status is None else now_s - status.seen_ms / 1000
        if seen_s is not None and -SILENT_S <= seen_s < 0:
            seen_s = 0.0
        state, dpu = _state(view, name, status), view.dpus.get(name, Dpu(name, frozenset()))
        found = status or DpuStatus(name)
        left_s = found.certificate_ends_s - now_s if found.certificate_ends_s else None
        rows.append(DpuRow(name, state, found, seen_s, dpu.is_out, dpu.is_unfit, dpu.groups, left_s, dpu.rack))
    return rows


def clocks_ms(view: FleetView, statuses: Mapping[str, DpuStatus] | None, *, now_ms: int) -> tuple[int, ...]:
    """Return the time by the clock of this host, and that by the reports of most DPUs if they differ by minutes."""
    heard = view.dpus.keys() - view.silent
    seen = sorted(status.seen_ms for name, status in (statuses or {}).items() if name in heard and status.seen_ms)
    most = seen[(len(seen) - 1) // 2] if seen else now_ms
    return (now_ms, most) if abs(now_ms - most) > SILENT_S * 1000 else (now_ms,)


def _state(view: FleetView, name: str, status: DpuStatus | None) -> DpuState:
    if name not in view.dpus:
        return DpuState.NOT_ADDED
    if status is None:
        return DpuState.UNKNOWN
    if name in view.silent:
        return DpuState.SILENT
    now = sync_state(view, status)
    if now in (DpuState.AHEAD, DpuState.OTHER_STORE):
        return now
    if status.error:
        return DpuState.FAILED
    return DpuState.DRIFTED if status.drift else now


def dpu_problems(rows: Iterable[DpuRow]) -> list[str]:
    """Return the problems with the clocks of DPUs, by their reports, and with their certificates."""
    rows = tuple(rows)
    names, problems = [row.name for row in rows if row.wrong_clock], list[str]()
    if names:
        problems.append(
            f"the clocks of this host and of {first_names(names, most=3)} differ by minutes: set them (NTP)"
        )
    ending = sorted((row.certificate_left_s, row.name) for row in rows if row.certificate_left_s is not None)
    names = [name for left_s, name in ending if left_s <= CERTIFICATE_WARNING_S]
    if names:
        then = f" (next: {first_names(names[1:], most=3)})" if names[1:] else ""
        problems.append(certificate_problem(ending[0][0], whose=f"{names[0]}{then}"))
    return problems


def roll_out_lines(view: FleetView, statuses: Mapping[str, DpuStatus] | None, *, now_s: float) -> list[str]:
    """Return what a roll-out does, and which DPUs it waits for, in words. `now_s`: since 1970. How long the wave was
    watched is left out if the store lacks its time, or clocks differ."""
    intent = rolling_intent(view)
    if intent is None or not view.wave:
        return []
    waits = [f"{name}: {reason}" for name, (reason, _) in waits_for(view, statuses).items()]
    concerned = view.concerned
    begun = sum(dpu.wave <= view.wave for dpu in concerned.values())
    soak, begun_s = duration(intent.soak_s), view.switch_at_ms / 1000
    is_known = 0 < begun_s <= now_s and len(clocks_ms(view, statuses, now_ms=int(now_s * 1000))) == 1
    watched = f"for {duration(now_s - begun_s)} of {soak}" if is_known else f"for {soak} in all"
    return [
        f"config {intent.number} is rolled out: wave {view.wave}, {begun} of {counted(len(concerned), 'DPU')}, "
        f"{'paused' if intent.is_paused else f'watched {watched}'}; `xenoovs fleet stop` takes it back"
        f"{', `xenoovs fleet pause --end` goes on' if intent.is_paused else ''}",
        *([f"the roll-out waits for {first_names(waits, most=3)}"] if waits else []),
        *uncompared(view),
    ]


# The state of the targets of health checks, from votes.


_MAX_PROBLEMS = 10


@dataclass(frozen=True, slots=True)
class TargetRow:
    """A target in the list: `ADDRESS/PROBE/PORT`. `backends`: `SERVICE/BACKEND`, of the config in use. `state`: that
    in the store; NO_QUORUM if it stays up for lack of votes. `is_held`: whether a backend of it is down and keeps its
    clients."""

    target: str
    backends: tuple[str, ...]
    state: TargetState
    since_s: float
    votes: Votes
    is_held: bool = False

    @property
    def _name(self) -> str:
        return f"{first_names(self.backends, most=3)} ({self.target})" if self.backends else self.target

    @property
    def unwritten(self) -> str:
        """Return the result of votes in words if the store has another state; empty if not."""
        is_other = self.votes.contradict(is_down=self.state is TargetState.DOWN)
        return f"that {self._name} is {self.votes.result.value}: {self.votes.text}" if is_other else ""

    @property
    def problem(self) -> str:
        """Return the problem in words; empty if there is none."""
        if self.state is TargetState.UP:
            return ""
        if self.state is TargetState.NO_QUORUM:
            return f"no quorum about {self._name}, which stays up: {self.votes.text}"
        held = "; it keeps clients, by `max_down` or because all are down" if self.is_held else ""
        return f"{self._name} has been down for {duration(self.since_s)}: {self.votes.text}{held}"


def target_rows(
    view: FleetView,
    statuses: Mapping[str, DpuStatus] | None,
    *,
    now_s: float,
    memo: Memo | None = None,
) -> list[TargetRow]:
    """Return the targets, those that are down first; empty without reports. `now_s`: since 1970."""
    if statuses is None:
        return []
    fit, results, rows = fit_dpus(view, statuses), (memo or Memo()).part(IN_USE), list[TargetRow]()
    # Rows that cannot be read are another problem.
    stored = stored_services(view.services.values(), results, results)[0]
    named = targets_of((service for service, _ in stored.values()), results.part("stored"))
    for target, watch in view.watches.items():
        votes, names = votes_on(view, watch, statuses, fit), named.get(target, ())
        state = TargetState.NO_QUORUM if votes.result is TargetState.NO_QUORUM else TargetState.UP
        state = TargetState.DOWN if watch.is_down else state
        is_held = watch.is_down and any(backend in view.services[service].active.owners for service, backend in names)
        since_s, backends = max(0.0, now_s - watch.since_ms / 1000), tuple("/".join(name) for name in names)
        rows.append(TargetRow(target, backends, state, since_s, votes, is_held))
    order = list(TargetState)
    return sorted(rows, key=lambda row: (order.index(row.state), row.target))


def target_problems(rows: Iterable[TargetRow]) -> list[str]:
    """Return the problems of targets in words; of many, the first ones and how many more."""
    problems = list(filter(None, (row.problem for row in rows)))
    left = len(problems) - _MAX_PROBLEMS
    more = [f"{counted(left, 'more target')} in trouble; JSON has all"] if left > 0 else []
    return problems[:_MAX_PROBLEMS] + more


# The tables of a fleet: DPUs, targets of health checks, servers of the store; and the page.


def _rounded(digits: int) -> Callable[[float | None], float | None]:
    return lambda number: None if number is None else round(float(number), digits)


_CERTIFICATE = number(
    "CERT ENDS IN",
    lambda left_s: f"{int(left_s // 86_400)}d",
    keep=2,
    only_if=lambda row: row.value.certificate_left_s is not None,
    style=lambda row: "bad" if (row.value.certificate_left_s or inf) <= CERTIFICATE_WARNING_S else "plain",
)
"""The column with the time in whole days."""


# DPUs.


DPUS = Table(
    lambda snapshot: (((row.name,), row) for row in snapshot.rows),
    named(
        name=computed("Its name.", shown=text("DPU", live=5)),
        groups=computed(
            "Names of its groups.",
            gauge(
                "xenoovs_fleet_dpu_group",
                "A group of a DPU; always 1.",
                lambda dpu: dict.fromkeys(sorted(dpu.groups), 1),
                ("group",),
            ),
            of=lambda dpu: sorted(dpu.groups),
            shown=text(
                "GROUPS",
                lambda groups: ",".join(groups) or "-",
                keep=1,
                live=8,
                live_from=100,
                only_if=lambda row: bool(row.value.groups),
            ),
        ),
        rack=computed("Name of its rack; empty if not known."),
        state=computed(
            "How a DPU compares with the newest generation.",
            gauge("xenoovs_fleet_dpu_state", of=lambda dpu: {dpu.state.name.lower(): 1}, labels=("state",)),
            json=lambda state: state.name.lower(),
            shown=text(
                "STATE",
                lambda state: state.value,
                live=8,
                style=lambda row: {DpuState.APPLIED: "good", DpuState.BEHIND: "warn"}.get(row.value.state, "bad"),
            ),
        ),
        applied=computed(
            "Newest generation that the bridge of a DPU has had.",
            gauge("xenoovs_fleet_dpu_generation"),
            of=lambda dpu: dpu.status.applied,
            shown=number("GENERATION", lambda applied: str(applied or "-"), live=11, keep=5),
        ),
        hw_share=computed(
            "Share of a DPU's megaflows in hardware (0-1), as of its last report; none without traffic.",
            gauge("xenoovs_fleet_dpu_offload_ratio"),
            json=_rounded(4),
            shown=number("HW", percent, live=8, keep=3),
        ),
        seen_s=computed(
            "Time since its last report.",
            gauge("xenoovs_fleet_dpu_seen_seconds"),
            json=_rounded(3),
            shown=number("SEEN", duration, live=9, keep=4),
        ),
        version=computed(
            "Version of its agent.",
            of=lambda dpu: dpu.status.version,
            shown=text("VERSION", lambda version: version or "-", keep=2),
        ),
        certificate_left_s=computed(
            "Time until its certificate expires; none if not known, or without TLS.",
            gauge("xenoovs_fleet_dpu_certificate_seconds"),
            json=_rounded(0),
            shown=_CERTIFICATE,
        ),
        _note=computed("What is wrong.", of=lambda dpu: dpu.note, shown=text("NOTE", live=10)),
        error=computed("Why it does not follow the store.", of=lambda dpu: dpu.status.error),
        drift=computed(
            "Services whose flows differ from the store, with the digests of their blocks.",
            gauge("xenoovs_fleet_dpu_drift_services", of=lambda dpu: len(dpu.status.drift)),
            of=lambda dpu: dict(dpu.status.drift),
        ),
        is_out=computed(
            "Whether an operator took it out of service.",
            gauge(
                "xenoovs_fleet_dpu_unready",
                "1 while routers should send no clients to a DPU for this reason: `operator`, or `unfit`.",
                lambda dpu: {"operator": dpu.is_out, "unfit": dpu.is_unfit},
                ("reason",),
            ),
        ),
        is_unfit=computed("Whether it should get no clients."),
        verdicts=computed("Its megaflows by verdict.", of=lambda dpu: dict(dpu.status.verdicts)),
    ),
    ("dpu",),
)


# Targets of health checks.


def _voters(row: TargetRow) -> dict[str, list[str]]:
    return {vote: sorted(getattr(row.votes, vote)) for vote in ("down", "up", "silent")}


def _votes(row: TargetRow) -> dict[tuple[str, ...], float]:
    if row.state is TargetState.UP:
        return {}
    return {(row.state.name.lower(), vote): len(names) for vote, names in _voters(row).items()}


TARGETS = Table(
    lambda snapshot: (((row.target,), row) for row in snapshot.targets),
    named(
        target=computed("What is probed."),
        backends=computed("The backends behind it.", json=list),
        state=computed("State by the votes of its witnesses.", of=lambda row: row.state.name.lower()),
        since_s=computed("Time since its state changed.", json=_rounded(3)),
        is_held=computed("Whether it is down and a backend behind it keeps its clients."),
        votes=computed(
            "Names of the DPUs by vote.",
            gauge(
                "xenoovs_fleet_target_votes",
                "Witnesses by vote, of a target that is down or has no quorum; others are left out.",
                _votes,
                ("state", "vote"),
            ),
            of=_voters,
        ),
    ),
    ("target",),
)


# Servers of the store.


def _with_others(snapshot: FleetSnapshot) -> Iterator[ServerFacts]:
    """Yield the servers of this host, each before the others of its cluster."""
    for server in snapshot.servers:
        yield server
        for member in server.members:
            if not member.is_self:
                role = ServerRole.SILENT if member.is_silent else ServerRole.FOLLOWER
                facts = ServerFacts(server.database, server.file, role, not member.is_silent, member=member)
                yield replace(facts, index=member.match_index)


def _members(server: ServerFacts) -> list[dict[str, object]]:
    return [
        {"id": m.id, "address": m.address, "is_self": m.is_self, "silent_s": m.silent_s, "lag": m.lag}
        for m in server.members
    ]


def _bytes(number: int) -> str:
    return f"{quantity(number)}B"


SERVERS = Table(
    lambda snapshot: (((each.database.value,), each) for each in snapshot.servers),
    named(
        database=computed("Its database.", of=lambda server: server.database.value, shown=text("DATABASE")),
        _server=computed(
            "", of=lambda server: "this host" if server.member is None else server.member.address, shown=text("SERVER")
        ),
        role=computed(
            "Role in its cluster.",
            gauge(
                "xenoovs_store_role",
                "Role of the server of a database on this host; always 1.",
                lambda server: {server.role.value: 1},
                ("role",),
            ),
            of=lambda server: server.role.value,
            shown=text("ROLE", style=lambda row: "good" if row.value.is_connected else "bad"),
        ),
        is_connected=computed(
            "Whether the server stands alone or is in contact with most of its cluster.",
            gauge("xenoovs_store_connected"),
        ),
        term=computed(
            "Elections since the cluster was made: its term.",
            counter("xenoovs_store_elections_total"),
            shown=number("TERM", keep=2),
        ),
        index=computed(
            "Newest log entry of the server.",
            gauge("xenoovs_store_log_index"),
            shown=number("INDEX", keep=3),
        ),
        _lag=computed(
            "Log entries that it lacks.", of=lambda server: getattr(server.member, "lag", None), shown=number("LAG")
        ),
        size_bytes=computed(
            "Size of the database with its log.",
            gauge("xenoovs_store_size_bytes"),
            shown=number("SIZE", _bytes, keep=1),
        ),
        free_bytes=computed(
            "Free space on the disk of the database.",
            gauge("xenoovs_store_free_bytes"),
            shown=number("FREE", _bytes, style=lambda row: "plain" if row.value.has_room else "bad"),
        ),
        election_timer_s=computed("Of its cluster."),
        _gap=computed(
            "1 while the file of a server in a cluster has a gap, as after a full disk; read once a minute.",
            gauge("xenoovs_store_gap"),
            of=lambda server: None if server.term is None else bool(server.gap),
        ),
        certificate_left_s=computed(
            "Time until its certificate expires; none without TLS.",
            gauge("xenoovs_store_certificate_seconds"),
            json=_rounded(0),
            shown=_CERTIFICATE,
        ),
        members=computed("The servers of its cluster.", of=_members),
    ),
    ("database",),
)
MEMBERS = Table(
    lambda snapshot: (
        ((each.database.value, each.member.address), each) for each in _with_others(snapshot) if each.member
    ),
    (
        computed(
            "Log entries that another server lacks; only the leader knows.",
            gauge("xenoovs_store_member_lag"),
            of=lambda server: server.member.lag,
        ),
        computed(
            "1 while the leader has not heard another server for three election timers.",
            gauge("xenoovs_store_member_silent"),
            of=lambda server: server.member.is_silent,
        ),
    ),
    ("database", "member"),
)
SERVER_LIST = Table(
    lambda snapshot: (
        ((), each) for each in _with_others(snapshot) if each.member is None or each.member.lag is not None
    ),
    SERVERS.columns,
)
"""The servers of this host, and for databases that it leads also the other ones."""


# What operators and agents wrote.


def _status(entry: HistoryEntry) -> str:
    """Return the state of its config; empty if it has none."""
    return "" if entry.intent is None else entry.intent.state.value


def _refusal(entry: HistoryEntry) -> str:
    """Return why its config was refused, or the comment that only the config has; empty if there is neither."""
    action, intent = entry
    return "" if intent is None or intent.comment == action.comment else intent.comment


HISTORY = Table(
    lambda view: (((), each) for each in history(view)),
    named(
        at_ms=computed(
            "When, in milliseconds since 1970.", of=lambda one: one.action.at_ms, shown=text("WHEN", moment)
        ),
        author=computed("Who did it, as the host reported.", of=lambda one: one.action.author, shown=text("WHO")),
        host=computed("Its host.", of=lambda one: one.action.host, shown=text("AT", lambda host: host or "-", keep=1)),
        certificate=computed(
            "The CN in the certificate of the connection; empty if it had none.",
            of=lambda one: one.action.certificate,
            shown=text(
                "CERTIFICATE", lambda name: name or "-", keep=2, only_if=lambda row: bool(row.value.action.certificate)
            ),
        ),
        action=computed("The command in words.", of=lambda one: one.action.text, shown=text("ACTION")),
        config=computed("Number of the config that it wrote; 0 if none.", of=lambda one: one.action.config),
        state=computed("State of that config.", of=_status),
        _config=computed(
            "", of=lambda one: f"{one.action.config} {_status(one)}" if one.action.config else "-", shown=text("CONFIG")
        ),
        changed=computed("What it changed.", of=lambda one: one.action.changed),
        comment=computed("The comment of the author.", of=lambda one: one.action.comment),
        reason=computed("Why its config was refused; empty if it was not.", of=_refusal),
        digest=computed("Digest of the text of its config.", of=lambda one: one.intent.digest if one.intent else ""),
        _details=computed(
            "",
            of=lambda one: "; ".join(filter(None, (one.action.changed, one.action.comment, _refusal(one)))),
            shown=text("CHANGED, AND WHY"),
        ),
    ),
)
"""The table of a `FleetView`."""

OVERRIDES = Table(
    lambda view: (((), one) for _, one in sorted(view.overrides.items())),
    named(
        service=computed("Name of the service.", of=lambda one: split_site(one.service)[0]),
        group=computed("Group of DPUs that have it; empty for all.", of=lambda one: split_site(one.service)[1]),
        backend=computed("Name of the backend."),
        weight=computed("Weight in place of that in the config; 0 for a drain.", json=float),
        author=computed("Who set it."),
        until_ms=computed("When it ends by itself, in milliseconds since 1970; 0 if never."),
    ),
)

DRIFTS = Table(
    lambda rows: (((), (row, *drift)) for row in rows for drift in sorted(row.status.drift.items())),
    named(
        dpu=computed("The DPU.", of=lambda drift: drift[0].name, shown=text("DPU")),
        service=computed("The service.", of=lambda drift: drift[1], shown=text("SERVICE")),
        digest=computed(
            "Digest of the blocks on the bridge; empty if there are none.",
            of=lambda drift: drift[2],
            shown=text("BRIDGE HAS", lambda digest: "other blocks" if digest else "no blocks"),
        ),
        applied=computed(
            "Newest generation that the bridge had.",
            of=lambda drift: drift[0].status.applied,
            shown=number("GENERATION", lambda applied: str(applied or "-")),
        ),
        seen_s=computed(
            "Age of the report.", of=lambda drift: drift[0].seen_s, json=_rounded(3), shown=number("REPORTED", duration)
        ),
    ),
)


# The fleet.


def _of_view(doc: str, name: str, of: Callable[[FleetSnapshot, FleetView], float]) -> Column:
    return computed(doc, gauge(name), of=lambda at: None if at.view is None else of(at, at.view))


FLEET = Table(
    lambda snapshot: [((), snapshot)],
    (
        computed(
            "1 while the controller of this host decides: its server leads.",
            gauge("xenoovs_fleet_active"),
            of=lambda at: at.is_active,
        ),
        _of_view("Newest generation of the fleet.", "xenoovs_fleet_generation", lambda _, view: view.generation),
        _of_view("Services.", "xenoovs_fleet_services", lambda _, view: len(view.service_names)),
        _of_view("Weights and drains set at run time.", "xenoovs_fleet_overrides", lambda _, view: len(view.overrides)),
        _of_view(
            "1 while the newest config is one that the controller refused; the previous one stays in use.",
            "xenoovs_fleet_config_refused",
            lambda at, _: at.is_refused,
        ),
        _of_view("Wave of the roll-out; 0 if there is none.", "xenoovs_fleet_wave", lambda _, view: view.wave),
        _of_view(
            "1 while no controller writes what is due: the newest change, a result of votes, or a step of a roll-out.",
            "xenoovs_fleet_stalled",
            lambda at, _: at.is_stalled,
        ),
        computed(
            "Problems of the fleet and of the servers on this host; `xenoovs fleet status` has their texts.",
            gauge("xenoovs_fleet_problems"),
            of=lambda at: len(at.problems),
        ),
        computed(
            "",
            gauge(
                "xenoovs_fleet_dpus",
                "DPUs by state.",
                lambda at: {state.name.lower(): at.counts()[state] for state in DpuState},
                ("state",),
            ),
            gauge(
                "xenoovs_fleet_targets",
                "Targets of health checks by state.",
                lambda at: {state.name.lower(): sum(row.state is state for row in at.targets) for state in TargetState},
                ("state",),
            ),
        ),
    ),
)

FLEET_TABLES = (FLEET, DPUS, TARGETS, SERVERS, MEMBERS)
"""The tables of a `FleetSnapshot`."""
