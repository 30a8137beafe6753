"""Laws of the megaflow parser: what is rendered is read back, and any bytes give megaflows or a ParseError."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.megaflow_text import render_megaflow
from tests.strategies import damaged
from xenoovs.datapath.megaflow import Key, KeyTextError, MaskedValue, Megaflow, Offloaded, match_of
from xenoovs.datapath.outer import GeneveOption, OuterHeader, encapsulations, parse_outer
from xenoovs.datapath.parse import parse_megaflow, scan_dump
from xenoovs.errors import ParseError

_WORDS = st.from_regex(r"[a-z][a-z0-9_]{0,7}", fullmatch=True)
_OCTETS = st.integers(0, 255)
_IPV4 = st.builds("{}.{}.{}.{}".format, _OCTETS, _OCTETS, _OCTETS, _OCTETS)
_KEYS = st.one_of(
    st.builds(lambda a, m: Key("ipv4", f"src={a}/{m},frag=no"), _IPV4, _IPV4),
    st.builds(lambda n: Key("eth_type", f"0x{n:04x}"), st.integers(0, 0xFFFF)),
    st.builds(lambda a: Key("encap", f"eth_type(0x0800),ipv4(dst={a})"), _IPV4),
    st.builds(lambda n: Key("in_port", n), _WORDS),
    st.builds(lambda n, v: Key(f"x_{n}", v), _WORDS, _WORDS),
    st.just(Key("eth", "")),
)
_ACTIONS = st.sampled_from(["p1", "drop", "set(eth(dst=02:00:00:00:00:01))", "hash(l4(0))", "recirc(0x3)"])
_EXTRA = st.sampled_from([("dp-extra-info", "miniflow_bits(4,2)"), ("color", "blue"), ("dp-offload-info", "a: b, c")])
_MEGAFLOWS = st.builds(
    Megaflow,
    ufid=st.none() | st.uuids().map(str),
    keys=st.lists(_KEYS, min_size=1, max_size=6).map(tuple),
    packets=st.integers(0, 2**64 - 1),
    bytes=st.integers(0, 2**64 - 1),
    used_s=st.none() | st.integers(0, 10**9).map(lambda ms: ms / 1000),
    flags=st.none() | st.sampled_from([".", "SFPR."]),
    offloaded=st.none() | st.sampled_from(Offloaded),
    layer=st.none() | _WORDS,
    actions=st.lists(_ACTIONS, min_size=1, max_size=4).map(tuple),
    extra=st.lists(_EXTRA, unique=True, max_size=3).map(lambda extra: tuple(sorted(extra))),
)
_LINE = (
    "ufid:1, recirc_id(0),in_port(p0),eth_type(0x0800),ipv4(src=0.0.0.1/0.0.0.3,frag=no),"
    "encap(tcp(src=1)), packets:3, bytes:9, used:1.0s, flags:., offloaded:yes, dp:tc, actions:set(eth(dst=1)),p1"
)


@given(_MEGAFLOWS)
def test_a_rendered_megaflow_is_read_back_as_it_was(megaflow: Megaflow) -> None:
    assert parse_megaflow(render_megaflow(megaflow)) == megaflow


def _assert_total(text: str) -> list[Megaflow]:
    """The megaflows of a text."""
    every = list(scan_dump(text))
    for found in every:
        if isinstance(found, ParseError):
            assert found.line is not None
            assert 0 <= found.offset <= len(found.text)
        else:
            match_of(found)
            assert parse_megaflow(render_megaflow(found)) == found
            assert found.recirc_id >= 0
            for address, width in ((found.source(4), 32), (found.source(6), 128)):
                assert address is None or 0 <= address.value == address.value & address.mask < 1 << width
    return [found for found in every if isinstance(found, Megaflow)]


_LINE_OUTER_HEADERS = (
    "tunnel(tun_id=0x1,src=1.0.0.2,dst=1.0.0.1,geneve({class=0x102,type=0x80,len=4,0x1/0xff}),flags(-df+key)),"
    "in_port(genev_sys_6081),eth_type(0x0800), packets:3, bytes:9, used:1.0s, dp:ovs, actions:"
    "set(tunnel(tun_id=0x2,dst=1.0.0.3,tp_dst=4789,flags(df|key))),vxlan_sys_4789,"
    "tnl_push(tnl_port(4),header(size=50,type=4,eth(dst=02:00:00:00:00:01),ipv4(src=1.0.0.1,dst=1.0.0.4,proto=17),"
    "udp(src=0,dst=4789),vxlan(vni=0x7b)),out_port(1)),tnl_pop(3)"
)
_DAMAGED = {
    "bytes": st.binary(max_size=300).map(lambda data: data.decode("utf-8", errors="replace")),
    "a line": damaged(_LINE, st.text("(),:/ 0=x.s\n", max_size=3), longest=4),
    "a line with tunnels": damaged(_LINE_OUTER_HEADERS, st.text("(){},=/0xa.|+\n", max_size=3), longest=4),
}


@pytest.mark.parametrize("texts", _DAMAGED.values(), ids=_DAMAGED)
@given(data=st.data())
def test_any_text_is_megaflows_or_a_parse_error(texts: st.SearchStrategy[str], data: st.DataObject) -> None:
    for found in _assert_total(data.draw(texts)):
        encapsulations(found.actions)


@pytest.mark.parametrize(("old", "new"), [("in_port(", "encap(encap("), ("0x0800", "")])
def test_bug_a_damaged_line_was_neither_a_megaflow_nor_a_parse_error(old: str, new: str) -> None:
    _assert_total(_LINE.replace(old, new, 1))


_WIDTHS = {"tun_id": 64, "src": 32, "dst": 32, "tos": 8, "ttl": 8, "tp_src": 16, "tp_dst": 16}


def _masked(width: int) -> st.SearchStrategy[MaskedValue]:
    numbers = st.integers(0, (1 << width) - 1)
    return st.builds(lambda value, mask: MaskedValue(value & mask, mask), numbers, numbers)


_OPTION = st.integers(0, 31).flatmap(
    lambda words: st.builds(
        GeneveOption,
        st.none() | _masked(16),
        st.none() | _masked(8),
        st.just(4 * words),
        st.none() | _masked(32 * words) if words else st.none(),
    )
)
_HEADERS = st.builds(
    OuterHeader,
    st.fixed_dictionaries({}, optional={name: _masked(width) for name, width in _WIDTHS.items()}).map(
        lambda found: tuple(found.items())
    ),
    st.none() | st.lists(_OPTION, max_size=3).map(tuple),
)


def _text(value: MaskedValue) -> str:
    return f"{value.value:#x}/{value.mask:#x}"


def _option(option: GeneveOption) -> str:
    named = [("class", option.option_class), ("type", option.type)]
    parts = [f"{name}={_text(value)}" for name, value in named if value is not None]
    return "{" + ",".join([*parts, f"len={option.length}", *([_text(option.data)] if option.data else [])]) + "}"


def _render(outer: OuterHeader) -> str:
    parts = [f"{name}={_text(value)}" for name, value in outer.fields]
    parts += [] if outer.geneve is None else [f"geneve({''.join(map(_option, outer.geneve))})"]
    return ",".join([*parts, "vxlan(gbp(id=7,flags=0x8))", "flags(-df+csum+key)"])


@given(_HEADERS)
@example(OuterHeader((), (GeneveOption(None, None, 124, MaskedValue(1 << 991, (1 << 992) - 1)),)))
def test_a_rendered_outer_header_is_read_back_as_it_was(outer: OuterHeader) -> None:
    assert parse_outer(_render(outer)) == outer


@given(st.text(alphabet="(){}=,/0x1.:abdefgklnrstuvy+-|", max_size=60) | st.text(max_size=40))
def test_any_text_is_an_outer_header_or_an_error_inside_of_it(text: str) -> None:
    found: OuterHeader | KeyTextError
    try:
        found = parse_outer(text)
    except KeyTextError as error:
        found = error
    assert isinstance(found, OuterHeader) or 0 <= found.offset <= len(text)
