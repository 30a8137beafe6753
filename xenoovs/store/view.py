"""The contents of a fleet's store as values: services with their blocks, DPUs, overrides, intents, states of DPUs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from fractions import Fraction
from itertools import islice
from typing import TypeVar

from xenoovs.dataclass import dataclass, field, replace
from xenoovs.decision.decision import BackendName, Blocks
from xenoovs.model.values import split_site
from xenoovs.partition.block import Block
from xenoovs.regex import ASCII, regex

FORMAT = 1
"""The newest format of rows that this version reads and writes. A reader refuses a store that needs a newer one."""

_BLOCK = regex(r"0x(0|[1-9a-f][0-9a-f]{0,3})/([0-9]|1[0-6])")


_NAME = regex(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", ASCII)


def is_name(text: str) -> bool:
    """Return whether a DPU, a group or a rack may have this name."""
    return _NAME.fullmatch(text) is not None


def blocks_to_map(blocks: Blocks) -> dict[str, str]:
    """Return blocks as the map of a row, from `0xVALUE/DEPTH` to the name of the backend. A key stands for the clients
    whose first DEPTH selected bits are VALUE, as in the document of a decision."""
    return {f"{block.value:#x}/{block.depth}": owner for block, owner in blocks.rows}


def blocks_from_map(columns: Mapping[str, str]) -> Blocks:
    """Return the blocks in the map of a row. Raises ValueError if a key is no block, a name is empty, blocks overlap,
    or two blocks of one backend make up a larger one."""
    rows = list[tuple[Block, str]]()
    for key, owner in columns.items():
        if (found := _BLOCK.fullmatch(key)) is None:
            raise ValueError(f"{key!r} is no block: expected 0xVALUE/DEPTH, such as 0x5/3")
        if not owner:
            raise ValueError(f"block {key} has no backend")
        rows.append((Block(int(found[1], 16), int(found[2])), owner))
    blocks = Blocks.of(rows)
    if set(blocks.rows) != set(rows):
        raise ValueError("blocks overlap, or two halves of a block have one backend")
    return blocks


@dataclass(frozen=True, slots=True)
class StoredService:
    """A service of the fleet, and which backend has which of its clients.

    `name`: that of the service, or a `site_name` for each site if its DPUs have different ones. `groups`: the DPUs in
    one of them serve it; empty if all do. `config`: its entry of `services:` as JSON in normal form. `claim`: unique
    among the services of a DPU. `home`: the blocks by weight alone. `content`: a hash of its row without the
    generation; empty if it was not read from a row."""

    name: str
    groups: frozenset[str]
    config: str
    claim: str
    generation: int
    active: Blocks
    home: Blocks
    content: str = field(default="", compare=False)

    @property
    def service(self) -> str:
        """Return the name of the service on its DPUs."""
        return split_site(self.name)[0]

    def is_for(self, groups: frozenset[str]) -> bool:
        """Return whether a DPU in these groups serves it."""
        return not self.groups or not self.groups.isdisjoint(groups)


@dataclass(frozen=True, slots=True)
class Dpu:
    """A DPU that belongs to the fleet. `name`: the common name of its certificate. `wave`: that in which it gets a new
    intent: 1 (canary), 2, or from 3 on, as the newest roll-out has divided the other DPUs. `is_unfit`: whether the
    controller agrees that it is not fit (`fleet.health`)."""

    name: str
    groups: frozenset[str]
    rack: str = ""
    wave: int = 3
    is_out: bool = False
    is_unfit: bool = False


@dataclass(frozen=True, slots=True)
class FleetOverride:
    """A weight set at run time for the whole fleet, until the config changes it (docs/adr/0009). `service`: its name,
    or its `site_name` in the group that has the weight. `weight`: 0 for a drain. `configured`: the weight in the
    config; another one there ends the override. `since_ms`: by the clock of the writer. `until_ms`: likewise; 0 for no
    end."""

    service: str
    backend: str
    weight: Fraction
    configured: Fraction
    author: str
    since_ms: int
    until_ms: int = 0


@dataclass(frozen=True, slots=True)
class Watch:
    """A target of health checks: its state in the fleet by the last votes, and its witnesses. `target`:
    `ADDRESS/PROBE/PORT` (`fleet.health.target_of`). `since_ms`: when `is_down` changed, by the clock of the writer.
    `generation`: that in which these witnesses were chosen."""

    target: str
    witnesses: frozenset[str]
    is_down: bool
    since_ms: int
    generation: int


class IntentState(Enum):
    """The state of an intent. STAGED: for all DPUs at once. ROLLING: in waves."""

    STAGED = "staged"
    ROLLING = "rolling"
    CURRENT = "current"
    PAST = "past"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Intent:
    """A config for the fleet, as YAML in `text`. `created_ms`: by the clock of the writer.

    Its roll-out: `soak_s`: how long each wave is watched. `hw_before`: the share of each DPU's megaflows that were in
    hardware when its wave began, in thousandths, if known. `down_before`: the targets of health checks that were down
    when it began. `unfit_before`: the DPUs that were not fit when their wave began. `is_paused`: whether the next wave
    waits for an operator.
    """

    number: int
    text: str
    digest: str
    author: str
    comment: str
    created_ms: int
    state: IntentState
    soak_s: int = 0
    hw_before: Mapping[str, int] = field(default_factory=dict)
    down_before: frozenset[str] = frozenset()
    unfit_before: frozenset[str] = frozenset()
    is_paused: bool = False

    def ended(self, state: IntentState, comment: str | None = None) -> Intent:
        """Return the intent in another state, without the data of its roll-out. `comment`: None to keep it."""
        ended = replace(self, state=state, comment=self.comment if comment is None else comment, is_paused=False)
        return replace(ended, hw_before={}, down_before=frozenset(), unfit_before=frozenset())


@dataclass(frozen=True, slots=True)
class Freeze:
    """A time in which commands change nothing. `scope`: always `fleet`. `until_ms`: since 1970."""

    scope: str
    until_ms: int
    author: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Action:
    """An entry of the history: a change of the fleet, its author, and the reason. `at_ms`: by the clock of the writer.

    `author`, `host`: as the command reported them, unchecked. `text`: the command in words. `certificate`: the CN of
    the connection's certificate; empty if it had none, as at the unix socket. `changed`: old and new values. `config`:
    the number of the config that it wrote; 0 if none.
    """

    number: int
    at_ms: int
    author: str
    text: str
    host: str = ""
    certificate: str = ""
    comment: str = ""
    changed: str = ""
    config: int = 0


@dataclass(frozen=True, slots=True)
class FleetView:
    """The contents of the store at one generation. Clients that do not write have no intents, actions, freezes, silent.

    `format`: the one that readers must know. `generation`: orders the views of one store, but does not identify them: a
    store that is recreated, or restored from files, reaches the same number with other rows. `store_id`: the UUID of
    its row of `Fleet`, the same at relays. `commit_id`: a random number of the transaction. `content`: a hash of its
    services. `intent`: the current one; 0 if none yet. `ack`: the generation that the DPUs of a wave must apply.
    `wave`: DPUs of this wave and of earlier ones have the services of the roll-out: those in `staged`, and not those in
    `removed`; 0 if there is none. `switch_at_ms`: when DPUs switch to it; at once if that is past, or 0. `silent`: DPUs
    without a new report for long, by the clock of the controller."""

    name: str
    format: int
    generation: int
    intent: int
    ack: int
    wave: int = 0
    switch_at_ms: int = 0
    removed: frozenset[str] = frozenset()
    services: Mapping[str, StoredService] = field(default_factory=dict)
    staged: Mapping[str, StoredService] = field(default_factory=dict)
    dpus: Mapping[str, Dpu] = field(default_factory=dict)
    overrides: Mapping[BackendName, FleetOverride] = field(default_factory=dict)
    watches: Mapping[str, Watch] = field(default_factory=dict)
    intents: Mapping[int, Intent] = field(default_factory=dict)
    store_id: str = ""
    commit_id: str = ""
    content: str = ""
    silent: frozenset[str] = frozenset()
    actions: Mapping[int, Action] = field(default_factory=dict)
    freezes: Mapping[str, Freeze] = field(default_factory=dict)

    @property
    def commit(self) -> str:
        """Return the identity of the view within its store, as a DPU reports it."""
        return f"{self.commit_id}/{self.content}"

    @property
    def service_names(self) -> frozenset[str]:
        """Return the names of its services, each of which may have a row per site."""
        return frozenset(each.service for each in self.services.values())

    @property
    def rolled_out(self) -> FleetView:
        """Return the view after the roll-out: its services in use, and no roll-out."""
        stay = {name: each for name, each in self.services.items() if name not in self.removed}
        return replace(self, services={**stay, **self.staged}, staged={}, removed=frozenset(), wave=0)

    def serving(self, services: Iterable[StoredService]) -> dict[str, Dpu]:
        """Return the DPUs that serve at least one of these services, by name."""
        groups = {each.groups for each in services}
        if not groups or frozenset() in groups:
            return dict(self.dpus) if groups else {}
        served = frozenset[str]().union(*groups)
        return {name: dpu for name, dpu in self.dpus.items() if not served.isdisjoint(dpu.groups)}

    @property
    def concerned(self) -> dict[str, Dpu]:
        """Return the DPUs whose services the roll-out adds, changes or removes, by name."""
        names = {*self.staged, *self.removed}
        rows = (rows.get(name) for name in names for rows in (self.services, self.staged))
        return self.serving(filter(None, rows))

    def of_dpu(self, name: str) -> FleetView:
        """Return the view that a DPU installs: the services that it serves, and no other DPU. It has the services of
        the roll-out if the DPU's wave has begun. A DPU outside of the fleet is in no group."""
        dpu = self.dpus.get(name)
        view = self if dpu is None or dpu.wave > self.wave else self.rolled_out
        groups = frozenset[str]() if dpu is None else dpu.groups
        services = {key: each for key, each in view.services.items() if each.is_for(groups)}
        return replace(view, services=services, dpus={} if dpu is None else {name: dpu})


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of one transaction; all else stays as it is. In a map, None removes the row of that key.

    Values are whole, but of a service's blocks only those that differ are sent. Services that differ get the new
    generation, whatever their own is. `removed`, `silent`: all names. `ack`: whether the DPUs of a wave
    must apply this generation. `generation`: above the one before; None for the next one. Only a restore sets it.
    """

    services: Mapping[str, StoredService | None] = field(default_factory=dict)
    dpus: Mapping[str, Dpu | None] = field(default_factory=dict)
    overrides: Mapping[BackendName, FleetOverride | None] = field(default_factory=dict)
    intents: Mapping[int, Intent | None] = field(default_factory=dict)
    staged: Mapping[str, StoredService | None] = field(default_factory=dict)
    watches: Mapping[str, Watch | None] = field(default_factory=dict)
    intent: int | None = None
    ack: bool = False
    wave: int | None = None
    removed: frozenset[str] | None = None
    switch_at_ms: int | None = None
    generation: int | None = None
    silent: frozenset[str] | None = None
    actions: Mapping[int, Action | None] = field(default_factory=dict)
    freezes: Mapping[str, Freeze | None] = field(default_factory=dict)


Key = TypeVar("Key")
Value = TypeVar("Value")


def rows_after(rows: Mapping[Key, Value], changes: Mapping[Key, Value | None]) -> dict[Key, Value]:
    """Return the rows of a map of a view after a map of `Changes`."""
    return {key: each for key, each in {**rows, **changes}.items() if each is not None}


@dataclass(frozen=True, slots=True)
class DpuStatus:
    """The report of a DPU: its row in the database of states. Times are by its clock.

    `applied`: the generation that its bridge has, since `applied_ms`. `store`, `commit`: the `store_id` and the
    `commit` of that view; empty if not known. `certificate_ends_s`: since 1970; 0 if not known, or it has none.
    `error`: why it has not applied a newer generation. `drift`: digests of the blocks read back from the bridge, of
    services that differ. `verdicts`: megaflows by verdict, counted when the bridge had the generation `sampled`.
    `down`: targets that it cannot reach, of those whose witness it is. `voted`: the generation with these witnesses; 0
    if it does not vote. `is_fit`: whether its bridge is right, and it can reach most backends that are up by votes."""

    name: str
    version: str = ""
    format: int = FORMAT
    seen_ms: int = 0
    applied: int = 0
    applied_ms: int = 0
    error: str = ""
    drift: Mapping[str, str] = field(default_factory=dict)
    verdicts: Mapping[str, int] = field(default_factory=dict)
    sampled: int = 0
    down: frozenset[str] = frozenset()
    voted: int = 0
    is_fit: bool = True
    store: str = ""
    commit: str = ""
    certificate_ends_s: int = 0

    @property
    def bounded(self) -> DpuStatus:
        """Return the part that the schema accepts: the start of texts, and the first entries by name, without long
        names. With the certificate of a DPU a client can write anything, and 1,000 reports must fit in memory."""
        return replace(
            self,
            version=self.version[:MAX_NAME],
            store=self.store[:MAX_NAME],
            commit=self.commit[:MAX_NAME],
            error=self.error[:MAX_ERROR],
            drift=dict(islice(((name, self.drift[name][:MAX_NAME]) for name in _names(self.drift)), MAX_DRIFT)),
            verdicts=dict(islice(((name, self.verdicts[name]) for name in _names(self.verdicts)), MAX_VERDICTS)),
            down=frozenset(islice(_names(self.down), MAX_DOWN)),
        )


MAX_NAME, MAX_ERROR = 128, 1000
"""Most characters of names, and of an error; `xenoovs status` on the DPU shows all of it."""
MAX_DRIFT, MAX_VERDICTS, MAX_DOWN = 1000, 32, 16_384
"""Most entries. A config has 1,000 services, and all targets of 1,000 services with 16 targets each may be down."""


def _names(names: Iterable[str]) -> Iterator[str]:
    return (name for name in sorted(names) if len(name) <= MAX_NAME)


class DpuState(Enum):
    """How a DPU compares with the newest generation; the worst first."""

    OTHER_STORE = "of another store"
    AHEAD = "ahead of the store"
    FAILED = "failed"
    DRIFTED = "drifted"
    SILENT = "silent"
    UNKNOWN = "never reported"
    BEHIND = "behind"
    NOT_ADDED = "not of the fleet"
    APPLIED = "applied"


def sync_state(view: FleetView, status: DpuStatus) -> DpuState:
    """Return how the generation in a report compares with a view: as applied, behind, ahead, or of another store. For
    agents of earlier versions only the number counts."""
    if status.store and view.store_id and status.store != view.store_id:
        return DpuState.OTHER_STORE
    if status.applied > view.generation:
        return DpuState.AHEAD
    is_same = status.applied == view.generation and status.commit in ("", view.commit)
    return DpuState.APPLIED if is_same else DpuState.BEHIND


def lacks(view: FleetView, status: DpuStatus, *, least: int | None = None) -> str:
    """Return why a DPU does not have what the store has; empty if it has. `least`: a generation of this store that is
    enough; None if only the newest one is."""
    now = sync_state(view, status)
    if now is DpuState.APPLIED or (
        now is DpuState.BEHIND and least is not None and least <= status.applied < view.generation
    ):
        return ""
    if now is DpuState.BEHIND:
        is_same = status.applied == view.generation
        return f"has generation {status.applied}{' of another commit' if is_same else ''}"
    return f"is {now.value}: it has generation {status.applied}, the store {view.generation}"
