"""The tables of an agent: its state at one moment, its services, backends, blocks, ports and VIPs.

Times are seconds since 1970 (UTC). Shares are from 0 to 1. `agent/snapshot_builder.py` fills them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from fractions import Fraction
from functools import partial

from xenoovs import __version__
from xenoovs.dataclass import dataclass
from xenoovs.datapath.megaflow import Verdict
from xenoovs.display import decimal, duration, percent, quantity, span
from xenoovs.errors import counted
from xenoovs.show.codec import parse
from xenoovs.show.column import (
    Column,
    Kind,
    Metric,
    Row,
    Table,
    column,
    columns_of,
    computed,
    counter,
    gauge,
    number,
    record,
    text,
)
from xenoovs.show.paths import PathView, RemoteView


class BackendState(Enum):
    """State of a backend. `unchecked`: its service has no health check. `drained`: an operator gave it weight 0.
    `maintenance`: an operator took it out of service; it is not probed."""

    UP = "up"
    DOWN = "down"
    UNCHECKED = "unchecked"
    DRAINED = "drained"
    MAINTENANCE = "maintenance"

    @property
    def is_working(self) -> bool:
        """Return whether the backend is assumed to serve its clients."""
        return self not in (BackendState.DOWN, BackendState.MAINTENANCE)


@record
class Traffic:
    """Packets and bytes of one backend, in hardware and in software, since the first offload sample."""

    hw_packets: int = column("Packets in hardware.", default=0)
    hw_bytes: int = column("Bytes in hardware.", default=0)
    sw_packets: int = column("Packets in software.", default=0)
    sw_bytes: int = column("Bytes in software.", default=0)

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.hw_packets + other.hw_packets,
            self.hw_bytes + other.hw_bytes,
            self.sw_packets + other.sw_packets,
            self.sw_bytes + other.sw_bytes,
        )


@record
class Counted:
    """Packets and bytes of one backend by the counters of its flows, if megaflows cannot be read."""

    packets: int = column("Packets sent to it.", default=0)
    bytes: int = column("Bytes sent to it.", default=0)

    def __add__(self, other: Counted) -> Counted:
        return Counted(self.packets + other.packets, self.bytes + other.bytes)


@record
class Rate:
    """Rates of one backend between the last two offload samples."""

    pps: float = column("Packets a second.")
    hw_pps: float | None = column("Of these, packets a second in hardware; null if megaflows cannot be read.")
    bps: float = column("Bits a second.")


@record
class Insertion:
    """Rules on their way into the NIC, as ovs-vswitchd counts them for its userspace datapath."""

    enqueued: int | None = column("Rules that wait for insertion.", gauge("xenoovs_nic_rules_waiting"))
    inserted: int | None = column("Rules that are inserted.", gauge("xenoovs_nic_rules_inserted"))
    latency_s: float | None = column(
        "Moving average of the time to insert a rule.", gauge("xenoovs_nic_insertion_latency_seconds")
    )
    pipe_resizes: int = column(
        "Resizes of pipes of OVS-DOCA; insertions wait.", counter("xenoovs_nic_pipe_resizes_total")
    )
    upcall_drops: int = column(
        "Packets that were dropped because their upcall failed.", counter("xenoovs_upcall_drops_total")
    )


def hw_share(rates: Iterable[Rate]) -> float | None:
    """Return the share of the packets of these rates in hardware; None if there were none, or it is unknown."""
    known = [(rate.pps, rate.hw_pps) for rate in rates if rate.hw_pps is not None]
    packets = sum(pps for pps, _ in known)
    return sum(hw_pps for _, hw_pps in known) / packets if packets else None


@record
class AgentView:
    """What the agent of a server advertises (`agent_check` in the config)."""

    state: str = column("State in effect: `maint`, `down`, `drain` or a percentage of the weight.")
    weight: float = column("Part of the weight that is in effect, from 0.")
    is_away: bool = column("Whether the backend should have no clients at once.")
    reply: str = column("The last reply that could be read; empty if there was none.")
    problem: str = column("Why there is no reply now; empty while there is.", default="")


# Backends.


_STYLES = {
    BackendState.UP: "good",
    BackendState.DOWN: "bad",
    BackendState.UNCHECKED: "quiet",
    BackendState.DRAINED: "warn",
    BackendState.MAINTENANCE: "warn",
}


def _state(row: Row[BackendView]) -> str:
    """Return the state of a backend, and in brackets: held, in a slow start, what its agent advertises, or backup."""
    backend = row.value
    more = " (held)" if backend.is_held else " (ramp)" if backend.ramp is not None else ""
    if backend.agent is not None and backend.agent.state in ("drain", "down", "maint"):
        more = f" (agent: {backend.agent.state})"
    more = more or (" (backup)" if backend.is_backup else "")
    return backend.state.value + more


def _since(row: Row[BackendView]) -> str:
    return duration(None if row.value.since_s is None else row.now_s - row.value.since_s)


def _weight(row: Row[BackendView]) -> str:
    used, configured = decimal(row.value.weight_in_use), decimal(row.value.weight)
    return used if used == configured else f"{used}/{configured}"


def _last_change(row: Row[BackendView]) -> str:
    backend = row.value
    if backend.last_change_s is None:
        return "-"
    return f"{duration(row.now_s - backend.last_change_s)} ago: {backend.last_change}"


def _probe(row: Row[BackendView]) -> str:
    reason, latency_s = row.value.reason or "-", row.value.probe_latency_s
    return reason if latency_s is None else f"{reason}, {span(latency_s)}"


def traffic_share(row: Row[BackendView]) -> float | None:
    """Return the backend's share of the packets of its service, by rates; None if there were none."""
    total = sum(rate.pps for rate in row.parent.rates)
    return None if row.value.rate is None or not total else row.value.rate.pps / total


_BAR = 20


def _bar(row: Row[BackendView]) -> str:
    """Return a bar that is filled to the share of the traffic and has a mark at the target."""
    filled = round((traffic_share(row) or 0.0) * _BAR)
    cells = ["█" if place < filled else "░" for place in range(_BAR)]
    cells[min(round(row.value.target_share * _BAR), _BAR - 1)] = "┃"
    return "".join(cells)


def _by_path(backend: BackendView, *, unit: str) -> dict[str, float]:
    """Return a counter by path: hardware and software, or unknown without megaflows."""
    found = {}
    if backend.traffic is not None:
        found["hardware"] = getattr(backend.traffic, f"hw_{unit}")
        found["software"] = getattr(backend.traffic, f"sw_{unit}")
    if backend.counted is not None:
        found["unknown"] = getattr(backend.counted, unit)
    return found


@record
class BackendView:
    """One backend of one service."""

    service = Column(of=lambda row: row.parent.name, shown=text("SERVICE"))
    name: str = column("Name in the config.", shown=text("BACKEND", live=12))
    mac: str = column("Destination MAC of its packets.")
    egress: str = column("Port of the bridge that its packets leave by.")
    address: str | None = column("IP address; null if the config has none.")
    endpoint_cell = Column(
        of=lambda row: row.value.endpoint or "-",
        shown=text("ADDRESS", only_if=lambda row: row.value.l4_port is not None),
    )
    state: BackendState = column(
        "Health.",
        gauge(
            "xenoovs_backend_state",
            "1 for the state of the backend; the other states are absent.",
            lambda v: {v.state.value: 1},
            ("state",),
        ),
        gauge(
            "xenoovs_backend_up",
            "0 while the health check says that the backend is down, else 1.",
            lambda v: v.state is not BackendState.DOWN,
        ),
    )
    state_cell = Column(of=_state, shown=text("STATE", live=12, style=lambda row: _STYLES[row.value.state]))
    since_cell = Column(of=_since, shown=text("SINCE", live=9))
    is_ejected: bool = column(
        "Whether a backend has no clients because of its health, its port or maintenance. A backend that is down and "
        "not ejected is held in service by `max_down`.",
        gauge("xenoovs_backend_ejected"),
    )
    weight: float = column("Weight in the config, relative to the other backends.", gauge("xenoovs_backend_weight"))
    weight_in_use: float = column("Weight after overrides and slow starts.", gauge("xenoovs_backend_weight_in_use"))
    weight_cell = Column(of=_weight, shown=number("WEIGHT", live=7))
    target_share: float = column(
        "Share of the clients by weight in use (0-1).",
        gauge("xenoovs_backend_target_share_ratio"),
        shown=number("TARGET", percent, keep=5, live=7),
    )
    share: float = column(
        "Share of the clients on the bridge (0-1).",
        gauge("xenoovs_backend_share_ratio"),
        shown=number("SHARE", percent),
    )
    flows: int = column("Blocks of the backend.", gauge("xenoovs_backend_flows"), shown=number("BLOCKS", keep=3))
    blocks: Mapping[Verdict, int] = column(
        "Number of its blocks by the verdict on their megaflows; empty before the first offload sample.",
        gauge(
            "xenoovs_backend_blocks",
            of=lambda v: {verdict.value: count for verdict, count in v.blocks.items()},
            labels=("verdict",),
        ),
    )
    traffic: Traffic | None = column(
        "Packets and bytes by megaflows.",
        counter(
            "xenoovs_backend_packets_total",
            "Packets sent to the backend; `path` is hardware or software, or unknown for a switch on another host.",
            partial(_by_path, unit="packets"),
            ("path",),
        ),
        counter(
            "xenoovs_backend_bytes_total",
            "Bytes sent to the backend; traffic control in software omits 14 bytes of each frame.",
            partial(_by_path, unit="bytes"),
            ("path",),
        ),
        default=None,
    )
    rate: Rate | None = column("Rates between the last two offload samples.", default=None)
    traffic_cell = Column(of=traffic_share, shown=number("TRAFFIC", percent, live=8, in_tables=False))
    pps_cell = Column(
        of=lambda row: row.value.rate and row.value.rate.pps, shown=number("PPS", quantity, keep=6, live=6)
    )
    bps_cell = Column(
        of=lambda row: row.value.rate and row.value.rate.bps, shown=number("BPS", quantity, keep=4, live=6)
    )
    hw_cell = Column(of=lambda row: row.value.hw_share, shown=number("IN HW", percent, keep=7, live=7))
    bar_cell = Column(
        of=_bar, shown=text("TRAFFIC | TARGET", live=_BAR + 2, live_from=112, in_tables=False, style=lambda _: "note")
    )
    ramp: float | None = column(
        "Progress of its slow start (0-1); none without one.", gauge("xenoovs_backend_ramp_ratio"), default=None
    )
    since_s: float | None = column("When `state` last changed.", default=None)
    reason: str = column("Result of the last probe.", default="")
    probe_latency_s: float | None = column(
        "Duration of its last probe.", gauge("xenoovs_backend_probe_latency_seconds"), default=None
    )
    transitions: int = column(
        "How often the backend came up or went down.", counter("xenoovs_backend_transitions_total"), default=0
    )
    counted: Counted | None = column(
        "Packets and bytes by the counters of its flows, if megaflows cannot be read.", default=None
    )
    is_backup: bool = column(
        "Whether the backend has clients only while no other backend of the service serves.",
        gauge("xenoovs_backend_backup"),
        default=False,
    )
    changes: int = column(
        "How often the state, the weight or the port's link of a backend has changed since the agent started.",
        counter("xenoovs_backend_changes_total"),
        default=0,
        shown=number("CHANGES", keep=2),
    )
    last_change: str = column("What changed last and why; empty if nothing has.", default="")
    last_change_s: float | None = column(
        "When its state, weight or link last changed, in seconds since 1970; none before the first change.",
        gauge("xenoovs_backend_last_change_timestamp_seconds"),
        default=None,
    )
    last_change_cell = Column(of=_last_change, shown=text("LAST CHANGE", keep=1))
    probe_cell = Column(of=_probe, shown=text("PROBE", live=12, live_from=112))
    agent: AgentView | None = column(
        "What the agent of its server advertises; null without `agent_check`, or before the first query.",
        gauge(
            "xenoovs_backend_agent_up",
            "1 while the agent of its server replies, else 0; absent without `agent_check`.",
            lambda v: None if v.agent is None else not v.agent.problem,
        ),
        gauge(
            "xenoovs_backend_agent_weight_ratio",
            "Part of its weight that the agent of its server advertises, as in effect; absent without `agent_check`.",
            lambda v: None if v.agent is None else v.agent.weight,
        ),
        default=None,
    )
    l4_port: int | None = column(
        "Destination port that NAT writes into its packets; null if they keep theirs.", default=None
    )

    @property
    def endpoint(self) -> str:
        """The address, with the port if NAT writes one; empty if the config has no address."""
        return "" if self.address is None else f"{self.address}:{self.l4_port}" if self.l4_port else self.address

    @property
    def is_working(self) -> bool:
        """Return whether the backend is assumed to serve its clients."""
        return self.state.is_working and (self.agent is None or not self.agent.is_away)

    @property
    def is_held(self) -> bool:
        """Return whether the backend is down, but kept in service by `max_down`."""
        return self.state is BackendState.DOWN and not self.is_ejected

    @property
    def hw_share(self) -> float | None:
        """Share of its packets in hardware, by rates; None if there were none, or it is unknown."""
        return hw_share(() if self.rate is None else (self.rate,))

    @property
    def software_pps(self) -> float:
        """Packets a second that are not known to be in hardware; -1 without rates."""
        return -1.0 if self.rate is None else self.rate.pps - (self.rate.hw_pps or 0.0)


@record
class BlockView:
    """One block of a service: the clients whose `field` under `mask` is `value`."""

    value: int = column("Value of the field.")
    mask: int = column("Bits of the field that the block matches.")
    start: float = column("Where the block begins in the key space, from 0 to 1.")
    size: float = column("Part of the key space; the blocks of a service add up to 1.")
    backend: str = column("Name of the backend that has the block.")
    field: str = column("OpenFlow name of the field, such as nw_src.")
    verdict: Verdict | None = column(
        "Where its megaflows run; null before the first offload sample.",
        gauge(
            "xenoovs_block_verdict",
            "1 for each block: the clients whose address under `mask` is `value`.",
            lambda v: {} if v.verdict is None else {(f"{v.value:#x}", f"{v.mask:#x}", v.verdict.value): 1},
            ("value", "mask", "verdict"),
        ),
        default=None,
    )


# Services.


_MIN_SHARE = 1e-9
"""A smaller share is a rounding error: the smallest block is 2**-16 of a service."""


@record
class ServiceView:
    """One service."""

    name: str = column("Name in the config.")
    service_id: int = column("Its id in the flows.")
    vips: tuple[str, ...] = column("Its virtual addresses.")
    backends: tuple[BackendView, ...] = column("Backends in the order of the config.")
    megaflows_predicted: int | None = column(
        "Megaflows once every block has had traffic, from one client-side MAC.",
        gauge("xenoovs_service_megaflows_predicted"),
        default=None,
    )
    megaflows_seen: int | None = column(
        "Megaflows of the service in the last offload sample.", gauge("xenoovs_service_megaflows"), default=None
    )
    offload = computed(
        "Fraction of packets forwarded in hardware since the previous sample (0-1); absent if there were none.",
        gauge("xenoovs_service_offload_ratio"),
        of=lambda service: service.hw_share,
    )
    clients_moved: float = column(
        "Share of clients that changed their backend, summed over all changes: 1 is every client once.",
        counter("xenoovs_service_clients_moved_total"),
        default=0.0,
    )
    unanswered_share = computed(
        "Share of clients (0-1) that have no backend, or one that is down.",
        gauge("xenoovs_service_unanswered_ratio"),
        of=lambda service: service.unanswered,
    )
    draining: int = column(
        "Blocks whose open connections stay with their old backends for now.",
        gauge("xenoovs_service_draining_blocks"),
        default=0,
    )
    agents_refused: str = column(
        "Why the weights that its servers advertise cannot be installed; empty if they can.", default=""
    )

    @property
    def rates(self) -> tuple[Rate, ...]:
        """The rates of its backends that have one."""
        return tuple(backend.rate for backend in self.backends if backend.rate is not None)

    @property
    def hw_share(self) -> float | None:
        """Share of its packets in hardware; None if there were none, or it is unknown."""
        return hw_share(self.rates)

    @property
    def facts(self) -> Iterator[str]:
        """What is known of the service besides its backends, in words."""
        if self.hw_share is not None:
            yield f"{percent(self.hw_share)} in hardware"
        if self.megaflows_predicted is not None:
            predicted = self.megaflows_predicted
            seen = predicted if self.megaflows_seen is None else self.megaflows_seen
            more = "" if self.megaflows_seen is None else f", {predicted}"
            yield f"{counted(seen, 'megaflow')}{more} predicted"
        if self.draining:
            yield f"{counted(self.draining, 'block')} draining"

    @property
    def unanswered(self) -> float:
        """Share of the clients, 0..1, that have no backend, or one that is down."""
        found = 1 - sum(backend.share for backend in self.backends if backend.is_working)
        return found if found > _MIN_SHARE else 0.0

    @property
    def on_backups(self) -> tuple[str, ...]:
        """Names of the backups that have clients, because no other backend of the service serves."""
        return tuple(backend.name for backend in self.backends if backend.is_backup and backend.share > _MIN_SHARE)


# The agent.


@record
class PortView:
    """A port of the bridge that the config names."""

    name: str = column("Name in the config.")
    ofport: int | None = column("OpenFlow number; null while the port does not work.")
    link_up: bool | None = column(
        "Whether it has a link; null if unknown.",
        gauge(
            "xenoovs_port_up",
            "1 while a port of the config works and has a link, and a BFD session that is up if BFD is configured.",
            lambda v: not v.problem,
        ),
    )
    error: str = column("Why it does not work, as Open vSwitch reports it.", default="")
    bfd: str = column("State of its BFD session, and why it is not up; empty if the config has none.", default="")

    @property
    def problem(self) -> str:
        """Why the port carries no packets, as a sentence; empty if no reason is known."""
        if self.ofport is None:
            return f"port {self.name} does not work: {self.error or 'it is not on the bridge'}"
        if self.link_up is False:
            return f"port {self.name} has no link"
        return "" if self.bfd in ("", "up") else f"BFD of port {self.name} is {self.bfd}"


@record
class SwitchMove:
    """Blocks of a backend that a group of the switch sends elsewhere, as their port is dead."""

    service: str = column("Its service.")
    backend: str = column("The backend that the blocks belong to.")
    to: str = column("The backend that has their clients now; empty if packets are dropped.")
    blocks: int = column(
        "How many blocks.",
        gauge(
            "xenoovs_switch_moved_blocks",
            "Blocks that groups of the switch send to another backend; `to` is empty if packets are dropped.",
        ),
    )
    text: str = column("The same as a sentence.")
    since_s: float | None = column(
        "When the switch moved the clients; null without an agent, or if the agent did not know its ports yet.",
        gauge(
            "xenoovs_switch_moved_timestamp_seconds",
            "When the switch moved the clients, in seconds since 1970; absent if the agent did not know its ports yet.",
        ),
        default=None,
    )


@record
class AnnouncementView:
    """A VIP that the config announces."""

    vip: str = column("The address.")
    is_announced: bool = column(
        "Whether the host has a route to the VIP, from which the BGP speaker takes the address.",
        gauge("xenoovs_vip_announced"),
    )
    reason: str = column("Why it has no route; empty if it has one.", default="")
    peers: int | None = column(
        "BGP neighbors that the VIP is advertised to; none while unknown.",
        gauge("xenoovs_vip_bgp_neighbors"),
        default=None,
    )
    problem: str = column("Why the route cannot be set, or the VIP is not advertised; empty if neither.", default="")


@record
class Event:
    """One event of the log."""

    time_s: float = column("When it was logged.")
    level: str = column("info or warning.")
    text: str = column("What happened.")
    facts: Mapping[str, object] = column("Details by name.")
    number: int = column("Counts from 1 at the start of the agent.", default=0)


@record
class Override:
    """A weight or maintenance set at run time. A weight replaces that of the config until the config changes it."""

    service: str = column("Name of the service.")
    backend: str = column("Name of the backend.")
    weight: Fraction = column("Weight in place of the configured one; 0 is a drain.")
    since_s: float = column("When it was set.")
    configured: Fraction = column(
        "Weight in the config when it was set. Another weight in the config ends the override.", default=Fraction(0)
    )
    until_s: float | None = column("When it ends by itself; null if never.", default=None)
    is_maintenance: bool = column("Whether the backend is in maintenance: no clients, no health checks.", default=False)

    @property
    def name(self) -> tuple[str, str]:
        """Names of the service and of the backend."""
        return self.service, self.backend

    @property
    def state(self) -> str:
        """Return what it is: `maintenance`, `drained` or `weight 5`."""
        if self.is_maintenance:
            return "maintenance"
        return f"weight {decimal(self.weight)}" if self.weight else "drained"


@record
class FleetMembership:
    """The state of an agent as a member of a fleet."""

    dpu: str = column("The name of this DPU.")
    generation: int = column("Generation of the store whose services and blocks are in use.")
    newest: int = column("The newest generation that this agent has read.")
    lost_since_s: float | None = column(
        "When the connection to the store was lost; null while there is one.", default=None
    )
    problem: str = column("Why the store is not followed; empty while it is.", default="")
    report_problem: str = column("Why the store has no newest report of this DPU; empty while it has.", default="")
    withheld: str = ""
    """Why the fleet keeps clients away from this host, which only `/ready` shows; empty if it does not."""


@record
class Snapshot:
    """The agent and its bridge at one moment. Counters count from the start of the agent."""

    info = computed(
        "",
        gauge("xenoovs_build_info", "Version of the agent; always 1.", lambda _: {__version__: 1}, ("version",)),
        gauge(
            "xenoovs_config_info",
            "Config in use, with the start of its SHA-256; always 1.",
            lambda s: {(s.config_digest, s.config_path, s.bridge): 1},
            ("digest", "path", "bridge"),
        ),
    )
    bridge: str = column("Name of the bridge.")
    config_path: str = column("The config file.")
    config_digest: str = column("Start of the SHA-256 of the config in use.")
    started_s: float = column("When the agent started, in seconds since 1970.", gauge("xenoovs_start_time_seconds"))
    now_s: float = column("When this snapshot was taken.")
    services: tuple[ServiceView, ...] = column("Its services in the order of the config.")
    is_paused: bool = column("Whether reconciliation is paused.", gauge("xenoovs_paused"), default=False)
    config_problem: str = column(
        "Why the newest config is not in use; empty while it is.",
        gauge(
            "xenoovs_config_bad",
            "1 while the config file has a newer text that is rejected; the previous config stays in use.",
            lambda s: bool(s.config_problem),
        ),
        default="",
    )
    last_error: str = column(
        "Why the last reconciliation failed; empty while it did not.",
        gauge("xenoovs_round_failed", "1 while reconciliation fails.", lambda s: bool(s.last_error)),
        gauge(
            "xenoovs_error_info",
            "Why reconciliation fails, or a part of the config is not installed; absent without errors.",
            lambda s: {reason: 1 for reason in (s.last_error, *s.problems) if reason},
            ("reason",),
        ),
        default="",
    )
    flows: int = column("Flows of xenoovs on the bridge.", gauge("xenoovs_flows"), default=0)
    rounds: int = column("Reconciliations that changed flows.", counter("xenoovs_rounds_total"), default=0)
    flow_mods: int = column("Flows added, changed and deleted.", counter("xenoovs_flow_mods_total"), default=0)
    reverted: int = column(
        "External changes of flows of xenoovs that were reverted.", counter("xenoovs_foreign_changes_total"), default=0
    )
    reloads: int = column(
        "Configs that came into use since the start.", counter("xenoovs_config_reloads_total"), default=0
    )
    last_round_s: float | None = column(
        "When the bridge was last found as configured, or changed to be so, in seconds since 1970.",
        gauge("xenoovs_last_round_timestamp_seconds"),
        default=None,
    )
    confirm_by_s: float | None = column(
        "When the last change is rolled back unless confirmed; none while no change waits.",
        gauge("xenoovs_confirm_deadline_timestamp_seconds"),
        default=None,
    )
    sampled_s: float | None = column(
        "When megaflows, or flow counters in their place, were last read, in seconds since 1970.",
        gauge("xenoovs_offload_sample_timestamp_seconds"),
        default=None,
    )
    insertion: Insertion | None = column(
        "Rules on their way into the NIC; null except for the userspace datapath.", default=None
    )
    overrides: tuple[Override, ...] = column(
        "Weights and drains set at run time.", gauge("xenoovs_overrides", of=lambda s: len(s.overrides)), default=()
    )
    events: tuple[Event, ...] = column("The last events.", default=())
    pending_flow_mods: int = column("Flow-mods that wait for the end of a pause.", default=0)
    ports: tuple[PortView, ...] | None = column(
        "Ports of the bridge that the config names; null while the database does not answer.", default=None
    )
    moved_by_switch: tuple[SwitchMove, ...] = column(
        "Blocks that groups of the switch send elsewhere because ports are dead.", default=()
    )
    ports_problem: str = column("Why port and link state is unavailable; empty while it is available.", default="")
    candidate: str = column("Digest of a newer config that is not in use; empty if none.", default="")
    rolls_back_to: str = column("Digest of the config that is restored at `confirm_by_s`.", default="")
    problems: tuple[str, ...] = column(
        "Parts of the config that are not on the bridge, while all else is.",
        gauge("xenoovs_problems", of=lambda s: len(s.problems)),
        default=(),
    )
    probes_late_s: float = column(
        "Delay of health checks; 0 while all are on time.", gauge("xenoovs_probe_delay_seconds"), default=0.0
    )
    announcements: tuple[AnnouncementView, ...] = column(
        "The VIPs that the config announces; empty without `announce` in the config.", default=()
    )
    remotes: tuple[RemoteView, ...] = column(
        "The remotes of tunnels; empty without `tunnels` with probes in the config.", default=()
    )
    are_moves_paused: bool = column(
        "Whether blocks of remotes stay on their paths.", gauge("xenoovs_path_moves_paused"), default=False
    )
    fleet: FleetMembership | None = column("The fleet that this agent belongs to; null if none.", default=None)
    not_ready: str = column(
        "Why this host should get no clients, so that `GET /ready` answers 503; empty if it answers 200.", default=""
    )

    @property
    def backends(self) -> Iterator[BackendView]:
        """The backends of all services."""
        return (backend for service in self.services for backend in service.backends)


@dataclass(frozen=True, slots=True)
class LazySnapshot:
    """The state of an agent at one moment. Parts that take long are built on request, by any thread. `blocks`: builds
    the blocks of a service by its name, in the order of the key space. `command_options`: the options that a command
    needs to reach this agent, after a space; empty if none."""

    snapshot: Callable[[], Snapshot]
    blocks: Callable[[str], tuple[BlockView, ...]]
    command_options: str = ""


def parse_snapshot(document: object) -> Snapshot:
    """Read a snapshot from its JSON. Raises ParseError."""
    return parse(Snapshot, document, "the status of an agent")


def backend_rows(snapshot: Snapshot) -> Iterator[Row[BackendView]]:
    """Yield all backends in the order of the config."""
    for service in snapshot.services:
        yield from (Row(backend, service, snapshot.now_s) for backend in service.backends)


def totals(snapshot: Snapshot) -> dict[str, str]:
    """Return sums over all backends, as text, `-` if there is nothing to sum.

    They are the share of packets in hardware, packets and bits a second, the backends that are up of those with a
    health check, and the age of the last offload sample.
    """
    rates = [backend.rate for backend in snapshot.backends if backend.rate is not None]
    states = [backend.state for backend in snapshot.backends]
    up, down = states.count(BackendState.UP), states.count(BackendState.DOWN)
    return {
        "in_hw": percent(hw_share(rates)),
        "pps": quantity(sum(rate.pps for rate in rates) if rates else None),
        "bps": quantity(sum(rate.bps for rate in rates) if rates else None),
        "up": f"{up}/{up + down}" if up + down else "-",
        "sampled": duration(None if snapshot.sampled_s is None else snapshot.now_s - snapshot.sampled_s),
    }


# The tables.


TABLES = (
    Table(lambda shown: [((), shown)], columns_of(Snapshot)),
    Table(lambda shown: [((), one)] if (one := shown.insertion) else [], columns_of(Insertion)),
    Table(lambda shown: (((port.name,), port) for port in shown.ports or ()), columns_of(PortView), ("port",)),
    Table(
        lambda shown: (((move.service, move.backend, move.to), move) for move in shown.moved_by_switch),
        columns_of(SwitchMove),
        ("service", "backend", "to"),
    ),
    Table(lambda shown: (((view.vip,), view) for view in shown.announcements), columns_of(AnnouncementView), ("vip",)),
    Table(lambda shown: (((each.name,), each) for each in shown.services), columns_of(ServiceView), ("service",)),
    Table(
        lambda shown: (((row.parent.name, row.value.name), row.value) for row in backend_rows(shown)),
        columns_of(BackendView),
        ("service", "backend"),
    ),
    Table(lambda shown: (((each.name,), each) for each in shown.remotes), columns_of(RemoteView), ("remote",)),
    Table(
        lambda shown: (((remote.name, path.name), path) for remote in shown.remotes for path in remote.paths),
        columns_of(PathView),
        ("remote", "path"),
    ),
)
"""The tables of a Snapshot."""
BLOCKS = Table(
    lambda services: (((name, block.backend), block) for name, blocks in services for block in blocks),
    columns_of(BlockView),
    ("service", "backend"),
)
"""The table of pairs of a service's name and its blocks. Its metrics are thousands of series."""

_WORK_BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_histogram = partial(Metric, kind=Kind.HISTOGRAM)
HISTOGRAMS = (
    _histogram(
        "xenoovs_plan_duration_seconds", "Time to read the bridge and to compute the difference.", buckets=_WORK_BUCKETS
    ),
    _histogram(
        "xenoovs_apply_duration_seconds", "Time to change the bridge and to read its flows back.", buckets=_WORK_BUCKETS
    ),
    _histogram(
        "xenoovs_probe_duration_seconds",
        "Duration of probes; `result` is ok or failed.",
        labels=("probe", "result"),
        buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0),
    ),
)
