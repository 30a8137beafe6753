"""A dump of 100,000 megaflows, as a NIC shows for as many clients: the whole command, and beside it `ovs.flow`."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path

from scripts.bench.measure import XENOOVS, Row, function, process
from xenoovs.compile.program import compile_program
from xenoovs.config.load import load_config
from xenoovs.verify.expected import expected_services
from xenoovs.verify.offload import check_dump

_LINES = 100_000
_SAMPLE = 5_000
_CONFIG = Path(__file__).parents[2] / "templates" / "quickstart.yaml"
_KEYS = (
    "skb_priority(0/0),skb_mark(0/0),ct_state(0/0),ct_zone(0/0),ct_mark(0/0),ct_label(0/0),recirc_id(0),dp_hash(0/0),"
    "in_port(p0),packet_type(ns=0/0,id=0/0),eth(src=00:00:00:00:00:00/00:00:00:00:00:00,dst=02:00:5e:10:00:01),"
    "eth_type(0x0800),ipv4(src={source}/0.255.255.255,dst=10.3.10.45,proto=17,tos=0/0,ttl=0/0,frag=no),"
    "udp(src=0/0,dst=53)"
)


def rows() -> Iterator[Row]:
    """Both in one run, so that their ratio holds on any machine."""
    with tempfile.TemporaryDirectory() as name:
        dump = Path(name) / "dump.txt"
        dump.write_text("".join(_lines()))
        # 2: half of the made-up megaflows go to the wrong server, so that much is odd.
        cost = process([XENOOVS, "verify-offload", str(_CONFIG), "--from-dump", str(dump)], expected=2)
        yield Row(f"verify-offload --from-dump, {_LINES:,} megaflows, whole process", cost.wall_s, "s", 3)
        yield Row(f"verify-offload --from-dump, {_LINES:,} megaflows, peak memory", cost.peak_mib, "MiB", 500)
        services = expected_services(compile_program(load_config(_CONFIG)))
        lines = dump.read_text().splitlines()
        judged_s = function(lambda: check_dump(services, lines))
        yield Row(f"{_LINES:,} megaflows parsed and judged", judged_s, "s")
        yield from _ovs_flow(lines, judged_s)


def _ovs_flow(lines: list[str], judged_s: float) -> Iterator[Row]:
    try:
        from ovs.flow.odp import ODPFlow
    except ImportError:
        yield Row("ovs.flow cannot be compared: install netaddr and pyparsing", float("nan"), "")
        return
    sample_s = function(lambda: [ODPFlow(line) for line in lines[:_SAMPLE]])
    scaled_s = sample_s * _LINES / _SAMPLE
    yield Row(f"ovs.flow parses {_LINES:,}, by a sample of {_SAMPLE:,} lines", scaled_s, "s")
    yield Row("parsed and judged / ovs.flow's parsing, by line", judged_s / scaled_s, "", 0.05)


def _lines() -> Iterator[str]:
    source = random.Random(1)
    for number in range(_LINES):
        address, count = source.getrandbits(32), source.randrange(1, 1000)
        yield (
            f"ufid:{number:08x}-4e39-4fcc-bd80-4aaf34dc5a32, {_KEYS.format(source=IPv4Address(address & 0xFFFFFF))}, "
            f"packets:{count}, bytes:{count * 100}, used:{source.random() * 9:.3f}s, offloaded:yes, dp:tc, "
            f"actions:set(eth(dst=02:00:5e:10:00:0{2 + address % 2})),p1\n"
        )
