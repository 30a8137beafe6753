"""Law: every flow and megaflow has a verdict without an exception, and a subset of a flow is never worse."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.judged import check_flow
from tests.property.flows import flows
from xenoovs.compile.offloadable.check import check_megaflow, overall
from xenoovs.compile.offloadable.openflow_topics import parse_groups
from xenoovs.compile.offloadable.table import Profile, Version
from xenoovs.datapath.parse import parse_megaflow
from xenoovs.errors import ParseError
from xenoovs.openflow.flow import Flow, FlowKey, Foreign, Match

PROFILES = st.sampled_from(Profile)
VERSIONS: st.SearchStrategy[Version] = st.sampled_from([(2, 13), (2, 17), (3, 1), (3, 5), (3, 7), (4, 0)])
_WORDS = (
    *(
        "ct_state=",
        "+rpl",
        "vlan_tci=",
        "0x1000/0x1000",
        "nw_frag=later",
        "tun_metadata0=",
        "nd_target=",
        "xreg1=",
        "igmp",
    ),
    *(
        "clone(",
        "group:1",
        "group:2",
        "write_actions(",
        "load:",
        "->",
        "NXM_OF_SCTP_DST[]",
        "ct(alg=ftp)",
        "learn(",
        "set(",
    ),
    *(
        "ipv4(",
        "tunnel(",
        "geneve(",
        "userspace(",
        "encap(",
        "mpls(",
        "lse1",
        ")",
        "(",
        ",",
        "=",
        "/",
        "0",
        "é",
        "output:p1",
    ),
)
texts = st.lists(st.sampled_from(_WORDS) | st.text(max_size=3), max_size=6).map("".join)
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
    assert overall(check_megaflow(megaflow, profile, version)) is not None


@given(flow=flows(), worse=st.sampled_from(("CONTROLLER:65535", "output(port=p1,max_len=9)")))
def test_another_action_never_makes_a_verdict_better(flow: Flow, worse: str) -> None:
    more = Flow(flow.key, flow.cookie, (*flow.actions, Foreign(worse)))
    before = overall(check_flow(flow, Profile.TC, (3, 1)))
    assert overall(check_flow(more, Profile.TC, (3, 1))).badness >= before.badness
