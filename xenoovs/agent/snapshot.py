"""What the agent knows at one moment, as values. `status`, `top`, the page, the API and the metrics show these alone.

Times are seconds since 1970 (UTC). Shares are from 0 to 1.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

from xenoovs.datapath.megaflow import Verdict
from xenoovs.display import decimal
from xenoovs.errors import ParseError

if TYPE_CHECKING:
    from pydantic import TypeAdapter


def as_plain(value: object) -> object:
    """Return what JSON has for a value: a number for a fraction, text for what it has no form for."""
    if value is None or isinstance(value, str | int | float | list | tuple | dict):
        return value
    if isinstance(value, Fraction):
        return value.numerator if value.denominator == 1 else float(value)
    return value.value if isinstance(value, Enum) else str(value)


class _Plain:
    """Annotates values that are in JSON as `as_plain` says, for pydantic."""

    @staticmethod
    def __get_pydantic_core_schema__(source: object, _handler: object) -> Any:
        from pydantic_core import core_schema

        plain = core_schema.plain_serializer_function_ser_schema(as_plain)
        if source is Fraction:
            return core_schema.no_info_plain_validator_function(
                lambda value: Fraction(value).limit_denominator(1_000_000), serialization=plain
            )
        return core_schema.any_schema(serialization=plain)

    @staticmethod
    def __get_pydantic_json_schema__(schema: Any, _handler: object) -> dict[str, str]:
        return {} if schema["type"] == "any" else {"type": "number"}


class BackendState(Enum):
    """State of a backend.

    `unchecked`: its service has no health check. `drained`: an operator gave it weight 0. `maintenance`: an operator
    took it out of service; it is not probed.
    """

    UP = "up"
    DOWN = "down"
    UNCHECKED = "unchecked"
    DRAINED = "drained"
    MAINTENANCE = "maintenance"

    @property
    def is_working(self) -> bool:
        """Whether clients of the backend can be taken to be served."""
        return self not in (BackendState.DOWN, BackendState.MAINTENANCE)


@dataclass(frozen=True, slots=True)
class Traffic:
    """Packets and bytes of one backend, in hardware and in software, since the first offload sample."""

    hw_packets: int = 0
    hw_bytes: int = 0
    sw_packets: int = 0
    sw_bytes: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.hw_packets + other.hw_packets,
            self.hw_bytes + other.hw_bytes,
            self.sw_packets + other.sw_packets,
            self.sw_bytes + other.sw_bytes,
        )


@dataclass(frozen=True, slots=True)
class Counted:
    """Packets and bytes of one backend by the counters of its flows, where megaflows cannot be read."""

    packets: int = 0
    bytes: int = 0

    def __add__(self, other: Counted) -> Counted:
        return Counted(self.packets + other.packets, self.bytes + other.bytes)


@dataclass(frozen=True, slots=True)
class Rate:
    """Rates of one backend between the last two offload samples.

    Attributes:
        pps: Packets a second.
        hw_pps: Of these, packets a second in hardware; null where megaflows cannot be read.
        bps: Bits a second.
    """

    pps: float
    hw_pps: float | None
    bps: float


@dataclass(frozen=True, slots=True)
class AgentView:
    """What the agent of a server advertises (`agent_check` in the config).

    Attributes:
        state: In effect: `maint`, `down`, `drain` or a percentage of the weight.
        weight: Part of the weight that is in effect, from 0.
        is_away: Whether the backend should have no clients at once.
        reply: The last reply that could be read; empty: there was none.
        problem: Why there is no reply now; empty while there is.
    """

    state: str
    weight: float
    is_away: bool
    reply: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class BackendView:
    """One backend of one service.

    Attributes:
        name: In the config.
        mac: Destination MAC of its packets.
        egress: Port of the bridge that its packets leave by.
        address: IP address; null where the config has none.
        l4_port: Destination port that its packets get by NAT; null: they keep theirs.
        state: Health.
        is_backup: Whether it has clients only while no other backend of the service serves.
        is_ejected: Whether it has no clients because of its health, its port or maintenance. A backend that is down
            and not ejected is held in service by `max_down`.
        weight: In the config, relative to the other backends.
        weight_in_use: After overrides and slow starts.
        target_share: Share of the clients by `weight_in_use`.
        share: Share of the clients on the bridge.
        flows: Number of its blocks.
        blocks: Number of its blocks by the verdict on their megaflows; empty before the first offload sample.
        traffic: Packets and bytes by megaflows.
        rate: Rates between the last two offload samples.
        ramp: Progress of a slow start; null without one.
        since_s: When `state` last changed.
        reason: Result of the last probe.
        probe_latency_s: Duration of the last probe.
        transitions: How often it came up or went down.
        counted: Packets and bytes by its flows, where megaflows cannot be read.
        changes: How often its state, its weight or the link of its port has changed since the agent started.
        last_change: What changed last and why; empty: nothing has.
        last_change_s: When that was.
        agent: What the agent of its server advertises; null: it is not asked, or has not been yet.
    """

    name: str
    mac: str
    egress: str
    address: str | None
    state: BackendState
    is_ejected: bool
    weight: float
    weight_in_use: float
    target_share: float
    share: float
    flows: int
    blocks: Mapping[Verdict, int]
    traffic: Traffic | None = None
    rate: Rate | None = None
    ramp: float | None = None
    since_s: float | None = None
    reason: str = ""
    probe_latency_s: float | None = None
    transitions: int = 0
    counted: Counted | None = None
    is_backup: bool = False
    changes: int = 0
    last_change: str = ""
    last_change_s: float | None = None
    agent: AgentView | None = None
    l4_port: int | None = None

    @property
    def endpoint(self) -> str:
        """Address, with the port where NAT writes one; empty where the config has none."""
        return "" if self.address is None else f"{self.address}:{self.l4_port}" if self.l4_port else self.address

    @property
    def is_working(self) -> bool:
        """Whether its clients can be taken to be served."""
        return self.state.is_working and (self.agent is None or not self.agent.is_away)

    @property
    def is_held(self) -> bool:
        """Whether it is down and has its clients all the same, by `max_down`."""
        return self.state is BackendState.DOWN and not self.is_ejected


@dataclass(frozen=True, slots=True)
class BlockView:
    """One block of a service: the clients whose `field` under `mask` is `value`.

    Attributes:
        value: Of the field.
        mask: Bits of the field that count.
        start: Where the block begins in the key space, from 0 to 1.
        size: Part of the key space; the blocks of a service add up to 1.
        backend: Name of the backend that has the block.
        field: OpenFlow name of the field, such as nw_src.
        verdict: Where its megaflows run; null before the first offload sample.
    """

    value: int
    mask: int
    start: float
    size: float
    backend: str
    field: str
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True)
class ServiceView:
    """One service.

    Attributes:
        name: In the config.
        service_id: Its id in the flows.
        vips: Its virtual addresses.
        backends: In the order of the config.
        megaflows_predicted: Number of megaflows once every block has had traffic.
        megaflows_seen: Number of megaflows in the last offload sample.
        clients_moved: Share of clients that changed their backend, summed over all changes; may be more than 1.
        draining: Number of blocks whose open connections stay with their old backends for now.
        agents_refused: Why the weights that its servers advertise cannot be installed; empty: they can.
    """

    name: str
    service_id: int
    vips: tuple[str, ...]
    backends: tuple[BackendView, ...]
    megaflows_predicted: int | None = None
    megaflows_seen: int | None = None
    clients_moved: float = 0.0
    draining: int = 0
    agents_refused: str = ""


@dataclass(frozen=True, slots=True)
class PortView:
    """A port of the bridge that the config names.

    Attributes:
        name: In the config.
        ofport: OpenFlow number; null while the port does not work.
        link_up: Whether it has a link; null: unknown.
        error: Why it does not work, by Open vSwitch.
    """

    name: str
    ofport: int | None
    link_up: bool | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class AnnouncementView:
    """A VIP that is to be announced.

    Attributes:
        vip: The address.
        is_announced: Whether the host has a route for it, from which the BGP speaker takes it.
        reason: Why it has none; empty: it has one.
        peers: Number of BGP neighbors that it is advertised to; null: unknown.
        problem: What keeps it from being set, or from being advertised; empty: nothing.
    """

    vip: str
    is_announced: bool
    reason: str = ""
    peers: int | None = None
    problem: str = ""


MOVE_REASONS = ("failed", "congested", "restored", "operator")
"""Why blocks of remotes move between paths."""


class PathState(Enum):
    """What probes say of a path.

    `good`: as fast as the best one. `bad`: slower by more than the margin. `failed`: silent, while others answer.
    `unknown`: no path answers, or there were too few rounds.
    """

    GOOD = "good"
    BAD = "bad"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class PathView:
    """One path to a remote. Times of answers are in seconds.

    Attributes:
        name: `p1`, `p2` and so on, or the uplink.
        port: UDP source port of its probes and, where that selects the path, of its packets.
        hops: The routers on it, separated by commas, `*` for one that is silent; empty: unknown.
        state: By the last rounds.
        excess_s: How much later than the fastest path it answers, the median of the last rounds; null: unknown.
        worst_excess_s: The same, of the slowest of the last rounds.
        answer_s: Its last answer time, there and back.
        lost: Fraction of its probes that were lost since the agent started, 0..1.
        blocks: Number of its blocks.
        restore_s: How long it has to be good until blocks come back.
        bytes: Sent by it, hardware and software, since the first offload sample; null: not counted.
        bps: Bits a second between the last two offload samples; null: not counted.
    """

    name: str
    port: int
    hops: str
    state: PathState
    excess_s: float | None
    worst_excess_s: float | None
    answer_s: float | None
    lost: float
    blocks: int
    restore_s: float
    bytes: int | None = None
    bps: float | None = None


@dataclass(frozen=True, slots=True)
class RemoteView:
    """One remote of a tunnel, and the paths to it.

    Attributes:
        name: Of the tunnel and the remote: `rack7/b`.
        address: Of its end of the tunnel.
        paths: In the order of the config.
        is_unknown: Whether no path answers, so that its blocks stay.
        rounds: Rounds of probes since the agent started.
        interval_s: Time between two rounds.
        margin_s: By how much a path may be slower than the best one.
        forged: Answers that do not carry what was sent, or come from another address.
        returned: Packets of the host that came back: it writes the TOS of probes, so the reflector took them for such.
        tos: Type of service of the last answer; null: there was none.
        tos_sent: Type of service of the probes.
        moves: Blocks that moved since the agent started, by reason: failed, congested, restored, operator.
        last_move: The last blocks that moved together, and why; empty: none did.
        last_move_s: When that was.
        pinned: The only path that an operator lets carry traffic; empty: all may.
        problem: Why it is not probed now; empty: it is.
    """

    name: str
    address: str
    paths: tuple[PathView, ...]
    is_unknown: bool
    rounds: int
    interval_s: float
    margin_s: float
    forged: int = 0
    returned: int = 0
    tos: int | None = None
    tos_sent: int = 0
    moves: Mapping[str, int] = field(default_factory=dict)
    last_move: str = ""
    last_move_s: float | None = None
    pinned: str = ""
    problem: str = ""

    def paths_in(self, state: PathState) -> tuple[str, ...]:
        """Return the names of the paths in this state."""
        return tuple(path.name for path in self.paths if path.state is state)


@dataclass(frozen=True, slots=True)
class PathReason:
    """Why a path to a remote has the blocks that it has.

    Attributes:
        name: Of the path.
        state: By the last rounds.
        blocks: Number of its blocks.
        home: Number of those that it has while all paths are good.
        reason: Why it is in this state, a sentence.
        departure: The last blocks that left it, and why; empty: none did since the agent started.
        departure_s: When that was, UTC.
    """

    name: str
    state: PathState
    blocks: int
    home: int
    reason: str
    departure: str = ""
    departure_s: float | None = None


@dataclass(frozen=True, slots=True)
class BlockReason:
    """Why packets of the host take their path.

    Attributes:
        block: Number of their block: the low bits of their source port.
        path: The path that the block is on.
        home: The path that it has while all are good.
        reason: Why it is there, a sentence.
        moved_s: When it moved there, UTC; null: not since the agent started.
    """

    block: int
    path: str
    home: str
    reason: str
    moved_s: float | None = None


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """Blocks that would move now.

    Attributes:
        remote: Name of the tunnel and the remote.
        path: The path that they are on.
        to: The path that they would go to.
        blocks: How many.
        reason: failed, congested, restored or operator.
    """

    remote: str
    path: str
    to: str
    blocks: int
    reason: str


@dataclass(frozen=True, slots=True)
class Event:
    """One event of the log.

    Attributes:
        time_s: When it was logged.
        level: info or warning.
        text: What happened.
        facts: Details by name.
        number: Counts from 1 at the start of the agent.
    """

    time_s: float
    level: str
    text: str
    facts: Mapping[str, Annotated[object, _Plain]]
    number: int = 0


@dataclass(frozen=True, slots=True)
class Override:
    """A weight or maintenance set at run time. A weight replaces that of the config until the config changes it.

    Attributes:
        service: Name of the service.
        backend: Name of the backend.
        weight: In place of the configured weight; 0 is a drain.
        since_s: When it was set.
        configured: Weight in the config when it was set. Another weight in the config ends the override.
        until_s: When it ends by itself; null: never.
        is_maintenance: Whether the backend is in maintenance: no clients, no health checks.
    """

    service: str
    backend: str
    weight: Annotated[Fraction, _Plain]
    since_s: float
    configured: Annotated[Fraction, _Plain] = Fraction(0)
    until_s: float | None = None
    is_maintenance: bool = False

    @property
    def state(self) -> str:
        """Return what it is: `maintenance`, `drained` or `weight 5`."""
        if self.is_maintenance:
            return "maintenance"
        return f"weight {decimal(self.weight)}" if self.weight else "drained"


@dataclass(frozen=True, slots=True)
class PathPin:
    """All blocks of a remote stay on one path, whatever its state is.

    Attributes:
        remote: Name of the tunnel and of the remote: `rack7/b`.
        path: Name of the path.
    """

    remote: str
    path: str


@dataclass(frozen=True, slots=True)
class Runtime:
    """What operators set at run time.

    Attributes:
        overrides: At most one for each backend.
        is_paused: Whether the bridge is left as it is.
        is_withdrawn: Whether no VIP is announced during the pause.
        pins: At most one for each remote.
        are_moves_paused: Whether blocks of remotes stay on their paths.
    """

    overrides: tuple[Override, ...] = ()
    is_paused: bool = False
    is_withdrawn: bool = False
    pins: tuple[PathPin, ...] = ()
    are_moves_paused: bool = False


@dataclass(frozen=True, slots=True)
class FleetMembership:
    """What an agent knows of its fleet.

    Attributes:
        dpu: The name of this DPU.
        generation: That of the store whose services and blocks are in use.
        newest: The newest generation that this agent has read.
        lost_since_s: When the connection to the store was lost; null while there is one.
        problem: Why the store is not followed; empty while it is.
        report_problem: Why the store has no newest report of this DPU; empty while it has.
    """

    dpu: str
    generation: int
    newest: int
    lost_since_s: float | None = None
    problem: str = ""
    report_problem: str = ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The agent and its bridge at one moment. Counters count from the start of the agent.

    Attributes:
        bridge: Its name.
        config_path: The config file.
        config_digest: Start of the SHA-256 of the config in use.
        started_s: When the agent started.
        now_s: When this snapshot was taken.
        services: In the order of the config.
        is_paused: Whether reconciliation is paused.
        config_problem: Why the newest config is not in use; empty while it is.
        last_error: Why the last reconciliation failed; empty while it did not.
        flows: Number of flows on the bridge.
        rounds: Number of reconciliations that changed flows.
        flow_mods: Number of flows added, changed and deleted.
        reverted: Number of external changes of flows that were reverted.
        reloads: Number of configs that came into use.
        last_round_s: When the bridge was last found as configured, or changed to be so.
        confirm_by_s: When the last change is rolled back unless it is confirmed; null: no change waits.
        sampled_s: When megaflows, or flow counters in place of them, were last read.
        overrides: Weights and drains set at run time.
        events: The last events.
        pending_flow_mods: Flow-mods that wait for the end of a pause.
        ports: Ports of the bridge that the config names; null while the database does not answer.
        ports_problem: Why port and link state is unavailable; empty while it is available.
        candidate: Digest of a newer config that is not in use; empty: there is none.
        rolls_back_to: Digest of the config that is restored at `confirm_by_s`.
        problems: Parts of the config that are not on the bridge, while all else is.
        probes_late_s: How late health checks are sent; 0 while they are on time.
        announcements: The VIPs that are to be announced; empty without `announce` in the config.
        remotes: The remotes of tunnels; empty without `tunnels` with probes in the config.
        are_moves_paused: Whether blocks of remotes stay on their paths.
        fleet: The fleet that this agent belongs to; null: none.
        not_ready: Why this host should get no clients, so that `GET /ready` answers 503; empty: it answers 200.
    """

    bridge: str
    config_path: str
    config_digest: str
    started_s: float
    now_s: float
    services: tuple[ServiceView, ...]
    is_paused: bool = False
    config_problem: str = ""
    last_error: str = ""
    flows: int = 0
    rounds: int = 0
    flow_mods: int = 0
    reverted: int = 0
    reloads: int = 0
    last_round_s: float | None = None
    confirm_by_s: float | None = None
    sampled_s: float | None = None
    overrides: tuple[Override, ...] = ()
    events: tuple[Event, ...] = ()
    pending_flow_mods: int = 0
    ports: tuple[PortView, ...] | None = None
    ports_problem: str = ""
    candidate: str = ""
    rolls_back_to: str = ""
    problems: tuple[str, ...] = ()
    probes_late_s: float = 0.0
    announcements: tuple[AnnouncementView, ...] = ()
    remotes: tuple[RemoteView, ...] = ()
    are_moves_paused: bool = False
    fleet: FleetMembership | None = None
    not_ready: str = ""


@dataclass(frozen=True, slots=True)
class LazySnapshot:
    """One moment of an agent, of which any thread can build the parts that take long.

    Attributes:
        snapshot: Builds the snapshot.
        blocks: Builds the blocks of a service by its name, in the order of the key space.
        command_options: The options that a command needs to reach this agent, after a space; empty: none.
    """

    snapshot: Callable[[], Snapshot]
    blocks: Callable[[str], tuple[BlockView, ...]]
    command_options: str = ""


def to_json(value: object) -> str:
    """Return a dataclass as JSON: the form of all answers of the control API."""
    kind: Any = type(value)
    return json.dumps(_adapter(kind).dump_python(value, mode="json"), separators=(",", ":"))


def parse_snapshot(document: object) -> Snapshot:
    """Read a snapshot from its JSON. Unknown keys are ignored, as the agent may be newer.

    Raises:
        ParseError: It is no snapshot.
    """
    try:
        snapshot: Snapshot = _adapter(Snapshot).validate_python(document)
    except ValueError as error:
        reason = " ".join(str(error).split())[:200]
        raise ParseError(text=str(document)[:80], offset=0, expected=f"the status of an agent ({reason})") from None
    return snapshot


@cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    # Imported here: pydantic takes a quarter of a second, and `--help` does without it.
    from pydantic import TypeAdapter

    return TypeAdapter(kind)
