"""Nine backends, 2,000 random clients, on a real ovs-vswitchd (dummy datapath): how many entries a NIC would hold."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path

from scripts.bench.measure import Row
from tests.ovs.dummy import DummyOvs, running_dummy_ovs, udp_packet
from xenoovs.compile.pipeline import BLOCK_PRIORITY, Stage
from xenoovs.compile.program import compile_config
from xenoovs.config.load import parse_config
from xenoovs.openflow.flow import Field, Flow, Masked, match_of
from xenoovs.openflow.text import render_flow

_CLIENTS = 2000
_WEIGHTS = (128, 64, 32, 16, 8, 4, 2, 1, 1)
_MACS = [f"02:00:00:00:00:{i:02x}" for i in range(1, len(_WEIGHTS) + 1)]
_CONFIG = "\n".join(
    [
        "version: 1",
        "switch: {bridge: ovsbr1, ingress: [p0], egress: p1, other_traffic: leave}",
        "services:",
        "  - name: nine",
        "    backends:",
        *(f"      - {{name: b{mac[-2:]}, mac: {mac}, weight: {w}}}" for mac, w in zip(_MACS, _WEIGHTS, strict=True)),
    ]
)


def rows() -> Iterator[Row]:
    """Megaflows of the same split done in five ways, each on a fresh bridge, with the same packets."""
    balancer = parse_config(_CONFIG, file="nine backends")
    source = random.Random(1)
    packets = [udp_packet(str(IPv4Address(source.getrandbits(32)))) for _ in range(_CLIENTS)]
    flows = compile_config(balancer).flows
    ways = (
        ("xenoovs: disjoint blocks, short masks first", _text(flows), None, len(_WEIGHTS)),
        ("the same blocks, long masks first", _text(map(_reversed, flows)), None, None),
        ("longest match", _text(map(_nested, flows)), None, None),
        ("select group, dp_hash", "ip,in_port=p0 actions=group:1", _group(""), None),
        ("select group, hash over ip_src", "ip,in_port=p0 actions=group:1", _group(_HASH), None),
    )
    with tempfile.TemporaryDirectory() as name, running_dummy_ovs(Path(name) / "ovs") as ovs:
        for title, program, group, bound in ways:
            yield Row(f"megaflows, 9 backends: {title}", _count(ovs, program, group, packets), "", bound)


def _count(ovs: DummyOvs, program: str, group: str | None, packets: list[str]) -> int:
    with ovs.bridge() as bridge:
        if group is not None:
            bridge.ofctl("add-group", group, version="OpenFlow15")
        bridge.add_flows(program)
        bridge.settle()
        bridge.send("p0", packets)
        ovs.ovs.appctl("revalidator/wait")
        return ovs.ovs.appctl("dpctl/dump-flows", "-m").count("eth_type(0x0800)")


def _text(flows: Iterator[Flow] | tuple[Flow, ...]) -> str:
    return "".join(f"{render_flow(flow)}\n" for flow in flows)


def _reversed(flow: Flow) -> Flow:
    if flow.table != Stage.BALANCE.table:
        return flow
    return replace(flow, key=replace(flow.key, priority=2 * BLOCK_PRIORITY - flow.priority))


def _nested(flow: Flow) -> Flow:
    """Halves, quarters and so on by longest match: each block but the last takes the rest, and the next one cuts it."""
    source = flow.match.get(Field.NW_SRC)
    if flow.table != Stage.BALANCE.table or source is None:
        return flow
    mask = source.mask if source.value == source.mask else source.mask >> 1
    others = (each for each in flow.match.masked if each is not source)
    match = match_of((*others, Masked(source.field, source.value, mask)))
    return replace(flow, key=replace(flow.key, priority=BLOCK_PRIORITY + mask.bit_count(), match=match))


_HASH = ",selection_method=hash,fields(ip_src)"


def _group(method: str) -> str:
    buckets = (
        f"bucket=weight:{weight},actions=mod_dl_dst:{mac},output:p1"
        for mac, weight in zip(_MACS, _WEIGHTS, strict=True)
    )
    return f"group_id=1,type=select{method},{','.join(buckets)}"
