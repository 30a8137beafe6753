"""What the agent knows at one moment, as values: what `status`, `top`, the metrics and the page are made of.

Whoever shows something reads a snapshot; nobody reaches into the agent. Times are seconds since 1970 (UTC).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from fractions import Fraction
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from xenoovs.datapath.megaflow import Verdict
from xenoovs.errors import ParseError


class BackendState(Enum):
    """`unchecked`: its service has no health check. `drained`: an operator took its clients away."""

    UP = "up"
    DOWN = "down"
    UNCHECKED = "unchecked"
    DRAINED = "drained"


@dataclass(frozen=True, slots=True)
class Traffic:
    """Packets and bytes of one backend in the NIC and in software, since the agent started to look; never less."""

    hw_packets: int = 0
    hw_bytes: int = 0
    sw_packets: int = 0
    sw_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Counted:
    """Packets and bytes of one backend by the counters of its flows, since the agent started to look; never less.

    Where nobody can look at the datapath: nothing is said of where they were forwarded.
    """

    packets: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Rate:
    """Of one backend between the last two looks: packets a second, of these in the NIC, and bits a second.

    hw_pps: None where nobody can look at the datapath.
    """

    pps: float
    hw_pps: float | None
    bps: float


@dataclass(frozen=True, slots=True)
class BackendView:
    """One backend of one service.

    weight:          of the config; weight_in_use: after overrides and ramps. Relative numbers.
    share_wanted:    0..1, by `weight_in_use`; share_installed: 0..1, of the address space on the bridge.
    blocks:          how many blocks lead to it, by the verdict on their megaflows; empty while nobody has looked.
    is_out:          gets no clients now, by its health (a backend may be down and yet keep its clients: `max_down`).
    ramp:            0..1, how far a slow start has come; None: none under way.
    since_s:         when `state` became what it is; None: not known.
    reason:          of the last probe.
    traffic:         by looks at the datapath; counted: by the flows, where there are no such looks.
    """

    name: str
    mac: str
    egress: str
    address: str | None
    state: BackendState
    is_out: bool
    weight: float
    weight_in_use: float
    share_wanted: float
    share_installed: float
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


@dataclass(frozen=True, slots=True)
class BlockView:
    """One block of a service: clients whose `field` under `mask` is `value`. `verdict`: None while nobody has looked.

    field: of their packets, by its name in OpenFlow, such as nw_src.
    start, size: where it lies when the bits in use are read as one number, 0..1; the blocks of a service fill 0..1.
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
    """One service. `draining`: blocks whose open connections stay where they are for now."""

    name: str
    service_id: int
    vips: tuple[str, ...]
    backends: tuple[BackendView, ...]
    megaflows_predicted: int | None = None
    megaflows_seen: int | None = None
    clients_moved: float = 0.0
    draining: int = 0


@dataclass(frozen=True, slots=True)
class PortView:
    """A port of the bridge that the config names. `ofport`: None while it does not work; `link_up`: None: not told."""

    name: str
    ofport: int | None
    link_up: bool | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened. `facts`: as the log has them; `number`: counts from 1 at the start of the agent."""

    time_s: float
    level: str
    text: str
    facts: Mapping[str, object]
    number: int = 0


@dataclass(frozen=True, slots=True)
class Override:
    """What an operator set at run time, which goes before the config until the config changes just that.

    weight:     in place of the configured one; 0 is a drain.
    configured: the weight of the config when it was set: another one there ends the override.
    """

    service: str
    backend: str
    weight: Fraction
    since_s: float
    configured: Fraction = Fraction(0)


@dataclass(frozen=True, slots=True)
class Runtime:
    """What operators set at run time.

    Attributes:
        overrides: At most one for each backend.
        is_paused: Whether the bridge is left as it is.
    """

    overrides: tuple[Override, ...] = ()
    is_paused: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything. Counters (`rounds`, `flow_mods`, `foreign`, `reloads`) count from the start of the agent.

    held:           flow-mods that a pause holds back.
    ports:          of the bridge, as the database of Open vSwitch tells them; None while it does not answer.
    ports_problem:  why it does not answer; empty while it does, and until it was asked.
    probes_late_s:  how late health checks are sent; 0 while they are on time.
    config_problem: why the newest text of the config is not in use; last_error: why the bridge is not right.
    candidate:      digest of a newer text that is not in use: refused, or still to be tried; empty: there is none.
    confirm_by_s:   when the program rolls back unless it is confirmed, to that of the config `goes_back_to` (a digest);
                    None: nothing waits.
    problems:       parts of the bridge that cannot be made right now, while all else is.
    verified_s:     when megaflows, or where these cannot be had the counters of flows, were last looked at.
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
    foreign: int = 0
    reloads: int = 0
    last_round_s: float | None = None
    confirm_by_s: float | None = None
    verified_s: float | None = None
    overrides: tuple[Override, ...] = ()
    events: tuple[Event, ...] = ()
    held: int = 0
    ports: tuple[PortView, ...] | None = None
    ports_problem: str = ""
    probes_late_s: float = 0.0
    candidate: str = ""
    goes_back_to: str = ""
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Glance:
    """One moment of an agent, taken at once. What takes long is made of it by who wants it, in any thread.

    blocks: of a service by its name, in the order of the address space; none where it has none on the bridge.
    """

    snapshot: Callable[[], Snapshot]
    blocks: Callable[[str], tuple[BlockView, ...]]


# Rates of several backends as one number. Pure.


def nic_share(rates: Iterable[Rate]) -> float | None:
    """Of the packets of these rates, 0..1, those that the NIC forwarded; None: no packets, or nobody can tell."""
    known = [(rate.pps, rate.hw_pps) for rate in rates if rate.hw_pps is not None]
    packets = sum(pps for pps, _ in known)
    return sum(hw_pps for _, hw_pps in known) / packets if packets else None


# A snapshot as names and numbers for JSON, and back: what `GET /v1/status` answers, and what `xenoovs top` reads.


_LARGEST_DENOMINATOR = 1_000_000


def to_document(snapshot: Snapshot) -> dict[str, Any]:
    """Every field under its name; an enum as its value, a fraction as a number."""
    document: dict[str, Any] = json.loads(to_json(snapshot))
    return document


def from_document(document: object) -> Snapshot:
    """The snapshot again. Unknown names are left out: the agent may be newer. Raises ParseError."""
    try:
        snapshot: Snapshot = _reader(Snapshot)(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ParseError(text=str(document)[:80], offset=0, expected=f"the status of an agent ({error})") from None
    return snapshot


def to_json(value: object) -> str:
    """The text of any value of ours. With thousands of backends a third of the time that `to_document` would take."""
    return json.dumps(value, separators=(",", ":"), default=shallow)


def shallow(value: Any) -> Any:
    """One value as JSON has it, for `default` of json.dumps; what is in it comes by itself."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Fraction):
        return value.numerator if value.denominator == 1 else float(value)
    if is_dataclass(value):
        kind: Any = type(value)
        names, by_enum = _names(kind)
        found = {name: getattr(value, name) for name in names}
        for name in by_enum:
            found[name] = {key.value: item for key, item in found[name].items()}
        return found
    return str(value)


@cache
def _names(kind: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The fields of a dataclass, and those of them that are mappings whose keys are enums."""
    hints = get_type_hints(kind)
    return tuple(field.name for field in fields(kind)), tuple(name for name, of in hints.items() if _is_by_enum(of))


def _is_by_enum(hint: Any) -> bool:
    key = get_args(hint)[0] if get_origin(hint) is Mapping else None
    return isinstance(key, type) and issubclass(key, Enum)


@cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    """What makes a value of this type from its JSON. Raises KeyError, TypeError, ValueError, AttributeError."""
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        inner = _reader(next(arg for arg in get_args(kind) if arg is not NoneType))
        return lambda value: None if value is None else inner(value)
    if origin is tuple:
        item = _reader(get_args(kind)[0])
        return lambda value: tuple(map(item, value))
    if origin is not None:
        name_of, item_of = map(_reader, get_args(kind))
        return lambda value: {name_of(name): item_of(item) for name, item in value.items()}
    if is_dataclass(kind):
        return _builder(kind)
    if kind is Fraction:
        return lambda value: Fraction(value).limit_denominator(_LARGEST_DENOMINATOR)
    return _as_it_is if kind in (object, bool, int, str) else kind


def _builder(kind: Any) -> Callable[[Any], Any]:
    hints = get_type_hints(kind)
    known = [
        (field.name, _reader(hints[field.name]), field.default is MISSING and field.default_factory is MISSING)
        for field in fields(kind)
    ]

    def build(value: Any) -> Any:
        missing = [name for name, _, is_needed in known if is_needed and name not in value]
        if missing:
            raise KeyError(missing[0])
        return kind(**{name: read(value[name]) for name, read, _ in known if name in value})

    return build


def _as_it_is(value: Any) -> Any:
    return value
