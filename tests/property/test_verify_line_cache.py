"""The cache of lines gives the same findings as judging each line, for any dump."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.judged import check_offload
from tests.unit.judge.programs import two_services
from xenoovs.datapath import parse
from xenoovs.datapath.megaflow import Megaflow
from xenoovs.datapath.parse import scan_dump
from xenoovs.errors import ParseError
from xenoovs.evidence.evidence import Evidence
from xenoovs.judge import check
from xenoovs.judge.check import check_dump
from xenoovs.judge.expected import ExpectedService, expected_services
from xenoovs.openflow.flow import Field, Masked

SERVICES = expected_services(two_services())


def by_port() -> tuple[ExpectedService, ...]:
    """The first service balances on the source port: odd ports, and a quarter of even ports."""
    first, *others = SERVICES
    keys = (Masked(Field.TP_SRC, 1, 1), Masked(Field.TP_SRC, 2, 7))
    blocks = tuple(replace(block, key=key) for block, key in zip(first.blocks, keys, strict=True))
    return replace(first, blocks=blocks), *others


BY_PORT = by_port()
KINDS = st.sampled_from([SERVICES, BY_PORT])
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
        "in_port({port}),eth(src=02:00:00:00:00:01,dst=c4:70:bd:a0:56:ac),eth_type(0x0800),"
        "ipv4(src={source},dst=10.3.10.45,proto=17,frag=no),udp(src=4000,dst=53)",
        "in_port({port}),eth(src=02:00:00:00:00:02,dst=c4:70:bd:a0:56:ac),eth_type(0x0800),"
        "ipv4(src={source},dst=10.3.10.45,proto=17,frag=no),udp(src=65535,dst=53)",
        "in_port({port}),eth(src=02:00:00:00:00:03,dst=c4:70:bd:a0:56:ac),eth_type(0x0800),"
        "ipv4(src={source},dst=10.3.10.45,proto=17,frag=no),udp(src=65536,dst=53)",
        "in_port({port}),eth(src=02:00:00:00:00:04/ff:ff:ff:ff:ff:00),eth_type(0x0800),"
        "ipv4(src={source},dst=10.3.10.45,proto=17,frag=no),udp(src=7/0xf,dst=53)",
        *(
            "in_port({port}),eth(src=02:00:00:00:00:01,dst=c4:70:bd:a0:56:ac),eth_type(0x0800),"
            f"ipv4(src={{source}},dst=10.3.10.45,proto=17,frag=no),udp(src={port},dst=53)"
            for port in (4001, 4009, 4002, 4010, 4003, 4004, "1/0x1", "2/0x7", "0/0x1")
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


def test_lines_whose_ports_agree_in_the_bits_that_choose_are_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = (
        "in_port(p0),eth(src=02:00:00:00:00:{0:02x},dst=c4:70:bd:a0:56:ac),eth_type(0x0800),"
        "ipv4(src=10.1.2.{0},dst=10.3.10.45,proto=17,frag=no),udp(src={1},dst=53)"
    )
    lines = [
        f"{keys.format(client, port)}, packets:1, bytes:9, used:0.100s, dp:tc, actions:drop"
        for client in range(9)
        for port in range(4000, 4064)
    ]
    each = check_offload(BY_PORT, scan_dump(lines), CONTEXT)
    numbers = list[int]()

    def read_line(line: str, *, number: int) -> Megaflow | ParseError | None:
        numbers.append(number)
        return parse.read_line(line, number=number)

    monkeypatch.setattr(check, "read_line", read_line)
    assert check_dump(BY_PORT, lines, CONTEXT) == each
    assert [block.packets for block in each.blocks[:2]] == [9 * 32, 9 * 8]
    # Five of the first anomalies are shown one by one.
    assert len(numbers) < 20


@given(KINDS, st.lists(_LINES, max_size=12).map(lambda lines: lines * 3))
def test_cached_lines_count_as_if_each_was_judged(services: tuple[ExpectedService, ...], lines: list[str]) -> None:
    fast = check_dump(services, lines, CONTEXT)
    each = check_offload(services, scan_dump(lines), CONTEXT)
    assert list(map(str, fast.unparsed)) == list(map(str, each.unparsed))
    assert replace(fast, unparsed=()) == replace(each, unparsed=())


@given(
    st.lists(st.tuples(_SOURCES, st.sampled_from(["0", "3"]), _USED), min_size=20, max_size=60),
    _KEYS,
    _MASKS,
    _WHERE,
    _ACTIONS,
    KINDS,
)
def test_lines_of_one_shape(
    varied: list[tuple[str, str, str]],
    keys: str,
    mask: str,
    where: str,
    actions: str,
    services: tuple[ExpectedService, ...],
) -> None:
    lines = [
        f"ufid:{i}, {keys.format(port='p0', source=source + mask)}, packets:{packets}, bytes:0, used:{used}{where}, "
        f"actions:{actions}"
        for i, (source, packets, used) in enumerate(varied)
    ]
    fast = check_dump(services, lines, CONTEXT)
    each = check_offload(services, scan_dump(lines), CONTEXT)
    assert list(map(str, fast.unparsed)) == list(map(str, each.unparsed))
    assert replace(fast, unparsed=()) == replace(each, unparsed=())
