"""Parses filters of the kernel's traffic control, as `tc -j -s filter show` prints them.

JSON is read as iproute2 4.19 to 7.1 writes it (tc/tc_filter.c, tc/f_flower.c); before 5.14 it is invalid if a filter
has the action `police`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from enum import Enum
from typing import Any

from xenoovs.dataclass import dataclass, field, replace
from xenoovs.datapath.megaflow import MaskedValue, read_masked
from xenoovs.errors import ParseError
from xenoovs.regex import ASCII, IGNORECASE, regex

_UFID = regex(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", ASCII)


@dataclass(frozen=True, slots=True)
class TcCounters:
    """Packets and bytes of one filter, in total and by the NIC.

    Software counts frames without the 14 bytes of their Ethernet header, which act_mirred does not see at ingress; NICs
    count them. So packets can be compared, bytes cannot. `hw_packets`: None if unknown, because the kernel or iproute2
    has no such counter (`with_known_counters`).
    """

    packets: int
    bytes: int
    hw_packets: int | None = 0
    hw_bytes: int = 0

    @property
    def sw_packets(self) -> int:
        """Packets that traffic control forwarded in software, as far as that is known."""
        return self.packets - (self.hw_packets or 0)


@dataclass(frozen=True, slots=True)
class TcFilter:
    """One filter.

    Attributes:
        cookie: 32 hexadecimal digits of the first action with a cookie, where Open vSwitch stores the ufid.
        in_hw: whether a NIC holds it; None if the kernel prints neither in_hw nor not_in_hw (Linux before 4.13).
        counters: None for a filter without statistics.
        foreign: what a filter without a cookie matches and does; None if it is of Open vSwitch.
        has_hw_stats: whether tc printed something of hardware statistics, so that kernel and iproute2 know them.
        active_s: seconds from its installation to its last packet; None: tc does not print it in seconds.
        age_s: seconds since its installation; likewise.
    """

    protocol: str
    pref: int
    chain: int
    handle: int
    cookie: str | None
    in_hw: bool | None
    counters: TcCounters | None
    foreign: ForeignRule | None = field(default=None, compare=False)
    has_hw_stats: bool = False
    active_s: int | None = None
    age_s: int | None = None

    def text(self, device: str | None) -> str:
        state = {True: "in_hw", False: "not_in_hw", None: "neither in_hw nor not_in_hw"}[self.in_hw]
        return f"tc filter of {device}, pref {self.pref} handle {self.handle:#x}: {state}"


@dataclass(frozen=True, slots=True)
class DriverAnswer:
    """The kernel's answer to the rule of a megaflow, tried with skip_sw. `error`: errno(3); None: the rule was
    accepted. `text`: strerror(3) of it. `message`: the driver's, from the extended acknowledgement. `is_about_trial`:
    it says nothing about the rule: the message is about the preference of the trial, or the kernel accepted the trial
    as another rule. `further`: messages of further trials, at other preferences."""

    error: int | None
    text: str = ""
    message: str | None = None
    is_about_trial: bool = False
    further: tuple[str, ...] = ()

    @property
    def is_accepted(self) -> bool:
        """Whether the driver takes this very rule."""
        return self.error is None and not self.is_about_trial


class Objection(Enum):
    """What a driver has against a rule, by its words."""

    PREFERENCE = "preference"
    CHAIN = "chain"
    TABLE_FULL = "table full"
    COLLISION = "collision"
    PREFIX_MASK = "prefix mask"
    INLINE_MODE = "inline mode"
    UPLINK = "uplink"
    OFFLOAD_OFF = "offload off"
    OTHER = "other"


_ENOSPC = 28
"""errno(3) of Linux, all architectures that have eSwitches."""
_OUT_OF_RANGE = r"(?:.{0,20}\b(?:not|un)[- ]?supported\b|.{0,20}\bout of (?:\w+ )?range\b)"
_OBJECTIONS = tuple(
    (objection, regex(pattern, IGNORECASE))
    for objection, pattern in (
        # tc_can_offload_extack of include/net/pkt_cls.h.
        (Objection.OFFLOAD_OFF, r"TC offload is disabled on net device"),
        # The priority in a VLAN tag, and the chain that an action goes to, are parts of the rule.
        (Objection.OTHER, r"\bvlan\b|\bpcp\b|\bgoto\b|\bdestination chain\b"),
        (
            Objection.PREFERENCE,
            rf"\b(?:prio(?:s|rity|rities)?|pref(?:erence)?s?)\b{_OUT_OF_RANGE}|\bunsupported (?:prio|pref)",
        ),
        (Objection.CHAIN, rf"\bchains?\b{_OUT_OF_RANGE}|\bunsupported chain"),
        (Objection.PREFIX_MASK, r"\bprefix\b.*\bmasks?\b|\bmasks?\b.*\bprefix\b|(?:non-?)?contiguous"),
        # The next two are of mlx5: en_tc.c of Linux.
        (Objection.INLINE_MODE, r"\binline (?:mode|setting)\b"),
        (Objection.UPLINK, r"same uplink|merged eswitch|same switch"),
    )
)
_FULL = regex(r"\btable\b.*\bfull\b", IGNORECASE)
_BY_VALUE = regex(r"collision|bucket|hash", IGNORECASE)
"""In a message with ENOSPC: there is room, but not for this value."""


def objection_of(error: int | None, message: str | None) -> Objection:
    """Return what a driver objects to. `error`: errno(3). `message`: its extended acknowledgement."""
    words = message or ""
    if error == _ENOSPC:
        is_by_value = _BY_VALUE.search(words) and not _FULL.search(words)
        return Objection.COLLISION if is_by_value else Objection.TABLE_FULL
    return next((objection for objection, pattern in _OBJECTIONS if pattern.search(words)), Objection.OTHER)


def cookie_of_ufid(ufid: str) -> str | None:
    """Return the tc cookie of a megaflow: its ufid as four words of 32 bits, each with its bytes reversed.

    Open vSwitch stores the ufid as words of the host, which are little-endian wherever it offloads (lib/tc.c). Apart
    from dashes the function is its own inverse. It returns None if `ufid` is no UUID.
    """
    if not _UFID.fullmatch(ufid):
        return None
    digits = ufid.replace("-", "")
    return "".join(bytes.fromhex(digits[i : i + 8])[::-1].hex() for i in range(0, 32, 8))


def parse_tc_json(text: str) -> tuple[TcFilter, ...]:
    """Parse `tc -j -s filter show dev X ingress`, or of a block. Entries without a handle are skipped. Raises
    ParseError: also for what old releases print inside JSON."""
    if not text.strip():
        return ()
    try:
        rows = json.loads(text)
    except ValueError as error:
        offset = error.pos if isinstance(error, json.JSONDecodeError) else 0
        raise ParseError(text=text, offset=offset, expected="JSON as `tc -j -s filter show` prints it") from None
    except RecursionError:
        raise ParseError(text=text, offset=0, expected="JSON of a moderate depth") from None
    try:
        return tuple(_filter(row, row["options"]) for row in rows if _is_rule(row.get("options", {})))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        expected = f"filters as `tc -j -s filter show` prints them ({type(error).__name__}: {error})"
        raise ParseError(text=text, offset=0, expected=expected) from None


def _is_rule(options: dict[str, Any]) -> bool:
    """Return whether a row is a rule, not the head of a preference; u32 has `fh`, for its hash tables too."""
    return "handle" in options or ("fh" in options and ("match" in options or "actions" in options))


def _filter(row: dict[str, Any], options: dict[str, Any]) -> TcFilter:
    actions = options.get("actions", [])
    marked = next((action for action in actions if "cookie" in action), None)
    counted = marked or (actions[-1] if actions else {})
    in_hw = True if options.get("in_hw") else False if options.get("not_in_hw") else None
    handle = options.get("handle", 0)
    # Since iproute2 5.7 and Linux 5.7; older releases print times in other units than seconds.
    has_used = any("used_hw_stats" in action for action in actions)
    return TcFilter(
        protocol=str(row["protocol"]),
        pref=int(row["pref"]),
        chain=int(row.get("chain", 0)),
        handle=int(handle, 0) if isinstance(handle, str) else int(handle),
        cookie=None if marked is None else str(marked["cookie"]),
        in_hw=in_hw,
        counters=_counters(counted["stats"]) if "stats" in counted else None,
        foreign=foreign_rule(row) if marked is None else None,
        has_hw_stats=has_used or any("hw_packets" in action.get("stats", {}) for action in actions),
        # tc omits times of 0.
        active_s=int(counted.get("installed", 0)) - int(counted.get("last_used", 0)) if has_used else None,
        age_s=int(counted.get("installed", 0)) if has_used else None,
    )


_WRAP = 1 << 32
"""iproute2 before 6.14 prints the hardware packets modulo this, beside a total of 64 bits (tc/tc_util.c)."""


def _counters(stats: dict[str, Any]) -> TcCounters:
    packets, size = int(stats["packets"]), int(stats["bytes"])
    if "hw_packets" not in stats:
        return TcCounters(packets, size, None, int(stats.get("hw_bytes", 0)))
    hw_packets, hw_bytes = int(stats["hw_packets"]), int(stats.get("hw_bytes", 0))
    return TcCounters(packets, size, unwrapped(hw_packets, hw_bytes, packets=packets, size=size), hw_bytes)


def unwrapped(hw_packets: int, hw_bytes: int, *, packets: int, size: int) -> int:
    """Return the hardware packets of which `hw_packets` may be the lower 32 bits.

    Several numbers of packets can have these lower bits. Their bytes have 64 bits and decide: the software packets are
    the number that comes closest to the software bytes by the mean size of all packets. `hw_packets`: as tc prints it.
    `packets`: by the NIC and in software.
    """
    if packets < _WRAP or hw_packets >= _WRAP:
        return hw_packets
    least = (packets - hw_packets) % _WRAP
    expected = (size - hw_bytes) * packets // size if size else 0
    software = least + max(0, round((expected - least) / _WRAP)) * _WRAP
    return packets - software if software <= packets else packets - least


def with_known_counters(filters: Iterable[TcFilter], *, is_known: bool = False) -> tuple[TcFilter, ...]:
    """Return the filters with the hardware counters that tc left out because they are 0.

    tc omits them then (iproute2, tc/tc_util.c, print_tcstats_basic_hw). Linux and iproute2 before 4.20 have none and
    omit them always: there they stay unknown. `filters`: all that were read from one host. `is_known`: whether kernel
    and iproute2 have the counters, by their versions; not needed if a filter shows it.
    """
    listed = tuple(filters)
    if not is_known and not any(each.has_hw_stats for each in listed):
        return listed
    return tuple(
        replace(each, counters=replace(each.counters, hw_packets=0))
        if each.counters is not None and each.counters.hw_packets is None
        else each
        for each in listed
    )


_KERNEL = regex(r"([0-9]{1,9})\.([0-9]{1,9})", ASCII)
_IPROUTE2 = regex(r"iproute2-(?:ss([0-9]{6})|v?([0-9]{1,9})\.([0-9]{1,9}))", ASCII)
_SNAPSHOT_4_20 = 190101
"""Releases before 5.9 call themselves by the day of their snapshot: 4.19 is ss181023, 4.20 ss190107."""


def has_hw_counters(kernel: str, iproute2: str) -> bool:
    """Return whether a kernel (`uname -r`) and iproute2 (`tc -V`) have counters of hardware: from 4.20 on.

    A distribution may have added them to an older kernel; then a filter shows it (`TcFilter.has_hw_stats`).
    """
    running, tool = _KERNEL.match(kernel), _IPROUTE2.search(iproute2)
    if running is None or tool is None or (int(running[1]), int(running[2])) < (4, 20):
        return False
    return int(tool[1]) >= _SNAPSHOT_4_20 if tool[1] else (int(tool[2]), int(tool[3])) >= (4, 20)


# Rules that are not of Open vSwitch.


_ETH_TYPES = {"ip": 0x0800, "ipv4": 0x0800, "ipv6": 0x86DD, "arp": 0x0806}
_PROTOCOLS = {"icmp": 1, "tcp": 6, "udp": 17, "icmpv6": 58, "sctp": 132}
_FIELDS = {
    **{f"{end}_mac": (f"dl_{end}", 48) for end in ("src", "dst")},
    **{f"{end}_port": (f"tp_{end}", 16) for end in ("src", "dst")},
    **{f"{end}_ip": (f"nw_{end}", 32) for end in ("src", "dst")},
    "ip_proto": ("nw_proto", 8),
}
_FIELDS_IPV6 = {f"{end}_ip": (f"ipv6_{end}", 128) for end in ("src", "dst")}
"""Keys of f_flower.c of iproute2 -> fields of ovs-fields(7) and their widths."""
_GOES_ON = ("continue",)
"""Control actions after which the kernel tries the next rule (tc-actions(8)); any other one ends the search."""


@dataclass(frozen=True, slots=True)
class ForeignRule:
    """What a rule of another program matches and does. `kind`: its classifier: flower, matchall, u32, bpf ... `match`:
    its conditions as text; empty if none is known. `actions`: as text, such as `drop` or `mirred redirect pf0hpf`.
    `fields`: its conditions as far as they are known; it may have further ones. `eth_type`: of its packets; None for
    any. `is_final`: whether rules behind it do not see its packets."""

    kind: str
    match: str
    actions: str
    packets: int
    fields: Mapping[str, MaskedValue] = field(default_factory=dict, hash=False)
    eth_type: int | None = None
    is_final: bool = True


def foreign_rule(row: Mapping[str, Any]) -> ForeignRule:
    """Return the match and the effect of one row. Raises KeyError and the like for what tc does not print."""
    options = row["options"]
    keys = options.get("keys") or {}
    actions = options.get("actions") or []
    protocol = str(keys.get("eth_type", row.get("protocol", "all")))
    eth_type = _ETH_TYPES.get(protocol)
    if eth_type is None and protocol != "all":
        eth_type = int(protocol, 16) if protocol[:2] == "0x" else _OTHER_PROTOCOL
    ends = [str((action.get("control_action") or {}).get("type", "")) for action in actions]
    return ForeignRule(
        kind=str(row["kind"]),
        match=" ".join(f"{name} {_shown(value)}" for name, value in keys.items()),
        actions=", ".join(map(_effect, actions)) or "no action",
        packets=max((int(action.get("stats", {}).get("packets", 0)) for action in actions), default=0),
        fields=_known_fields(keys, eth_type),
        eth_type=eth_type,
        is_final=not ends or ends[-1] not in _GOES_ON,
    )


_OTHER_PROTOCOL = 0xFFFF
"""Stands for 802.1Q and other protocols by name, none of which is the EtherType of an untagged packet of a service."""


def _known_fields(keys: Mapping[str, Any], eth_type: int | None) -> dict[str, MaskedValue]:
    known = _FIELDS | (_FIELDS_IPV6 if eth_type == _ETH_TYPES["ipv6"] else {})
    fields = {}
    for name, value in keys.items():
        if name in known and isinstance(value, str | int):
            field, width = known[name]
            text = str(_PROTOCOLS.get(str(value), value) if name == "ip_proto" else value)
            # A range of ports, or what a later release prints: the condition stays unknown.
            with suppress(ValueError):
                fields[field] = read_masked(text, width)
    return {name: masked for name, masked in fields.items() if masked.mask}


def _effect(action: Mapping[str, Any]) -> str:
    kind = str(action.get("kind", "?"))
    control = str((action.get("control_action") or {}).get("type", ""))
    if kind == "gact":
        return control or kind
    if kind == "mirred":
        return f"mirred {action.get('mirred_action', '')} {action.get('to_dev', '')}".strip()
    return kind


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        return ",".join(f"{name}={part}" for name, part in value.items())
    return str(value)
