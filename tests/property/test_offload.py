"""Counters of offload never fall, and every flow and megaflow has a verdict."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tests.judged import check_flow
from tests.property.flows import flows
from xenoovs.agent.offload import MegaflowCounters
from xenoovs.compile.offloadable.check import check_megaflow, overall
from xenoovs.compile.offloadable.openflow_topics import parse_groups
from xenoovs.compile.offloadable.table import Offload, Profile, Version
from xenoovs.datapath.parse import parse_megaflow
from xenoovs.errors import ParseError
from xenoovs.openflow.flow import Flow, FlowKey, Foreign, Match

_BYTES = 100
_OTHER = "ufid:other, in_port(p0), packets:0, bytes:0, used:never, dp:ovs, actions:p1"
"""Another megaflow: a dump without any is no torn one."""


@dataclass(frozen=True, slots=True)
class Look:
    """The change of one megaflow before a dump, and how often the dump shows it: 0, 1 or 2 times."""

    packets: int
    is_evicted: bool
    shown: int


looks = st.builds(Look, st.integers(0, 1000), st.booleans(), st.integers(0, 2))
torn = st.builds(Look, st.integers(0, 1000), st.just(value=False), st.sampled_from((1, 2)))
missed = st.builds(Look, st.integers(0, 1000), st.just(value=False), st.just(0))


def growth(history: list[Look]) -> Iterator[int]:
    """What each dump adds."""
    counters, packets = MegaflowCounters(), 0
    for look in history:
        packets = look.packets if look.is_evicted else packets + look.packets
        line = f"ufid:{0:036}, in_port(p0), packets:{packets}, bytes:{packets * _BYTES}, used:0.1s, dp:ovs, actions:p1"
        added = 0
        for increment in counters.increments([_OTHER, *[line] * look.shown]):
            added += int(increment.partition("packets:")[2].partition(",")[0])
        yield added


@given(st.lists(looks, max_size=30))
def test_nothing_is_ever_taken_back_and_no_more_is_counted_than_was_sent(history: list[Look]) -> None:
    added = list(growth(history))
    assert all(more >= 0 for more in added)
    # A megaflow missing from two dumps in a row counts as new: its packets are counted again.
    if not any(a.shown == b.shown == 0 for a, b in pairwise(history)):
        assert sum(added) <= sum(look.packets for look in history)


@given(st.lists(st.tuples(torn, missed) | st.tuples(torn), max_size=20))
def test_dumps_that_miss_or_repeat_a_megaflow_lose_nothing(pairs: list[tuple[Look, ...]]) -> None:
    history = [look for pair in pairs for look in pair]
    whole = [*history, Look(0, is_evicted=False, shown=1)]
    assert sum(growth(whole)) == sum(look.packets for look in whole)


PROFILES = st.sampled_from(Profile)
VERSIONS: st.SearchStrategy[Version] = st.sampled_from([(2, 13), (2, 17), (3, 1), (3, 5), (3, 7), (4, 0)])
_WORDS = """
ct_state= +rpl vlan_tci= 0x1000/0x1000 nw_frag=later tun_metadata0= nd_target= xreg1= igmp
clone( group:1 group:2 write_actions( load: -> NXM_OF_SCTP_DST[] ct(alg=ftp) learn( set(
ipv4( tunnel( geneve( userspace( encap( mpls( lse1 ) ( , = / 0 é output:p1
"""
texts = st.lists(st.sampled_from(_WORDS.split()) | st.text(max_size=3), max_size=6).map("".join)
GROUPS = parse_groups("group_id=1,type=all,bucket=actions=group:2\ngroup_id=2,type=ff,bucket=actions=group:1,clone(\n")


@given(flow=flows(), profile=PROFILES, version=VERSIONS)
def test_every_flow_of_ours_has_a_verdict(flow: Flow, profile: Profile, version: Version) -> None:
    assert check_flow(flow, profile, version)


@given(match=st.lists(texts), actions=st.lists(texts, min_size=1), profile=PROFILES, version=VERSIONS)
def test_every_foreign_flow_has_a_verdict(
    match: list[str], actions: list[str], profile: Profile, version: Version
) -> None:
    flow = Flow(FlowKey(0, 1, Match(None, (), tuple(match))), 0, tuple(map(Foreign, actions)))
    found = check_flow(flow, profile, version, groups=GROUPS)
    assert overall(found) is max((each.offload for each in found), key=lambda offload: offload.badness)


@given(
    keys=st.lists(
        st.sampled_from(("eth_type(0x0800)", "ipv4(frag=no)", "tunnel(a)", "mpls(lse1=0)")) | texts, max_size=3
    ),
    actions=texts,
    profile=PROFILES,
    version=VERSIONS,
)
def test_every_megaflow_that_can_be_read_has_a_verdict(
    keys: list[str], actions: str, profile: Profile, version: Version
) -> None:
    line = f"recirc_id(0),in_port(p0),{','.join(keys)}, packets:1, bytes:1, used:never, actions:{actions}"
    try:
        megaflow = parse_megaflow(line)
    except ParseError:
        return
    found = check_megaflow(megaflow, profile, version)
    assert overall(found).badness == max((each.offload.badness for each in found), default=Offload.HW.badness)


@given(flow=flows(), worse=st.sampled_from(("CONTROLLER:65535", "output(port=p1,max_len=9)")))
def test_another_action_never_makes_a_verdict_better(flow: Flow, worse: str) -> None:
    more = Flow(flow.key, flow.cookie, (*flow.actions, Foreign(worse)))
    before = overall(check_flow(flow, Profile.TC, (3, 1)))
    assert overall(check_flow(more, Profile.TC, (3, 1))).badness >= before.badness
