"""Takes a record: reads all that judges read, and more for a person, while a tape records."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import lru_cache, partial
from hashlib import blake2s
from ipaddress import IPv4Address, IPv6Address
from secrets import token_bytes

from xenoovs.datapath.database import BridgeState
from xenoovs.datapath.megaflow import Verdict, verdict_of
from xenoovs.datapath.outer import encapsulations
from xenoovs.datapath.parse import Hints, scan_dump
from xenoovs.datapath.tunnel_facts import tunnel_ends
from xenoovs.errors import ParseError, SwitchError
from xenoovs.evidence.archive import Recorder
from xenoovs.evidence.collector import Collector
from xenoovs.model.address import Mac, parse_mac
from xenoovs.regex import regex
from xenoovs.switch.appctl import Appctl, detrace
from xenoovs.switch.management import ManagementSwitch, Ofctl
from xenoovs.switch.process import try_run
from xenoovs.switch.vswitchd import place_of, read_offload_counters

_MOST_TRACED = 64
_TIMEOUT_S = 10.0
_OF_VSWITCHD = ("dpif/show", "dpif/offload/show", "metrics/show", "memory/show", "vlog/list", "ofproto/list-tunnels")
"""Commands of ovs-vswitchd(8). A version refuses those that it lacks."""
_OF_BRIDGE = (("dump-groups", "OpenFlow15"), ("dump-meters", "OpenFlow13,OpenFlow14"), ("dump-ports", "OpenFlow14"))
_OF_HOST = (
    *(("uname", "-srm"), ("cat", "/etc/os-release"), ("ip", "-V"), ("tc", "-V")),
    *(("ip", "-j", "-d", "-s", "link", "show"), ("tc", "-j", "-s", "qdisc", "show")),
    *(("devlink", "-j", "dev", "info"), ("devlink", "-j", "dev", "param", "show"), ("devlink", "-j", "port", "show")),
)
_OF_DEVICE = ("-i", "-k", "-S")
"""Options of ethtool(8)."""


def take(
    switch: ManagementSwitch, bridge: str | None, recorder: Recorder, *, interval_s: float
) -> tuple[BridgeState, ...]:
    """Read everything about one bridge (None: about all), with two samples, through `recorder`, and return the bridges.
    Changes nothing. Raises SwitchError if the bridge does not exist, or Open vSwitch does not answer."""
    # In the order in which a judge asks: the answers to one question are played back in the order of the record.
    states = switch.bridges() if bridge is None else (switch.describe(bridge),)
    ports = frozenset(port.name for state in states for port in state.ports)
    for state in states:
        _ask(Ofctl(switch.endpoint).dump_flows, state.name)
    collector, begun = Collector(switch, interval_s=interval_s), time.monotonic()
    evidence = collector.megaflows(states[0].name if states else "", ingress=ports, is_whole=True)
    hints = Hints()
    megaflows = [each for each in scan_dump(hints.watch(evidence.lines)) if not isinstance(each, ParseError)]
    evidence = collector.chains(evidence, is_in_kernel=any(state.datapath_type == "system" for state in states))
    known = collector.host_of_megaflows(evidence, megaflows)
    collector.tunnels(known.host, [end for state in switch.bridges() for end in tunnel_ends(state, {})])
    switch.read_ipsec(tuple(outer for each in megaflows for outer in encapsulations(each.actions)))
    # Also of those in hardware: another flow than that of the block may have made them.
    worst = sorted((each for each in megaflows if each.ufid), key=lambda each: verdict_of(each) is Verdict.HW)
    _ask(detrace, switch.endpoint, [each.ufid for each in worst[:_MOST_TRACED]], cores=hints.cores)
    recorder.is_once = True
    _ask_more(switch, states)
    recorder.is_once = False
    # The second look of a switch whose NIC holds no rules.
    time.sleep(max(0.0, begun + interval_s - time.monotonic()))
    _ask(switch.dump_megaflows)
    return states


def _ask_more(switch: ManagementSwitch, states: Collection[BridgeState]) -> None:
    appctl, ofctl, where = Appctl(switch.endpoint), Ofctl(switch.endpoint), place_of(switch.endpoint)
    for command in _OF_VSWITCHD:
        _ask(appctl.run, command, timeout_s=_TIMEOUT_S)
    _ask(read_offload_counters, switch.endpoint)
    ports = (("ethtool", option, port.name) for state in states for port in state.ports for option in _OF_DEVICE)
    for argv in (*_OF_HOST, *ports):
        _ask(try_run, where.argv(*argv), timeout_s=_TIMEOUT_S)
    for state in states:
        for command, version in _OF_BRIDGE:
            _ask(ofctl.run, command, state.name, version=version, timeout_s=_TIMEOUT_S)


def _ask(question: Callable[..., object], *words: object, **options: object) -> None:
    """Go on after an error: it is an answer too, and in the record."""
    with suppress(SwitchError, ParseError):
        question(*words, **options)


# Addresses of a record under other ones: the same structure, and what a mask matches stays the same.


_V4 = r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}"
_MAC = r"[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}){5}"
_V6 = r"(?=[0-9a-fA-F:]{0,39}::|(?:[0-9a-fA-F]{1,4}:){7})[0-9a-fA-F:]{2,39}"
_ADDRESS = regex(
    rf"(?<![\w.])(?:(?<!\b[0-9a-fA-F]{{2}}:)(?P<mac>{_MAC})(?:/(?P<mac_mask>{_MAC}))?(?![\w:])"
    rf"|(?P<v4>{_V4})(?:/(?P<v4_mask>{_V4}|[0-9]{{1,2}}))?(?!\w|\.[0-9])"
    rf"|(?P<v6>{_V6})(?:/(?P<v6_mask>{_V6}|[0-9]{{1,3}}))?(?![\w:.]))"
)
_ANOTHER = "name-"
_DATAPATH_ID = regex(r"\b0000([0-9a-f]{12})\b")
"""A datapath id, mostly the MAC of the bridge (ovs-vswitchd.conf.db(5), other_config:datapath-id)."""
_PIECE = regex(r'("val":\s*)"[^"]*"')
"""Headers that tc(8) writes, as pieces of addresses in hexadecimal."""
_LABEL = r"[A-Za-z0-9](?:[\w-]*[A-Za-z0-9])?"
_BREAK = regex(r'([\s,()"]+)')
_NAME = regex(
    rf"(?<![\w./-]){_LABEL}(?:\.{_LABEL})+\.[A-Za-z]{{2,24}}(?![\w-]|\.\w)"
    rf"|(?<=tcp:|ssl:){_LABEL}\.[A-Za-z]{{2,24}}(?=:)",
    re.ASCII,
)
_HOST_NAME = regex(
    r'(?<="hostname": ")[^"]+|(?<="remote_name": ")[^"]+|(?<=\bhostname=)[^\s,}]+|(?<=DNS:)[^\s,]+|(?<=CN=)[^,+\n]+'
    r"|[\w.-]{1,256}(?=: failed to resolve)"
)
"""Host names: domain names, and the names of this host, of its remotes, and in certificates."""
_LOADS = tuple(
    (regex(rf"(?<=load:)0x([0-9a-f]+)(?=->NXM_(?:{fields})\[{part}\])"), width, shift)
    for fields, part, width, shift in (
        ("OF_ETH_(?:SRC|DST)|NX_ARP_[ST]HA|NX_ND_[ST]LL", "", 48, 0),
        ("OF_IP_(?:SRC|DST)|OF_ARP_[ST]PA|NX_TUN_IPV4_(?:SRC|DST)", "", 32, 0),
        ("NX_IPV6_(?:SRC|DST)|NX_ND_TARGET", r"64\.\.127", 128, 64),
        ("NX_IPV6_(?:SRC|DST)|NX_ND_TARGET", r"0\.\.63", 128, 0),
    )
)
"""Addresses that a flow writes as numbers (ovs-actions(7), `load`), IPv6 by halves: text, and bits of the address."""
_EXTERNAL = regex(r'"external_ids": \{[^}]*\}')
_NOTE = regex(r'("(?!ovn-)[^"]+": )"([^"]+)"')


class Anonymizer:
    """Maps all addresses of a text by a random key that is stored nowhere.

    The first byte of an IPv4 address or MAC and the first two of an IPv6 address stay, as they show its kind. The next
    ones are mapped so that common prefixes stay common. The last bits (16, 24 and 64) are changed by one constant, so
    that masks of any of these bits, which blocks of clients have, match as before.
    """

    def __init__(self, key: bytes | None = None) -> None:
        self._key = token_bytes(32) if key is None else key
        self._mapped = lru_cache(maxsize=1 << 18)(self._map)
        self._of_word = lru_cache(maxsize=1 << 18)(self._another)

    def __call__(self, text: str) -> str:
        text = _PIECE.sub(r'\1"0"', text)
        text = _EXTERNAL.sub(lambda found: _NOTE.sub(lambda note: f'{note[1]}"{self._named(note[2])}"', found[0]), text)
        if any(mark in text for mark in ("hostname", "remote_name", "CN=", "DNS:", "to resolve")):
            text = _HOST_NAME.sub(lambda found: self._named(found[0]), text)
        # A dump of 200,000 megaflows has ten million words, and most of them again and again.
        return "".join("".join(map(self._of_word, _BREAK.split(line))) for line in text.splitlines(keepends=True))

    def _another(self, word: str) -> str:
        """Return a word with its host names and addresses replaced."""
        if "load:0x" in word:
            for pattern, width, shift in _LOADS:
                word = pattern.sub(partial(self._loaded, width, shift), word)
            return word
        if "." in word:
            word = _NAME.sub(lambda found: self._named(found[0]), word)
        elif ":" not in word:
            return _DATAPATH_ID.sub(lambda found: f"0000{self._mapped(int(found[1], 16), 48):012x}", word)
        return _ADDRESS.sub(self._replaced, word)

    def _named(self, name: str) -> str:
        """Return the replacement of a host name, always the same."""
        if _ADDRESS.fullmatch(name) or name.startswith(_ANOTHER):
            return name
        return f"{_ANOTHER}{blake2s(name.encode(errors='replace'), key=self._key, digest_size=4).hexdigest()}"

    def _replaced(self, found: re.Match[str]) -> str:
        try:
            for name, width, read, show in _KINDS:
                if found[name] is not None:
                    return self._shown(found[name], found[f"{name}_mask"], width, read, show)
        except ValueError:
            # Only like an address, such as a version.
            pass
        return found[0]

    def _loaded(self, width: int, shift: int, found: re.Match[str]) -> str:
        # Half of an IPv6 address does not show whether the whole is well-known: ::1 is half of many.
        replacement = self._mapped if width == 128 else self._exact
        return f"0x{replacement(int(found[1], 16) << shift, width) >> shift & (1 << min(width, 64)) - 1:x}"

    def _shown(
        self, text: str, mask: str | None, width: int, read: Callable[[str], int], show: Callable[[int], str]
    ) -> str:
        value = read(text)
        if mask is None:
            return show(self._exact(value, width))
        if mask.isdecimal():
            bits = (1 << width) - (1 << max(0, width - int(mask)))
            # The host part of an address of a device stays what it is of the address.
            return f"{show(self._exact(value, width) if value & ~bits else self._mapped(value, width) & bits)}/{mask}"
        return f"{show(self._mapped(value, width) & read(mask))}/{mask}"

    def _exact(self, value: int, width: int) -> int:
        """Return the replacement of an address without a mask. Well-known addresses stay."""
        first = value >> (width - 8)
        if width == 32:
            return value if not value or first in (0, 127) or first >= 224 else self._mapped(value, width)
        if width == 48 and first & 1:
            return value ^ (self._low(128, 24) if value >> 24 == 0x3333FF else 0)
        if width == 128 and first == 0xFF:
            # Solicited-node multicast has the last 24 bits of an address (RFC 4291, 2.7.1).
            return value ^ (self._low(128, 24) if value >> 24 == 0xFF0200000000000000000001FF else 0)
        return value if value < 2 else self._mapped(value, width)

    def _map(self, value: int, width: int) -> int:
        kept, low = _KEPT[width]
        mapped = value ^ self._low(width, low)
        for bit in range(low, width - kept):
            mapped ^= self._bit(width, bit, value >> (bit + 1)) << bit
        return mapped

    def _low(self, width: int, bits: int) -> int:
        digest = blake2s(b"low%d" % width, key=self._key).digest()
        return int.from_bytes(digest, "little") & ((1 << bits) - 1)

    def _bit(self, width: int, bit: int, prefix: int) -> int:
        return blake2s(b"%d %d %d" % (width, bit, prefix), key=self._key, digest_size=1).digest()[0] & 1


_KEPT = {32: (8, 16), 48: (8, 24), 128: (16, 64)}
"""Width of the address -> first bits that stay, last bits that are changed by a constant."""
_KINDS: tuple[tuple[str, int, Callable[[str], int], Callable[[int], str]], ...] = (
    ("mac", 48, lambda text: parse_mac(text).value, lambda value: str(Mac(value))),
    ("v4", 32, lambda text: int(IPv4Address(text)), lambda value: str(IPv4Address(value))),
    ("v6", 128, lambda text: int(IPv6Address(text)), lambda value: str(IPv6Address(value))),
)
