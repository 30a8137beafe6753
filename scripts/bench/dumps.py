"""Dumps of 100,000 megaflows: as a NIC shows for as many clients, beside `ovs.flow`, and such as are hard to judge."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from enum import Enum
from ipaddress import IPv4Address
from pathlib import Path

from scripts.bench.measure import XENOOVS, Row, function, process
from xenoovs.compile.program import compile_config
from xenoovs.judge.expected import expected_services
from xenoovs.judge.offload import check_dump
from xenoovs.model.load import load_config

_LINES = 100_000
_SAMPLE = 5_000
_BOUND_S = 12
"""Of any kind: each line is read and judged on its own, whatever the lines before it were."""
_CONFIG = Path(__file__).parents[2] / "templates" / "quickstart.yaml"
_KEYS = (
    "skb_priority(0/0),skb_mark(0/0),ct_state(0/0),ct_zone(0/0),ct_mark(0/0),ct_label(0/0),recirc_id(0),dp_hash(0/0),"
    "in_port(p0),packet_type(ns=0/0,id=0/0),eth(src={mac},dst=02:00:5e:10:00:01),"
    "eth_type(0x0800),ipv4(src={source},dst=10.3.10.45,proto=17,tos=0/0,ttl=0/0,frag=no),"
    "udp(src={port},dst=53)"
)
_ANY_MAC = "00:00:00:00:00:00/00:00:00:00:00:00"


class Kind(Enum):
    """What a dump is full of.

    CLIENTS:     blocks, half of them at the wrong server.
    OVERRIDDEN:  megaflows of foreign flows, which send packets of blocks elsewhere.
    MANY_WAYS:   the same, each in its own way: no two lines are alike.
    CONNECTIONS: single connections, as with a foreign flow that matches every header.
    MANY_MASKS:  masks of which no two are alike.
    """

    CLIENTS = "blocks"
    OVERRIDDEN = "all overridden by foreign flows"
    MANY_WAYS = "all overridden, each by another flow"
    CONNECTIONS = "single connections"
    MANY_MASKS = "each with its own mask"


def rows() -> Iterator[Row]:
    """Both in one run, so that their ratio holds on any machine."""
    with tempfile.TemporaryDirectory() as name:
        dump = Path(name) / "dump.txt"
        yield from _hard(dump)
        _write(dump, Kind.CLIENTS)
        # 2: half of the made-up megaflows go to the wrong server, so that much is odd.
        cost = process([XENOOVS, "verify-offload", str(_CONFIG), "--from-dump", str(dump)], expected=2)
        yield Row(f"verify-offload --from-dump, {_LINES:,} megaflows, whole process", cost.wall_s, "s", _BOUND_S)
        yield Row(f"verify-offload --from-dump, {_LINES:,} megaflows, peak memory", cost.peak_mib, "MiB", 500)
        services = expected_services(compile_config(load_config(_CONFIG)))
        lines = dump.read_text().splitlines()
        judged_s = function(lambda: check_dump(services, lines))
        yield Row(f"{_LINES:,} megaflows parsed and judged", judged_s, "s")
        yield from _ovs_flow(lines, judged_s)


def _hard(dump: Path) -> Iterator[Row]:
    # Before this process holds a dump itself: see `Cost`.
    for kind in tuple(Kind)[1:]:
        _write(dump, kind)
        cost = process([XENOOVS, "verify-offload", str(_CONFIG), "--from-dump", str(dump)], expected=2)
        yield Row(f"{_LINES:,} megaflows, {kind.value}: time of a processor", cost.cpu_s, "s", _BOUND_S)
        yield Row(f"{_LINES:,} megaflows, {kind.value}: peak memory", cost.peak_mib, "MiB", 500)


def _write(dump: Path, kind: Kind) -> None:
    with dump.open("w") as file:
        file.writelines(_lines(kind))


def _ovs_flow(lines: list[str], judged_s: float) -> Iterator[Row]:
    try:
        from ovs.flow.odp import ODPFlow
    except ImportError:
        yield Row("ovs.flow cannot be compared: install netaddr and pyparsing", float("nan"), "")
        return
    sample_s = function(lambda: [ODPFlow(line) for line in lines[:_SAMPLE]])
    scaled_s = sample_s * _LINES / _SAMPLE
    yield Row(f"ovs.flow parses {_LINES:,}, by a sample of {_SAMPLE:,} lines", scaled_s, "s")
    yield Row("parsed and judged / ovs.flow's parsing, by line", judged_s / scaled_s, "", 0.2)


def _lines(kind: Kind) -> Iterator[str]:
    source = random.Random(1)
    for number in range(_LINES):
        address, count = source.getrandbits(32), source.randrange(1, 1000)
        keys, actions = _line(kind, number, address, source)
        yield (
            f"ufid:{number:08x}-4e39-4fcc-bd80-4aaf34dc5a32, {keys}, packets:{count}, bytes:{count * 100}, "
            f"used:{source.random() * 7:.3f}s, offloaded:yes, dp:tc, actions:{actions}\n"
        )


def _line(kind: Kind, number: int, address: int, source: random.Random) -> tuple[str, str]:
    """Keys and actions."""
    actions = f"set(eth(dst=02:00:5e:10:00:0{2 + address % 2})),p1"
    client, mac = IPv4Address(address), ":".join(f"{source.getrandbits(8) & 0xFE:02x}" for _ in range(6))
    match kind:
        case Kind.CLIENTS:
            return _keys(f"{IPv4Address(address & 0xFFFFFF)}/0.255.255.255"), actions
        case Kind.OVERRIDDEN | Kind.MANY_WAYS:
            out = "p9" if kind is Kind.OVERRIDDEN else f"p{number}"
            return _keys(f"{IPv4Address(address & 0xFFFFFF00)}/255.255.255.0"), out
        case Kind.CONNECTIONS:
            return _keys(str(client), mac=mac, port=str(address & 0xFFFF)), actions
        case Kind.MANY_MASKS:
            mask = source.getrandbits(32) | 0xFF
            return _keys(f"{IPv4Address(address & mask)}/{IPv4Address(mask)}"), actions


def _keys(source: str, *, mac: str = _ANY_MAC, port: str = "0/0") -> str:
    return _KEYS.format(source=source, mac=mac, port=port)
