"""Any bridge: megaflows and chains of recirculation by port, verdict and reason, and what is judged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.judged import assert_recorded
from xenoovs.datapath.megaflow import Megaflow, Verdict
from xenoovs.datapath.parse import parse_dump, parse_megaflow, scan_dump
from xenoovs.evidence.evidence import BridgePorts, Evidence
from xenoovs.evidence.samples import DatapathSample, sample_of
from xenoovs.judge import offload
from xenoovs.judge.bridge import BridgeFindings, check_bridge
from xenoovs.judge.chains import judge_chains, link_chains, recirculations
from xenoovs.judge.findings import MegaflowState

HW, TC_SW, SW = ", offloaded:yes, dp:tc", ", dp:tc", ", dp:ovs"
NEW, ESTABLISHED = ",ct_state(0x21/0x21)", ",ct_state(0x22/0x23)"


def _line(
    where: str, actions: str = "p1", *, recirc_id: str = "0", in_port: str = "p0", packets: int = 100, key: str = ""
) -> str:
    keys = f"recirc_id({recirc_id}),in_port({in_port}),eth(){key},eth_type(0x0800),ipv4(frag=no)"
    return f"{keys}, packets:{packets}, bytes:{packets}, used:1.000s{where}, actions:{actions}"


def _second(where: str, actions: str = "p1", *, packets: int = 100, key: str = "") -> str:
    return _line(where, actions, recirc_id="0x1", packets=packets, key=key)


def _third(where: str, actions: str = "p1", *, packets: int = 100) -> str:
    return _line(where, actions, recirc_id="0x2", packets=packets)


TRACK = _line(HW, "ct(zone=1),recirc(0x1)")
BRIDGES: dict[str, tuple[str, ...]] = {
    "no megaflow": (),
    "in hardware": (_line(HW),),
    "in hardware, without a packet": (_line(HW, packets=0),),
    "in software": (_line(SW),),
    "without -m": (_line(""),),
    "no dump": ("ovs-appctl: no",),
    "a drop in hardware": (_line(HW, "drop"),),
    "a drop in software": (_line(SW, "drop"),),
    "a drop in software beside hardware": (_line(HW), _line(SW, "drop")),
    "from an internal port": (_line(SW, in_port="br0"),),
    "to an internal port": (_line(SW, "br0"),),
    "the first packet of a connection": (_line(SW, key=NEW),),
    "the slow path": (_line(SW, "userspace(pid=1,slow_path(action))"),),
    "what the datapath reports": (_line(SW) + ", dp-offload-info:match unsupported: ct_state=+new",),
    "recirculated by none": (_second(SW),),
    "95 % in hardware": (_line(HW, packets=95), _line(SW, in_port="p1", packets=5)),
    "94 % in hardware": (_line(HW, packets=94), _line(SW, in_port="p1", packets=6)),
    "a chain in hardware": (TRACK, _second(HW)),
    # A stream HW -> TC_SW -> HW counted 66.7 % in hardware, and met a requirement of 60 %.
    "one hop in software makes the chain software": (
        TRACK,
        _second(TC_SW, "ct(zone=2),recirc(0x2)"),
        _third(HW),
    ),
    "first packets do not count": (TRACK, _second(HW, packets=97), _second(SW, "ct(commit),p1", packets=3, key=NEW)),
    # OVN's load balancer: hash, translate, commit and output, each a megaflow, for the first packet alone.
    "nor does what follows them": (
        TRACK,
        _second(HW, packets=97, key=ESTABLISHED),
        _second(SW, "hash(l4(0)),recirc(0x2)", packets=3, key=NEW),
        _third(SW, "ct(commit,nat(dst=10.0.0.1)),recirc(0x3)", packets=3),
        _line(SW, "p2", recirc_id="0x3", packets=3),
    ),
    "a hop shared with established connections counts": (
        TRACK,
        _second(SW, "ct(commit),recirc(0x2)", packets=3, key=NEW),
        _second(HW, "recirc(0x2)", packets=97, key=ESTABLISHED),
        _third(SW),
    ),
    "a chain whose first megaflow is gone begins at the next one": (
        _second(HW, "recirc(0x2)"),
        _third(SW, "trunc(100),p1"),
    ),
    "a chain in software, and a shortened copy": (
        _line(SW, "hash(l4(0)),recirc(0x1)"),
        _second(SW),
        _line(SW, "trunc(100),p1"),
    ),
}


def _check(lines: tuple[str, ...], **evidence: object) -> BridgeFindings:
    return check_bridge(scan_dump("\n".join(lines)), Evidence(internal_ports=frozenset({"br0"}), **evidence))  # type: ignore[arg-type]


def _shown(found: BridgeFindings) -> str:
    """Each row with its chains, megaflows and packets, then what is concluded, with a required share of 95 % too."""
    rows = [
        f"{row.in_port} -> {','.join(sorted(row.exits)) or '-'}: "
        f"{row.verdict.value} {row.chains}/{row.megaflows}/{row.packets}"
        f"{'' if row.is_judged else ', not judged'}{f': {row.reason}' if row.reason else ''}"
        for row in found.rows
    ]
    concluded = ", ".join(found.conclusion_for(required).name for required in (None, 0.95))
    share = "nothing" if found.hw_share is None else f"{found.hw_share:.0%}"
    return "\n".join([*rows, f"{found.read} read, {share} in hardware: {concluded}"])


def test_rows_and_conclusions(*, update_golden: bool) -> None:
    shown = {title: _shown(_check(lines)) for title, lines in BRIDGES.items()}
    chain = BRIDGES["a chain in software, and a shortened copy"]
    shown["the kernel lacks chains"] = _shown(_check(chain, has_tc_chains=False))
    ports = BridgePorts(frozenset({"p0"}), frozenset({"vxlan"}))
    others = (_line(HW), _line(SW, in_port="q0"), _line(HW, in_port="vxlan_sys_4789"))
    shown["ports of other bridges are left out, and tunnels go by their datapath name"] = _shown(
        _check(others, ports=ports)
    )
    shown["a dump that may be filtered proves nothing"] = _shown(replace(_check((_line(HW),)), is_filtered=True))
    assert_recorded("judged/bridges.txt", shown, update=update_golden)


_HOP = (
    "ufid:11111111-0000-4000-8000-00000000000{id}, recirc_id({id:#x}),in_port(p0),eth(),eth_type(0x0800),ipv4(), "
    "packets:{packets}, bytes:{packets}, used:0.100s, offloaded:yes, dp:tc, actions:{actions}"
)


@pytest.mark.parametrize(
    ("before", "now", "verdict"),
    [
        (None, (100, 95), Verdict.HW),
        (None, (100, 5), Verdict.UNCONFIRMED),
        ((1000, 10), (1100, 105), Verdict.HW),
        ((1000, 990), (1100, 995), Verdict.SW),
        ((1000, 10), (1010, 10), Verdict.HW),
    ],
    ids=["as many", "far fewer", "as many now", "far fewer now", "too few to tell"],
)
def test_a_chain_is_in_hardware_if_its_next_link_takes_the_packets(
    before: tuple[int, int] | None, now: tuple[int, int], verdict: Verdict
) -> None:
    """The packets that no megaflow took were upcalls, and the chain was "in hardware"."""

    def megaflows(packets: tuple[int, int]) -> list[Megaflow]:
        first = _HOP.format(id=0, packets=packets[0], actions="ct(zone=1),recirc(0x1)")
        return list(parse_dump(f"{first}\n{_HOP.format(id=1, packets=packets[1], actions='p1')}\n"))

    earlier = None if before is None else DatapathSample(sample_of(megaflows(before), None))
    (row,) = check_bridge(megaflows(now), Evidence(before=earlier)).rows
    assert row.verdict is verdict


def test_bug_a_chain_behind_arp_and_ip_had_no_row() -> None:
    """`verify-offload --bridge` ended with an internal error if ARP recirculated to the same id, and came first."""
    arp = _line(SW, "recirc(0x1)").replace("0x0800", "0x0806")
    for lines in ((arp, TRACK, _second(HW)), (TRACK, arp, _second(HW))):
        assert [(row.reason, row.is_judged, row.megaflows) for row in _check(lines).rows] == [
            ("", True, 2),
            ("arp", False, 1),
        ]


def test_bug_more_chains_than_are_judged_together_were_a_success(monkeypatch: pytest.MonkeyPatch) -> None:
    """`verify-offload --bridge` ended with exit status 0 whether or not megaflows continued them."""
    monkeypatch.setattr(offload, "MAX_HOPS", 2)
    lines = tuple(_line(HW, f"recirc({number})") for number in range(1, 4))
    assert _check(lines[:1]).conclusion_for(None).name == "NOT_ALL_IN_HARDWARE"
    assert _check(lines).conclusion_for(None).name == "NOTHING_SEEN"


def test_recirculations_in_nested_actions_are_found() -> None:
    actions = "check_pkt_len(size=1500,gt(userspace(pid=1)),le(clone(ct(zone=1),recirc(0x5)))),recirc(9)"
    assert recirculations(parse_megaflow(_line(HW, actions))) == (5, 9)


def test_many_roots_that_share_many_next_hops_take_no_time() -> None:
    """Work that grew with the product would take hours here."""
    roots = [_hop(0, (1,), 10, 10)] * 20_000
    hops = [*roots, *[_hop(1, (), 10, 0)] * 20_000]
    is_judged = [True] * len(hops)
    links = link_chains(hops, is_judged)
    assert {hop.hw_packets for hop in judge_chains(hops, is_judged)} == {0}
    assert {(link.failing, link.depth) for link in links[:20_000]} == {(20_000, 1)}
    assert {link.root for link in links[20_000:]} == {0}


def _hop(recirc_id: int, targets: tuple[int, ...], packets: int, hw_packets: int, in_port: str = "p0") -> MegaflowState:
    verdict = Verdict.HW if hw_packets else Verdict.TC_SW
    actions = ",".join(f"recirc({target:#x})" for target in targets) or "p1"
    megaflow = parse_megaflow(_line(HW, actions, recirc_id=f"{recirc_id:#x}", in_port=in_port))
    return MegaflowState(megaflow, verdict, packets, 0, hw_packets, 10 * hw_packets)


@pytest.mark.parametrize(
    ("hops", "in_hardware"),
    [
        ([_hop(0, (1,), 1000, 1000), _hop(1, (), 900, 900), _hop(1, (), 100, 0)], [900, 810, 0]),
        ([_hop(0, (1,), 100, 100), _hop(1, (), 100, 100), _hop(1, (), 0, 0)], [100, 100, 0]),
        (
            [_hop(0, (1,), 10, 10), _hop(1, (), 10, 10), _hop(0, (1,), 10, 10, "p1"), _hop(1, (), 10, 0, "p1")],
            [10, 10, 0, 0],
        ),
        ([_hop(1, (2,), 5, 5), _hop(2, (1,), 5, 0)], [0, 0]),
        ([_hop(7, (8,), 5, 5)], [5]),
    ],
    ids=[
        "where a chain forks each branch has its share",
        "a hop without packets makes no chain slow",
        "chains of other ports are others",
        "a loop ends",
        "a hop without neighbours is judged alone",
    ],
)
def test_packets_of_hops_in_hardware(hops: list[MegaflowState], in_hardware: list[int]) -> None:
    judged = judge_chains(hops, [True] * len(hops))
    assert [hop.hw_packets for hop in judged] == in_hardware
    assert [hop.verdict is Verdict.HW for hop in judged] == [hop.hw_packets == hop.packets > 0 for hop in judged]
    assert [hop.hw_bytes for hop in judged] == [10 * packets for packets in in_hardware]
