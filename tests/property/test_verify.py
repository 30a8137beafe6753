"""Findings: each line counts once, and overridden is what the tables with foreign flows send elsewhere."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.judged import check_offload
from tests.strategies import share
from tests.unit.judge.programs import two_services
from xenoovs.datapath.megaflow import Key, MaskedValue, Megaflow
from xenoovs.evidence.evidence import Evidence
from xenoovs.judge import expected
from xenoovs.judge.expected import (
    ExpectedBlock,
    ExpectedService,
    OverlapIndex,
    expected_services,
    index_blocks,
)
from xenoovs.judge.offload import check_dump
from xenoovs.judge.simulate.megaflows import PredictedMegaflow, pipeline_of, predict
from xenoovs.judge.simulate.walk import Walk, tables_of, walk
from xenoovs.model.packet import Packet
from xenoovs.openflow.flow import Field, Masked
from xenoovs.openflow.text import parse_flow

PROGRAM = two_services()
SERVICES = SERVICE, *OTHERS = expected_services(PROGRAM)
PORTS = (Masked(Field.TP_SRC, 1, 1), Masked(Field.TP_SRC, 2, 7))
"""Odd ports, and a quarter of even ports."""
BLOCKS_BY_PORT = tuple(replace(block, key=key) for block, key in zip(SERVICE.blocks, PORTS, strict=True))
KINDS = st.sampled_from([SERVICES, (replace(SERVICE, blocks=BLOCKS_BY_PORT), *OTHERS)])
CONTEXT = Evidence(internal_ports=frozenset({"br0"}))

_SOURCES = st.sampled_from(
    ["0.0.0.0", "0.0.0.1", "10.1.2.3", "203.0.113.255", "0.0.0.300", "1.2.3", "5", "::1", "2001:db8::5", "x"]
)
_MASKS = st.sampled_from(["", "/0.0.0.1", "/0.0.0.3", "/255.255.0.1", "/24", "/0.0.0.0", "/99"])
_KEYS = st.sampled_from(
    [
        "recirc_id(0),in_port({port}),eth(dst=c4:70:bd:a0:56:ac),eth_type(0x0800),ipv4(src={source},dst=10.3.10.46)",
        "in_port({port}),eth_type(0x0800),ipv4(src={source},dst=10.3.10.45,proto=17,frag=no),udp(src=0/0,dst=53)",
        "in_port({port}),eth_type(0x0800),ipv4(src={source},dst=10.9.9.9)",
        "in_port({port}),eth_type(0x86dd),ipv6(src={source},proto=58),icmpv6(type=135)",
        "in_port({port}),eth_type(0x8100),vlan(vid=5,pcp=0),encap(eth_type(0x0800),ipv4(src={source},dst=10.3.10.46))",
        "in_port({port}),eth_type(0x0800),ipv4(src={source}),encap(ipv4(src=1.2.3.4,dst=10.3.10.46))",
        "in_port({port}),eth_type(0x0806),arp(sip={source})",
        # Of one connection each, as where a foreign flow matches all fields.
        *(
            f"in_port({{port}}),eth(src=02:00:00:00:00:{mac},dst=c4:70:bd:a0:56:ac),eth_type(0x0800),"
            f"ipv4(src={{source}},dst=10.3.10.45,proto=17,frag=no),udp(src={port},dst=53)"
            for mac, port in (
                ("01", 4000),
                ("02", 65535),
                ("03", 65536),
                ("04/ff:ff:ff:ff:ff:00", "7/0xf"),
                *(("01", port) for port in (4001, 4009, 4002, 4010, 4003, 4004, "1/0x1", "2/0x7", "0/0x1")),
            )
        ),
        "in_port({port}),ipv4(src={source}",
    ]
)
_WHERE = st.sampled_from([", offloaded:yes, dp:tc", ", dp:tc", ", flags:S, dp:ovs", ", offloaded:partial, dp:ovs", ""])
_ACTIONS = st.sampled_from(
    [
        "set(eth(dst=02:00:00:00:00:01)),p1",
        "set(eth(dst=02:00:00:00:00:02)),p1",
        "set(ipv4(src=9.9.9.9)),p1",
        "userspace(pid=1,slow_path(action))",
        "drop",
        "br0, dp-extra-info:miniflow_bits(4,2)",
    ]
)
_USED = st.sampled_from(["never", "0.100s", "9.900s", "-1.000s", "soon"])
_LINES = st.builds(
    "{0}{1}, packets:{2}, bytes:{3}, used:{4}{5}, actions:{6}".format,
    st.sampled_from(["", "ufid:1, ", "ufid:2-3, ", "ufid:a b, "]),
    st.builds(
        lambda keys, port, source, mask: keys.format(port=port, source=source + mask),
        _KEYS,
        st.sampled_from(["p0", "p1", "br0"]),
        _SOURCES,
        _MASKS,
    ),
    st.sampled_from(["0", "1", "17", "x"]),
    st.sampled_from(["0", "1700"]),
    _USED,
    _WHERE,
    _ACTIONS,
)


@given(KINDS, st.lists(_LINES, max_size=30))
def test_each_line_is_counted_once(services: tuple[ExpectedService, ...], lines: list[str]) -> None:
    found = check_dump(services, lines, CONTEXT)
    inside = sum(each.megaflows for each in found.blocks) + sum(each.megaflows for each in found.overrides)
    outside = sum(each.megaflows for each in found.outside)
    assert inside + outside + found.unjudged + len(found.unparsed) == len(lines)


OURS = tables_of(PROGRAM.flows)
BLOCK_OF = {block.flow: block for service in SERVICES for block in service.blocks}
_PARTS = (
    ("ip", "udp", "tcp"),
    ("", ",nw_src=0.0.0.7/0.0.0.15", ",nw_src=0.0.0.1/0.0.0.1", ",nw_src=198.51.100.0/24", ",nw_src=0.0.0.2/0.0.0.2"),
    ("", ",nw_dst=10.3.10.45", ",nw_dst=10.3.10.0/24", ",nw_dst=10.3.10.47"),
    ("", ",in_port=p0", ",in_port=p1"),
)
_FLOWS = st.builds(
    "priority={},{} actions={}".format,
    st.sampled_from([1, 500, 1500, 3000]),
    st.tuples(*map(st.sampled_from, _PARTS)).map("".join),
    st.sampled_from(["drop", "output:p9", *(f"mod_dl_dst:02:00:00:00:00:{i:02x},output:p1" for i in (1, 2, 0x77))]),
)


@given(st.lists(_FLOWS, min_size=1, max_size=3, unique_by=lambda text: text.split(",")[0]), st.integers(0, 2**32))
@share(0.4)
def test_overridden_or_misdelivered_is_what_the_tables_send_elsewhere(foreign: list[str], seed: int) -> None:
    flows = (*PROGRAM.flows, *map(parse_flow, foreign))
    tables, pipeline = tables_of(flows), pipeline_of(flows)
    for packet in _packets(Random(seed)):
        wanted = walk(OURS, packet)
        block = next((BLOCK_OF[flow] for flow in wanted.flows if flow in BLOCK_OF), None)
        if block is not None:
            is_elsewhere = _places(walk(tables, packet)) != _places(wanted)
            assert _is_reported(predict(pipeline, packet)[0], block) == is_elsewhere


def _places(outcome: Walk) -> list[tuple[str | None, int]]:
    return [(copy.port, copy.dl_dst) for copy in outcome.copies]


def _packets(random: Random) -> list[Packet]:
    vips = [IPv4Address(f"10.3.10.{last}") for last in (45, 46, 47)]
    return [
        Packet("p0", IPv4Address(0xC6336400 + random.getrandbits(9)), random.choice(vips), proto, 4000, 53)
        for proto in (17, 6)
        for _ in range(10)
    ]


def _is_reported(predicted: PredictedMegaflow, block: ExpectedBlock) -> bool:
    keys = (Key("in_port", predicted.in_port), Key("eth_type", "0x0800", fields=predicted.fields()))
    megaflow = Megaflow(None, keys, 1, 60, 0.1, None, None, "ovs", predicted.actions or ("drop",))
    findings = check_offload(SERVICES, [megaflow])
    is_misdelivered = any(found.block is block and found.misdelivered for found in findings.blocks)
    return is_misdelivered or any(block in taking.blocks for taking in findings.overrides)


TEMPLATE = SERVICE.blocks[0]
BITS = 6
ALL = (1 << BITS) - 1
_MATCHES = st.tuples(st.integers(0, ALL), st.integers(0, ALL)).map(lambda pair: _masked(*pair))
_PREFIXES = st.lists(
    st.tuples(st.integers(0, ALL), st.integers(0, BITS)).map(lambda pair: _masked(pair[0], ALL & ~(ALL >> pair[1]))),
    max_size=12,
).map(lambda drawn: [one for i, one in enumerate(drawn) if not any(_overlap(one, other) for other in drawn[:i])])
"""Masks of several lengths."""
_CLASSES = st.integers(0, ALL).flatmap(
    lambda mask: st.lists(st.integers(0, ALL).map(lambda value: _masked(value, mask)), max_size=12, unique=True)
)
"""All of one mask."""


def _overlap(one: MaskedValue, other: MaskedValue) -> bool:
    return not (one.value ^ other.value) & one.mask & other.mask


def _masked(value: int, mask: int) -> MaskedValue:
    return MaskedValue(value & mask, mask)


@pytest.mark.parametrize("max_indexed", [0, 20, 500_000])
@given(_PREFIXES | _CLASSES, st.lists(_MATCHES, min_size=1, max_size=6))
def test_the_index_finds_what_a_search_by_address_finds(
    max_indexed: int, sources: list[MaskedValue], matches: list[MaskedValue]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expected, "_MAX_INDEXED", max_indexed)
        keys = (Masked(TEMPLATE.key.field, source.value, source.mask) for source in sources)
        index = index_blocks([replace(SERVICE, blocks=tuple(replace(TEMPLATE, key=key) for key in keys))])
        entry = next(iter(next(iter(index.entries.values())).values()))
        for match in matches:
            found = OverlapIndex(index).blocks(entry.blocks, match)
            owners = {_owner(sources, address) for address in range(ALL + 1) if _in(match, address)}
            assert {MaskedValue(block.key.value, block.key.mask) for block in found} == owners - {None}


@pytest.mark.parametrize("in_port", ["p0", None])
def test_entries_for_any_port_are_found_whatever_port_a_megaflow_has(in_port: str | None) -> None:
    anywhere = [replace(match, in_port=None) for match in SERVICE.entries]
    index = OverlapIndex(index_blocks([replace(SERVICE, entries=tuple(anywhere))]))
    assert list(index.entries(in_port, {"dl_type": MaskedValue(0x0800, 0xFFFF)}))


def _in(match: MaskedValue, address: int) -> bool:
    return address & match.mask == match.value


def _owner(sources: list[MaskedValue], address: int) -> MaskedValue | None:
    return next((source for source in sources if _in(source, address)), None)
