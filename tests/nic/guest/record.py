"""The record of a scenario: everything that was done and observed, unprocessed. Tests on the host judge it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.nic.guest.frames import Kind
from tests.nic.guest.wire import Arrived


@dataclass(frozen=True, slots=True)
class Burst:
    """Packets that were sent: `packets_each` of every source, `kind` says what they were otherwise, into `port`."""

    port: str
    sources: tuple[str, ...]
    packets_each: int
    kind: Kind
    arrived: dict[str, tuple[Arrived, ...]]
    """What came out of the NIC soon after, by port."""


@dataclass(frozen=True, slots=True)
class Look:
    """What Open vSwitch, traffic control and the NIC said at one moment. `bursts` counts the bursts before."""

    label: str
    bursts: int
    forgotten: int
    """How often OVS has deleted all its megaflows before: counters restart each time."""
    changed: bool
    """Whether an apply has changed flows since: a megaflow with new actions is a new entry of the NIC."""
    megaflows: str
    """`ovs-appctl dpctl/dump-flows -m`."""
    tc: dict[str, list[dict[str, Any]]]
    """`tc -j -s filter show dev PORT ingress`, by port."""
    rules: str
    """The NIC's own rule table: the ground truth."""
    port_counters: str
    """The NIC's own counters of packets that it forwarded by a rule, or gave to the representor."""


@dataclass(frozen=True, slots=True)
class Said:
    """The output of `xenoovs` in the guest, after `bursts` bursts."""

    argv: tuple[str, ...]
    bursts: int
    exit_code: int
    stdout: str
    stderr: str
    archive: str = ""
    """What it asked, as `xenoovs record` writes it, in base64; empty: it does more than judge."""


@dataclass(frozen=True, slots=True)
class Traces:
    """What `xenoovs` might change: filters of traffic control, entries of the NIC, log levels of ovs-vswitchd."""

    filters: str
    """`tc filter show dev PORT ingress` of all ports, without counters."""
    rules: int
    log_levels: str
    """`ovs-appctl vlog/list`."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The output of `xenoovs` about the moment of one look, and what it might have changed."""

    label: str
    """Of the look."""
    said: dict[str, Said]
    """By command: `verify-offload`, `why`, `doctor`, `trace`; `why of a client` where there is more to explain."""
    before: Traces
    after: Traces
    archive: str
    """What `xenoovs record` wrote at this moment, in base64; empty where it was not asked."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment of a stream, between two of its packets. `second`: of the stream; `sent`: packets before."""

    label: str
    second: float
    sent: int
    rules: str
    port_counters: str
    """Both as in `Look`."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """A packet of a stream that came out of `port`: its number (from 0) and its destination MAC."""

    number: int
    port: str
    mac: str


@dataclass(frozen=True, slots=True)
class Streamed:
    """One stream: packet N was of source N modulo their number. `delivered` has a packet as often as it came out."""

    sources: tuple[str, ...]
    marks: tuple[Mark, ...]
    delivered: tuple[Delivered, ...]


@dataclass(frozen=True, slots=True)
class Round:
    """Cases of `tests/nic/generated.py` that were judged together, while packets came between the two samples."""

    megaflows: str
    """`ovs-appctl dpctl/dump-flows -m`, afterwards."""
    tc: dict[str, list[dict[str, Any]]]
    before: str
    after: str
    """The NIC's own rule table before and after these packets."""
    verify: Said
    why: Said


@dataclass(slots=True)
class Record:
    """One scenario."""

    program: str = ""
    """The flows of the balancer, by `xenoovs validate --flows`."""
    bursts: list[Burst] = field(default_factory=list)
    streams: list[Streamed] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    said: list[Said] = field(default_factory=list)
    judgements: list[Judgement] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    rules_left: str = ""
    """The NIC's rule table after OVS has removed its bridge."""
    ovs_log: list[str] = field(default_factory=list)
    kernel_log: list[str] = field(default_factory=list)
    """Lines of dmesg; the NIC says here which rule it refused, and why."""
    error: str | None = None
    """The traceback when the scenario did not reach its end."""
    seconds: float = 0.0
