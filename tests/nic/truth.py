"""What the emulated NIC says of its rules and ports (`eswitch/truth.c`) as values: the ground truth of the tests."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from xenoovs.datapath.megaflow import MaskedValue

# The NIC's names -> those of ovs-fields(7), which megaflows are compared by.
_FIELDS = {
    "eth_src": "dl_src",
    "eth_dst": "dl_dst",
    "eth_type": "dl_type",
    "ip_proto": "nw_proto",
    "ip_src": "nw_src",
    "ip_dst": "nw_dst",
    "ip6_src": "ipv6_src",
    "ip6_dst": "ipv6_dst",
    "l4_src": "tp_src",
    "l4_dst": "tp_dst",
    "tcp_flags": "tcp_flags",
    "ip_tos": "nw_tos",
    "ip_ttl": "nw_ttl",
}
# The same for outer headers -> those of `tunnel(..)` in a dump.
_OUTER_FIELDS = {
    "enc_key": "tun_id",
    "enc_src": "src",
    "enc_dst": "dst",
    "enc_tos": "tos",
    "enc_ttl": "ttl",
    "enc_l4_src": "tp_src",
    "enc_l4_dst": "tp_dst",
}


NOTHING = MaskedValue(0, 0)


@dataclass(frozen=True, slots=True)
class Rule:
    """One entry of the NIC's table. `ufid` is the megaflow's.

    Attributes:
        via: the tunnel device whose rule it is; empty: the port's own.
        outer: what it matches of the outer header, by the names in dumps.
    """

    port: str
    ufid: str
    packets: int
    bytes: int
    match: Mapping[str, MaskedValue]
    actions: tuple[str, ...]
    passed: int = 0
    """Packets that matched and that the NIC gave to the CPU all the same."""
    pcp: MaskedValue = NOTHING
    """What it matches of the priority in a tag."""
    via: str = ""
    outer: Mapping[str, MaskedValue] = field(default_factory=dict)

    @property
    def encapsulations(self) -> tuple[dict[str, str], ...]:
        """What the rule writes into outer headers."""
        words = (action.removeprefix("encap:").split(",") for action in self.actions if action.startswith("encap:"))
        return tuple({name: value for name, _, value in (word.partition("=") for word in each)} for each in words)

    @property
    def vlan(self) -> int | None:
        """The VLAN that it matches; None: frames without a tag."""
        tag = self.match.get("dl_vlan")
        return None if tag is None else tag.value & 0xFFF

    @property
    def retags(self) -> tuple[str, ...]:
        """What it does with the tag."""
        return tuple(action for action in self.actions if "_vlan" in action)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The ports that a frame leaves by."""
        return tuple(action.partition(":")[2] for action in self.actions if action.startswith(("mirror:", "redirect:")))

    @property
    def dl_dst(self) -> int | None:
        """The destination MAC that the rule writes; None: it writes none."""
        written = _written(self.actions, base="eth", size=6)
        return None if written.mask != (1 << 48) - 1 else written.value

    @property
    def dl_src(self) -> int | None:
        """The source MAC that the rule writes; None: it writes none."""
        whole = (1 << 48) - 1
        written = _written(self.actions, base="eth", size=12)
        return None if written.mask & whole != whole else written.value & whole


@dataclass(frozen=True, slots=True)
class PortCounters:
    """Packets that entered at the wire end and met a rule (hit) or went to the representor (miss), or left there.

    too_long: beyond the MTU of the wire end, and lost. sas: IPsec states that the device was given.
    """

    hit: int
    miss: int
    out: int
    too_long: int = 0
    sas: int = 0


def parse_rules(text: str) -> list[Rule]:
    """The file `rules`, in the order of the lookup."""
    return [_parse_rule(line) for line in text.splitlines() if line]


def parse_ports(text: str) -> dict[str, PortCounters]:
    """The file `ports`, by the port's name."""
    lines = [dict(word.split("=") for word in line.split()) for line in text.splitlines()]
    return {words["port"]: _port_counters(words) for words in lines}


def _port_counters(words: Mapping[str, str]) -> PortCounters:
    hit, miss, out, too_long = (int(words[f"{name}_packets"]) for name in ("hit", "miss", "out", "too_long"))
    return PortCounters(hit, miss, out, too_long, int(words["sas"]))


def ufid_of(cookie: str) -> str:
    """The ufid behind a tc cookie (or the cookie behind a ufid): four words of the other byte order."""
    words = struct.unpack("<4I", bytes.fromhex(cookie.replace("-", "")))
    text = "".join(f"{word:08x}" for word in words)
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def _parse_rule(line: str) -> Rule:
    head, _, tail = line.partition(" match ")
    matched, _, actions = tail.partition("actions ")
    facts = dict(word.split("=") for word in head.split())
    found = dict(word.split("=") for word in matched.split())
    found.pop("enc_opts", None)
    tag = _masked(found.pop("vlan")) if "vlan" in found else None
    match = {name: _masked(value) for name, value in found.items()}
    # A rule for tagged frames matches that there is a tag.
    vlan = {} if tag is None else {"dl_vlan": MaskedValue(0x1000 | tag.value & 0xFFF, 0x1000 | tag.mask & 0xFFF)}
    return Rule(
        port=facts["port"],
        ufid=ufid_of(facts["cookie"]),
        packets=int(facts["packets"]),
        bytes=int(facts["bytes"]),
        match=vlan | {_FIELDS[name]: value for name, value in match.items() if name in _FIELDS},
        pcp=NOTHING if tag is None else MaskedValue(tag.value >> 13, tag.mask >> 13),
        actions=tuple(actions.split()),
        passed=int(facts.get("passed", 0)),
        via=facts.get("via", ""),
        outer={_OUTER_FIELDS[name]: value for name, value in match.items() if name in _OUTER_FIELDS},
    )


def _masked(text: str) -> MaskedValue:
    value, _, mask = text.partition("/")
    return MaskedValue(int(value, 16), int(mask, 16))


def _written(actions: tuple[str, ...], *, base: str, size: int) -> MaskedValue:
    # Each rewrite is a word of four bytes, which may reach beyond the field.
    value = mask = 0
    for action in actions:
        place, _, written = action.removeprefix("set:").partition("=")
        if action.startswith(f"set:{base}+"):
            shift = 8 * (size - int(place.partition("+")[2]) - 4)
            word = _masked(written)
            value |= word.value << shift if shift >= 0 else word.value >> -shift
            mask |= word.mask << shift if shift >= 0 else word.mask >> -shift
    return MaskedValue(value, mask)
