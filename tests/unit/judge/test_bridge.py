"""Any bridge: megaflows and chains of recirculation by port, verdict and reason, and what is judged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from xenoovs.datapath.megaflow import Megaflow, Verdict
from xenoovs.datapath.parse import parse_dump, parse_megaflow, scan_dump
from xenoovs.evidence.evidence import BridgePorts, Evidence
from xenoovs.evidence.samples import DatapathSample, sample_of
from xenoovs.judge.bridge import BridgeFindings, check_bridge
from xenoovs.judge.chains import Hop, judge_chains, link_chains, recirculations
from xenoovs.judge.findings import Conclusion

HW, TC_SW, SW = ", offloaded:yes, dp:tc", ", dp:tc", ", dp:ovs"


def _line(in_port: str, where: str, *, packets: int = 10, actions: str = "p1", key: str = "") -> str:
    keys = f"recirc_id(0),in_port({in_port}),eth(){key},eth_type(0x0800),ipv4(frag=no)"
    return f"{keys}, packets:{packets}, bytes:{packets}, used:1.000s{where}, actions:{actions}"


def _check(*lines: str, ports: BridgePorts | None = None) -> BridgeFindings:
    return check_bridge(scan_dump("\n".join(lines)), Evidence(ports=ports, internal_ports=frozenset({"br0"})))


@pytest.mark.parametrize(
    ("line", "reason", "is_judged"),
    [
        (_line("p0", SW), "", True),
        (_line("p0", SW, actions="drop"), "drop", False),
        (_line("br0", SW), "internal port", False),
        (_line("p0", SW, actions="br0"), "internal port", False),
        (_line("p0", SW, key=",ct_state(0x21/0x21)"), "first packet of a connection", False),
        (
            _line("p0", SW, actions="userspace(pid=1,slow_path(action))"),
            "slow path: ovs-vswitchd handles each packet",
            True,
        ),
        (
            _line("p0", SW) + ", dp-offload-info:match unsupported: ct_state=+new",
            "match unsupported: ct_state=+new",
            True,
        ),
        (
            _line("p0", SW).replace("recirc_id(0)", "recirc_id(0x3)"),
            "perhaps recirculated packets, or packets that will be recirculated",
            True,
        ),
        (_line("p0", HW, actions="drop"), "", True),
    ],
)
def test_the_reason_and_whether_it_is_judged(line: str, reason: str, is_judged: bool) -> None:
    (row,) = _check(line).rows
    assert (row.reason, row.is_judged) == (reason, is_judged)


@pytest.mark.parametrize(
    ("lines", "required", "conclusion"),
    [
        ([], None, Conclusion.NOTHING_SEEN),
        ([_line("p0", SW, actions="drop")], None, Conclusion.NOTHING_SEEN),
        ([_line("p0", HW)], None, Conclusion.IN_HARDWARE),
        ([_line("p0", HW), _line("p0", SW, actions="drop")], None, Conclusion.IN_HARDWARE),
        ([_line("p0", HW, packets=95), _line("p1", SW, packets=5)], None, Conclusion.NOT_ALL_IN_HARDWARE),
        ([_line("p0", HW, packets=95), _line("p1", SW, packets=5)], 0.95, Conclusion.IN_HARDWARE),
        ([_line("p0", HW, packets=94), _line("p1", SW, packets=6)], 0.95, Conclusion.NOT_ALL_IN_HARDWARE),
        ([_line("p0", HW, packets=0)], 0.95, Conclusion.NOTHING_SEEN),
        ([_line("p0", HW, packets=0)], None, Conclusion.NOTHING_SEEN),
        ([_line("p0", "")], None, Conclusion.CHECK_FAILED),
        (["ovs-appctl: no"], None, Conclusion.CHECK_FAILED),
    ],
)
def test_the_conclusion(lines: list[str], required: float | None, conclusion: Conclusion) -> None:
    assert _check(*lines).conclusion_for(required) is conclusion


def test_ports_of_other_bridges_are_left_out_and_tunnels_go_by_their_datapath_name() -> None:
    ports = BridgePorts(frozenset({"p0"}), ("vxlan_sys_",))
    found = _check(_line("p0", HW), _line("q0", SW), _line("vxlan_sys_4789", HW), ports=ports)
    assert [row.in_port for row in found.rows] == ["p0", "vxlan_sys_4789"]
    assert found.read == 3


def test_a_dump_that_may_be_filtered_proves_nothing() -> None:
    whole = _check(_line("p0", HW))
    assert whole.conclusion_for(None) is whole.conclusion_for(0.95) is Conclusion.IN_HARDWARE
    filtered = replace(whole, is_filtered=True)
    assert filtered.conclusion_for(None) is filtered.conclusion_for(0.95) is Conclusion.NOTHING_SEEN


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


def _chain_line(recirc_id: str, where: str, actions: str, *, packets: int = 100, key: str = "") -> str:
    keys = f"recirc_id({recirc_id}),in_port(p0),eth(),eth_type(0x0800),ipv4(frag=no){key}"
    return f"{keys}, packets:{packets}, bytes:{packets}, used:1.000s{where}, actions:{actions}"


def test_one_hop_in_software_makes_the_chain_software() -> None:
    """A stream HW -> TC_SW -> HW counted 66.7 % in hardware, and met a requirement of 60 %."""
    found = _check(
        _chain_line("0", HW, "ct(zone=1),recirc(0x1)"),
        _chain_line("0x1", TC_SW, "ct(zone=2),recirc(0x2)"),
        _chain_line("0x2", HW, "p1"),
    )
    assert (found.hw_share, found.conclusion_for(0.6)) == (0.0, Conclusion.NOT_ALL_IN_HARDWARE)
    (row,) = found.rows
    assert (row.verdict, row.reason) == (Verdict.TC_SW, "link 2: perhaps track connections (ct)")
    assert (row.chains, row.megaflows, row.packets, row.exits) == (1, 3, 100, ("p1",))


TRACK = _chain_line("0", HW, "ct(zone=1),recirc(0x1)")
NEW, ESTABLISHED = ",ct_state(0x21/0x21)", ",ct_state(0x22/0x23)"


@pytest.mark.parametrize(
    ("lines", "conclusion"),
    [
        ([TRACK, _chain_line("0x1", HW, "p1")], Conclusion.IN_HARDWARE),
        (
            [
                TRACK,
                _chain_line("0x1", HW, "p1", packets=97),
                _chain_line("0x1", SW, "ct(commit),p1", packets=3, key=NEW),
            ],
            Conclusion.IN_HARDWARE,
        ),
        (
            [
                TRACK,
                _chain_line("0x1", SW, "ct(commit),recirc(0x2)", packets=3, key=NEW),
                _chain_line("0x1", HW, "recirc(0x2)", packets=97, key=ESTABLISHED),
                _chain_line("0x2", SW, "p1"),
            ],
            Conclusion.NOT_ALL_IN_HARDWARE,
        ),
    ],
    ids=["all in hardware", "first packets do not count", "a hop shared with established connections counts"],
)
def test_the_conclusion_on_a_chain(lines: list[str], conclusion: Conclusion) -> None:
    assert _check(*lines).conclusion_for(None) is conclusion


def test_what_follows_the_first_packet_of_a_connection_does_not_count_either() -> None:
    """OVN's load balancer: hash, translate, commit and output, each a megaflow, for the first packet alone."""
    new = _chain_line("0x1", SW, "hash(l4(0)),recirc(0x2)", packets=3, key=",ct_state(0x21/0x21)")
    found = _check(
        _chain_line("0", HW, "ct(zone=1),recirc(0x1)"),
        _chain_line("0x1", HW, "p1", packets=97, key=",ct_state(0x22/0x23)"),
        new,
        _chain_line("0x2", SW, "ct(commit,nat(dst=10.0.0.1)),recirc(0x3)", packets=3),
        _chain_line("0x3", SW, "p2", packets=3),
    )
    assert found.conclusion_for(None) is Conclusion.IN_HARDWARE
    assert [(row.verdict, row.is_judged, row.chains, row.megaflows, row.packets) for row in found.rows] == [
        (Verdict.HW, True, 1, 2, 100),
        (Verdict.SW, False, 1, 3, 3),
    ]
    assert found.rows[0].exits == ("p1", "p2")


def test_a_chain_whose_first_megaflow_is_gone_begins_at_the_next_one() -> None:
    (row,) = _check(_chain_line("0x1", HW, "recirc(0x2)"), _chain_line("0x2", SW, "trunc(100),p1")).rows
    assert (row.verdict, row.chains, row.megaflows, row.packets) == (Verdict.SW, 1, 2, 100)
    assert row.reason == "link 2: send a shortened copy (max_len)"


def test_a_kernel_without_chains_is_the_reason_of_all_of_them() -> None:
    lines = (
        _chain_line("0", SW, "hash(l4(0)),recirc(0x1)"),
        _chain_line("0x1", SW, "p1"),
        _chain_line("0", SW, "trunc(100),p1"),
    )
    found = check_bridge(scan_dump("\n".join(lines)), Evidence(has_tc_chains=False))
    assert [row.reason for row in found.rows] == [
        "recirculation: the kernel lacks CONFIG_NET_TC_SKB_EXT",
        "send a shortened copy (max_len)",
    ]


def test_recirculations_in_nested_actions_are_found() -> None:
    actions = "check_pkt_len(size=1500,gt(userspace(pid=1)),le(clone(ct(zone=1),recirc(0x5)))),recirc(9)"
    assert recirculations(parse_megaflow(_chain_line("0", HW, actions))) == (5, 9)


def test_many_roots_that_share_many_next_hops_take_no_time() -> None:
    """Work that grew with the product would take hours here."""
    roots = [_hop(0, (1,), 10, 10)] * 20_000
    hops = [*roots, *[_hop(1, (), 10, 0)] * 20_000]
    links = link_chains(hops)
    assert {hop.hw_packets for hop in judge_chains(hops)} == {0}
    assert {(link.failing, link.depth) for link in links[:20_000]} == {(20_000, 1)}
    assert {link.root for link in links[20_000:]} == {0}


def _hop(recirc_id: int, targets: tuple[int, ...], packets: int, hw_packets: int, in_port: str = "p0") -> Hop:
    verdict = Verdict.HW if hw_packets else Verdict.TC_SW
    return Hop(in_port, recirc_id, targets, verdict, packets, hw_packets, 10 * hw_packets)


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
def test_packets_of_hops_in_hardware(hops: list[Hop], in_hardware: list[int]) -> None:
    judged = judge_chains(hops)
    assert [hop.hw_packets for hop in judged] == in_hardware
    assert [hop.verdict is Verdict.HW for hop in judged] == [hop.hw_packets == hop.packets > 0 for hop in judged]
    assert [hop.hw_bytes for hop in judged] == [10 * packets for packets in in_hardware]
