"""Strategies: every message of OpenFlow 1.4 that the codec tells apart."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from tests.property.flows import PORTS, flows, matches
from xenoovs.openflow.flow import Command, FlowKey, FlowMod, Foreign, ObservedFlow
from xenoovs.openflow.wire.controller import (
    AsyncReply,
    AsyncRequest,
    Event,
    EventMask,
    PacketIn,
    PacketOut,
    Role,
    RoleReason,
    RoleReply,
    RoleRequest,
    RoleStatus,
    SetAsync,
)
from xenoovs.openflow.wire.flow import Aggregate, FlowFilter, FlowRemoved
from xenoovs.openflow.wire.frame import BarrierReply, BarrierRequest, EchoReply, EchoRequest, Error, Hello
from xenoovs.openflow.wire.message import (
    AggregateReply,
    AggregateRequest,
    BundleAdd,
    BundleControl,
    BundleStep,
    DescReply,
    DescRequest,
    FlowStatsReply,
    FlowStatsRequest,
    Message,
    Port,
    PortDescReply,
    PortDescRequest,
    PortReason,
    PortStatsReply,
    PortStatsRequest,
    PortStatus,
    TableStatsReply,
    TableStatsRequest,
    Unknown,
    encode,
)
from xenoovs.openflow.wire.switch import (
    ConfigReply,
    ConfigRequest,
    Description,
    FeaturesReply,
    FeaturesRequest,
    PortStats,
    SetConfig,
    TableStats,
)

OFPORTS = {name: number for number, name in enumerate(PORTS, 1)}
NAMES = {number: name for name, number in OFPORTS.items()}

U8, U16, U32, U64 = (st.integers(0, (1 << bits) - 1) for bits in (8, 16, 32, 64))
_TABLES = st.integers(0, 254)
_BYTES = st.binary(max_size=24)
_OPTIONS = ("idle_timeout=10", "hard_timeout=3", "send_flow_rem", "check_overlap", "importance=7")
_FOREIGN = (
    "group:5",
    "CONTROLLER:128",
    "FLOOD",
    "ALL",
    "TABLE",
    "wire:0013000888470000",
    "instruction:0006000800000001",
)
_CONDITIONS = (
    *(
        "dl_vlan=5",
        "vlan_tci=0x1000/0x1000",
        "dl_vlan_pcp=3",
        "nw_tos=184",
        "nw_ecn=2",
        "nw_ttl=64",
        "tun_id=0x5",
        "tun_id=0/0x4",
        "reg7=0x1/0xf",
    ),
    *(
        "nd_target=fd00::1",
        "nd_target=fd00::/8",
        "nd_sll=02:00:00:00:00:01",
        "ct_mark=0x7",
        "oxm:0001d408000000210000002f",
    ),
)


def words(most: int) -> st.SearchStrategy[str]:
    """Texts without a zero, of at most so many bytes."""
    return st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=most).filter(
        lambda text: len(text.encode()) <= most
    )


@st.composite
def whole_flows(draw: st.DrawFn) -> FlowMod:
    """Also with options, and with conditions and actions that are not of xenoovs."""
    flow = draw(flows())
    foreign = tuple(sorted(draw(st.sets(st.sampled_from(_CONDITIONS), max_size=2))))
    more = tuple(map(Foreign, draw(st.lists(st.sampled_from(_FOREIGN), max_size=2))))
    options = draw(st.sets(st.sampled_from(_OPTIONS)))
    key = replace(flow.key, match=replace(flow.match, foreign=foreign))
    chosen = tuple(option for option in _OPTIONS if option in options)
    return FlowMod(Command.ADD, replace(flow, key=key, actions=flow.actions + more, options=chosen))


def flow_mods() -> st.SearchStrategy[FlowMod]:
    """Each command with what it carries: only an add has a cookie and options, a delete has no actions."""
    modify = whole_flows().map(lambda mod: FlowMod(Command.MODIFY, replace(mod.flow, cookie=0, options=())))
    delete = modify.map(lambda mod: FlowMod(Command.DELETE, replace(mod.flow, actions=())))
    return st.one_of(whole_flows(), modify, delete)


def ports() -> st.SearchStrategy[Port]:
    return st.builds(Port, U32, words(15), st.integers(0, (1 << 48) - 1), U32, U32, _BYTES)


def observed() -> st.SearchStrategy[ObservedFlow]:
    times = st.builds(lambda seconds, part: seconds + part / 1000, st.integers(0, 1 << 20), st.integers(0, 999))
    return st.builds(lambda mod, *counts: ObservedFlow(mod.flow, *counts), whole_flows(), U64, U64, times)


def filters() -> st.SearchStrategy[FlowFilter]:
    port = st.none() | st.sampled_from(PORTS)
    return st.builds(FlowFilter, st.none() | _TABLES, U64, U64, matches(), port)


def bundle_adds() -> st.SearchStrategy[BundleAdd]:
    inner = flow_mods().map(lambda mod: encode(mod, xid=7, ofports=OFPORTS))
    return st.builds(BundleAdd, U32, inner, U16, _BYTES)


_NANOSECONDS = st.integers(0, (1 << 32) * 10**9 - 1)
_MASKS = st.lists(st.builds(EventMask, st.sampled_from(Event), U32), max_size=4).map(tuple)
_KEYS = st.builds(FlowKey, _TABLES, U16, matches())
_PORT_STATS = st.builds(PortStats, U32, _NANOSECONDS, *[U64] * 8, _BYTES)
_TABLE_STATS = st.builds(TableStats, U8, U32, U64, U64)
_TEXTS = st.builds(Description, words(255), words(255), words(255), words(31), words(255))
_SENDERS = st.none() | st.sampled_from(PORTS)
_FRAMES = st.binary(max_size=100)
_STRANGE_KINDS = st.sampled_from((4, 15, 16, 17, 29, 31, 32, 35, 255))


SESSION = (
    st.builds(Hello, st.frozensets(st.integers(1, 70), min_size=1)),
    st.builds(Error, U16, U16, _BYTES),
    st.builds(EchoRequest, _BYTES),
    st.builds(EchoReply, _BYTES),
    st.just(BarrierRequest()),
    st.just(BarrierReply()),
    st.just(FeaturesRequest()),
    st.builds(FeaturesReply, U64, U32, U8, U8, U32, U32),
    st.just(ConfigRequest()),
    st.builds(ConfigReply, U16, U16),
    st.builds(SetConfig, U16, U16),
    st.builds(RoleRequest, st.sampled_from(Role), U64),
    st.builds(RoleReply, st.sampled_from(Role), U64),
    st.builds(RoleStatus, st.sampled_from(Role), st.sampled_from(RoleReason), U64, _BYTES),
    st.just(AsyncRequest()),
    st.builds(AsyncReply, _MASKS),
    st.builds(SetAsync, _MASKS, st.just(bytes.fromhex("ffff000c00002320000000010000 0000"))),
    st.builds(Unknown, _STRANGE_KINDS, _BYTES),
)
EVENTS = (
    st.builds(PacketIn, U8, U8, U64, matches(), _FRAMES, U16, U32),
    st.builds(FlowRemoved, _KEYS, U64, U8, U64, U64, _NANOSECONDS, U16, U16),
    st.builds(PortStatus, st.sampled_from(PortReason), ports()),
)
CHANGES = (
    st.builds(lambda flow, data, port: PacketOut(flow.actions, data, port), flows(), _FRAMES, _SENDERS),
    flow_mods(),
    st.builds(BundleControl, U32, st.sampled_from(BundleStep), U16, _BYTES),
    bundle_adds(),
)
REQUESTS = (
    st.sampled_from((DescRequest(), TableStatsRequest(), PortDescRequest())),
    st.builds(FlowStatsRequest, filters()),
    st.builds(AggregateRequest, filters()),
    st.builds(PortStatsRequest, st.none() | st.sampled_from(PORTS)),
)
REPLIES = (
    st.builds(DescReply, _TEXTS),
    st.builds(FlowStatsReply, st.lists(observed(), max_size=4).map(tuple), st.booleans()),
    st.builds(AggregateReply, st.builds(Aggregate, U64, U64, U32)),
    st.builds(TableStatsReply, st.lists(_TABLE_STATS, max_size=3).map(tuple), st.booleans()),
    st.builds(PortStatsReply, st.lists(_PORT_STATS, max_size=3).map(tuple), st.booleans()),
    st.builds(PortDescReply, st.lists(ports(), max_size=3).map(tuple), st.booleans()),
)


def messages() -> st.SearchStrategy[Message]:
    return st.one_of(*SESSION, *EVENTS, *CHANGES, *REQUESTS, *REPLIES)
