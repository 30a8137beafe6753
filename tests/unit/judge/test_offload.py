"""Blocks judged by megaflows: which belongs to which block, what counts, and the exit status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from tests.compiled import compiled
from tests.judged import assert_recorded, check_offload
from tests.switch_tunnels import behind_tunnels
from tests.unit.balancer import claim, program, service
from tests.unit.judge.programs import blocks, megaflow_of, shown, two_services
from xenoovs.compile.plan import hardware_entries
from xenoovs.datapath.megaflow import Megaflow, Verdict, verdict_of
from xenoovs.datapath.parse import parse_dump, parse_megaflow, scan_dump
from xenoovs.datapath.tc import TcCounters, TcFilter, cookie_of_ufid, parse_tc_json, with_known_counters
from xenoovs.errors import ParseError
from xenoovs.evidence.evidence import BridgePorts, Evidence
from xenoovs.evidence.samples import NO_GROWTH, DatapathSample, Growth, id_of, sampled
from xenoovs.judge.bridge import check_bridge
from xenoovs.judge.expected import OutsideKind, expected_services, match_text
from xenoovs.judge.findings import Anomaly, MegaflowState, OffloadFindings, carry_over, of_services
from xenoovs.judge.links import tree_lines
from xenoovs.judge.offload import check_dump, state_of
from xenoovs.judge.report import outside_rows, service_rows, total_row
from xenoovs.judge.tree import OffloadTree
from xenoovs.model.balancer import Protocol, Returns
from xenoovs.model.load import load_config

PROGRAM = two_services()
SERVICES = expected_services(PROGRAM)
BLOCKS = blocks(PROGRAM)


def _check(
    *lines: str | Megaflow, megaflows: Sequence[Megaflow] = (), evidence: Evidence | None = None
) -> OffloadFindings:
    found = (parse_megaflow(line) if isinstance(line, str) else line for line in lines)
    return check_offload(SERVICES, [*megaflows, *found], evidence)


HW, TC_SW, SW, PARTIAL = ", offloaded:yes, dp:tc", ", dp:tc", ", dp:ovs", ", offloaded:partial, dp:ovs"
FIRST, SECOND = BLOCKS[:2]
REQUESTS = tuple(map(megaflow_of, BLOCKS))
V4, V6 = "eth_type(0x0800),ipv4", "eth_type(0x86dd),ipv6"
ANY_ANSWER = f"in_port(p1),{V4}(src=0.0.0.0/0.0.0.0,frag=no)"
OTHER = f"in_port(p0),{V4}(dst=10.9.9.9,frag=no)"
BY_TUNNEL = (
    "tunnel(tun_id={},src=192.168.77.11,dst=192.168.77.1,flags(-df-csum+key)),in_port(genev_sys_6081),"
    "eth_type(0x0800),ipv4(src=10.3.10.45,frag=no)"
)


def _line(keys: str, *, where: str = HW, actions: str = "p0", packets: int = 7) -> str:
    return f"ufid:2, recirc_id(0),{keys}, packets:{packets}, bytes:{packets * 100}, used:0.1s{where}, actions:{actions}"


def _by_ports(port: str, keys: str, *, actions: str = "p0") -> OffloadFindings:
    """Judged with backends behind these ports."""
    services = [replace(service, ports=frozenset(port.split())) for service in SERVICES]
    return check_offload(services, [parse_megaflow(_line(keys, actions=actions))])


def _out_of_tunnel(key: str) -> OffloadFindings:
    expected = expected_services(compiled(behind_tunnels()))
    return check_offload(expected, [parse_megaflow(_line(BY_TUNNEL.format(key)))])


def _elsewhere(ports: BridgePorts) -> OffloadFindings:
    line = _line(f"in_port(pf9),{V4}(frag=no)", where=TC_SW)
    return _check(line, megaflows=REQUESTS, evidence=Evidence(ports=ports))


def _findings() -> dict[str, OffloadFindings]:
    return {
        **{
            f"the worst megaflow decides: {name}": _check(
                megaflow_of(FIRST, packets=7), megaflow_of(FIRST, packets=3, where=where)
            )
            for name, where in (("TC_SW", TC_SW), ("SW", SW), ("PARTIAL", PARTIAL))
        },
        "another MAC": _check(megaflow_of(FIRST, actions="set(eth(dst=02:00:00:00:00:77)),p1")),
        "another port": _check(megaflow_of(FIRST, actions="set(eth(dst=02:00:00:00:00:01)),p9")),
        "no MAC": _check(megaflow_of(FIRST, actions="p1")),
        # The port was renamed: "packets leave by another port or with another MAC", while none left.
        "dropped": _check(megaflow_of(FIRST, actions="drop")),
        "slow path": _check(megaflow_of(FIRST, where=SW, actions="userspace(pid=0,slow_path(action))")),
        "90 % in hardware": _check(megaflow_of(FIRST, packets=90), megaflow_of(SECOND, packets=10, where=TC_SW)),
        "89 % in hardware": _check(megaflow_of(FIRST, packets=89), megaflow_of(SECOND, packets=11, where=TC_SW)),
        "without a packet": _check(megaflow_of(FIRST, packets=0)),
        "one of two without a packet": _check(megaflow_of(FIRST, packets=0), megaflow_of(SECOND)),
        # A NIC that ignored two bits of masks sent the packets of four blocks by the rule of a fifth: exit status 0.
        # What was expected of the others by their share counts.
        "the other one has many": _check(megaflow_of(FIRST, packets=1984), megaflow_of(SECOND, packets=0)),
        # A client's first packet goes by the CPU, so one that sent no second one has a megaflow without a packet.
        "a second megaflow of a proven block": _check(megaflow_of(FIRST), megaflow_of(FIRST, packets=0)),
        **{
            f"idle soon, max-idle {idle_s} s": _check(megaflow_of(FIRST), evidence=Evidence(max_idle_s=idle_s))
            for idle_s in (10.0, 0.12)
        },
        **{
            name: _check(f"{keys}, packets:1, bytes:60, used:never, dp:ovs, actions:{actions}")
            for name, keys, actions in (
                ("ARP", "in_port(p0),eth_type(0x0806),arp(tip=10.3.10.45)", "p1"),
                ("neighbour discovery", f"in_port(p0),{V6}(proto=58),icmpv6(type=135)", "p1"),
                ("multicast", f"in_port(p0),eth(dst=33:33:00:00:00:01),{V6}(frag=no)", "p1"),
                ("a drop", f"in_port(p0),{V4}(dst=10.9.9.9)", "drop"),
                ("recirculated", f"recirc_id(0x3),in_port(p0),{V4}(frag=no)", "p1"),
                ("to another address", f"in_port(p0),{V4}(src=0.0.0.1/0.0.0.1,dst=10.3.10.47)", "p1"),
            )
        },
        # Answers come from a port of backends and may have the VIP as source.
        "answers of any": _check(_line(ANY_ANSWER)),
        "answers of dns": _check(_line(f"in_port(p1),{V4}(src=10.3.10.45,proto=17,frag=no),udp(src=53)")),
        "answers of web": _check(_line(f"in_port(p1),{V4}(src=10.3.10.46,frag=no)")),
        "answers to one client": _check(_line(f"in_port(p1),{V4}(src=0.0.0.1/0.0.0.1,dst=10.3.10.46)")),
        "from another port of a VIP": _check(_line(f"in_port(p1),{V4}(src=10.3.10.45,proto=17,frag=no),udp(src=54)")),
        "from another address": _check(_line(f"in_port(p1),{V4}(src=10.9.9.9,frag=no)")),
        "of another family": _check(_line(f"in_port(p1),{V6}(frag=no)")),
        "from a VIP, but a port of clients": _check(_line(f"in_port(p0),{V4}(src=10.3.10.46,dst=10.9.9.9,frag=no)")),
        "between backends": _by_ports("p1 p2", ANY_ANSWER, actions="p2"),
        # Behind a port of clients only the VIP shows answers.
        "from a VIP behind a port of clients": _by_ports("p0", f"in_port(p0),{V4}(src=10.3.10.46,dst=198.18.0.1)"),
        "from any behind a port of clients": _by_ports("p0", f"in_port(p0),{V4}(src=0.0.0.0/0.0.0.0,dst=198.18.0.1)"),
        # Bug: they enter by genev_sys_6081, which no next hop names; remote and key identify their backend.
        "answers out of a tunnel": _out_of_tunnel("0x1389"),
        "out of a tunnel with another key": _out_of_tunnel("0x138a"),
        **{
            f"{name} beside requests": _check(_line(keys, where=where, actions="p2"), megaflows=REQUESTS)
            for name, keys, where in (
                ("answers", ANY_ANSWER, HW),
                ("answers in software", ANY_ANSWER, TC_SW),
                ("other traffic in software", OTHER, TC_SW),
            )
        },
        "as many answers in software as requests": _check(
            _line(ANY_ANSWER, where=TC_SW, packets=sum(one.packets for one in REQUESTS)), megaflows=REQUESTS
        ),
        "more answers in software than requests": _check(
            _line(ANY_ANSWER, where=TC_SW, packets=1 + sum(one.packets for one in REQUESTS)), megaflows=REQUESTS
        ),
        "of another bridge": _elsewhere(BridgePorts(frozenset({"p0"}))),
        "of another bridge with tunnels": _elsewhere(BridgePorts(frozenset({"p0"}), frozenset({"vxlan"}))),
        "lines that differ in the VIP": check_dump(
            SERVICES,
            [_line(f"in_port(p1),{V4}(src=10.{end},frag=no)") for end in ("9.9.9", "3.10.46", "9.9.8", "3.10.46")],
        ),
    }


def test_blocks_what_is_outside_and_the_conclusions(*, update_golden: bool) -> None:
    assert_recorded(
        "judged/blocks.txt", {title: shown(found) for title, found in _findings().items()}, update=update_golden
    )


def test_an_absent_block_keeps_its_earlier_finding() -> None:
    earlier = _check(megaflow_of(BLOCKS[0], where=", dp:ovs"), megaflow_of(BLOCKS[1], where=", dp:ovs"))
    later = _check(megaflow_of(BLOCKS[1]))
    both = carry_over(earlier, later)
    assert [block.verdict for block in both.blocks] == [Verdict.SW, Verdict.HW, Verdict.ABSENT, Verdict.ABSENT]
    assert both.absent == 2


@pytest.mark.parametrize("weights", [(1, 1), (5, 3, 2), (128, 64, 32, 16, 8, 4, 2, 1, 1)])
def test_all_blocks_by_all_entries_are_the_hardware_entries(weights: tuple[int, ...]) -> None:
    vips = ip_address("10.3.10.45"), ip_address("2001:db8::45")
    compiled = program(service(claim(*vips, protocol=Protocol.UDP, ports=[(53, 53), (80, 81)]), *weights))
    (row,) = service_rows(check_offload(expected_services(compiled), []))
    assert (row.predicted, row.predicted_all) == (0, hardware_entries(compiled.services[0]))


def test_verdicts_are_ordered_from_absent_to_the_worst() -> None:
    """By this a block with several megaflows has its verdict."""
    worst_last = sorted(Verdict, key=lambda verdict: verdict.badness)
    assert [verdict.value for verdict in worst_last] == [
        *("ABSENT", "HW", "UNCONFIRMED", "PARTIAL", "TC_SW", "IDLE_HW", "SW", "CONTRADICTED")
    ]


def test_rows_add_up_to_the_total() -> None:
    other = _line(OTHER, where=", dp:ovs", actions="p1")
    findings = _check(_line(ANY_ANSWER), _line(ANY_ANSWER, where=TC_SW), other, megaflows=REQUESTS)
    total, (answers, others) = total_row(findings), outside_rows(findings)
    assert dict(answers.sums.others) == {Verdict.HW: 1, Verdict.TC_SW: 1}
    assert (answers.sums.packets, others.sums.packets) == (14, 7)
    assert (total.packets, total.hw_packets) == (10 * len(REQUESTS) + 21, 10 * len(REQUESTS) + 7)


def test_a_part_has_the_answers_of_its_services_and_no_other_traffic() -> None:
    other = _line(OTHER, where=TC_SW, actions="p1")
    only_web = _line("in_port(p1),eth_type(0x0800),ipv4(src=10.3.10.46,frag=no)", where=TC_SW)
    findings = _check(_line(ANY_ANSWER), other, only_web, megaflows=REQUESTS)
    dns = of_services(findings, {"dns"})
    assert [(each.kind, each.services) for each in dns.outside] == [(OutsideKind.ANSWERS, ("dns", "web"))]
    assert (dns.conclusion_for(None), findings.conclusion_for(None)) == (0, 2)


def test_bug_one_unreadable_line_hid_that_a_service_has_had_no_traffic() -> None:
    """`--service` concluded that the dump has no readable megaflow, if it had none of that service."""
    findings = check_dump(expected_services(PROGRAM), [_line(OTHER), "in_port(p0), packets:x actions:p1"])
    part = of_services(findings, {"dns"})
    assert (len(part.unparsed), part.conclusion.name) == (1, "NOTHING_SEEN")


def test_a_later_sample_without_answers_keeps_those_of_the_one_before() -> None:
    before = _check(_line(ANY_ANSWER), megaflows=REQUESTS)
    later = carry_over(before, _check(megaflows=REQUESTS))
    assert (later.unanswered, total_row(later)) == ((), total_row(before))


@pytest.mark.parametrize("returns", Returns)
def test_bug_answers_are_not_missed_that_take_another_way(returns: Returns) -> None:
    """With `return: direct` a row showed answers as ABSENT, though none pass the bridge."""
    (service,) = expected_services(compiled(behind_tunnels(returns=returns)))
    assert {block.has_answers for block in service.blocks} == {returns is Returns.SWITCH}


UFID = "43d31ab9-4e39-4fcc-bd80-4aaf34dc5a32"
COOKIE = cookie_of_ufid(UFID) or ""


def _filter(
    *, in_hw: bool | None, counters: TcCounters | None = None, active_s: int | None = None
) -> dict[str, TcFilter]:
    return {COOKIE: TcFilter("ip", 2, 0, 1, COOKIE, in_hw=in_hw, counters=counters, active_s=active_s)}


def _seen(
    where: str, filters: dict[str, TcFilter] | None, before: TcCounters | None = None, *, contradicted: str = ""
) -> MegaflowState:
    keys = f"ufid:{UFID}, in_port(p0),eth_type(0x0800)"
    megaflow = parse_megaflow(f"{keys}, packets:10, bytes:1000, used:0.1s{where}, actions:p1")
    sample = None if before is None else DatapathSample({id_of(megaflow): sampled(megaflow, before)})
    found = state_of(megaflow, filters, sample, {contradicted})
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("where", "filters", "verdict", "anomalies"),
    [
        (HW, _filter(in_hw=True), Verdict.HW, ()),
        (HW, _filter(in_hw=False), Verdict.TC_SW, (Anomaly.NOT_IN_HW,)),
        (HW, _filter(in_hw=None), Verdict.UNCONFIRMED, ()),
        (TC_SW, _filter(in_hw=False), Verdict.TC_SW, ()),
        # Without a filter the dump decides; it is an anomaly of traffic control alone: other layers have none.
        (HW, {}, Verdict.HW, (Anomaly.WITHOUT_FILTER,)),
        (SW, {}, Verdict.SW, ()),
        (", offloaded:yes, dp:doca", {}, Verdict.HW, ()),
        (PARTIAL, {}, Verdict.PARTIAL, ()),
    ],
)
def test_the_kernel_decides(
    where: str, filters: dict[str, TcFilter], verdict: Verdict, anomalies: tuple[Anomaly, ...]
) -> None:
    found = _seen(where, filters)
    assert (found.verdict, found.anomalies) == (verdict, anomalies)
    assert found.is_counted == (verdict is not Verdict.UNCONFIRMED)


def test_a_filter_with_both_counters_shows_what_the_nic_forwarded() -> None:
    found = _seen(HW, _filter(in_hw=True, counters=TcCounters(20, 1900, 15, 1500)))
    assert (found.packets, found.bytes, found.hw_packets, found.hw_bytes) == (20, 1900, 15, 1500)


@pytest.mark.parametrize(
    ("before", "now", "active_s", "verdict"),
    [
        (None, TcCounters(31, 2666, None), None, Verdict.UNCONFIRMED),
        # Packets that came before the NIC held the rule went by software; so did all others, if they came long after.
        (None, TcCounters(31, 2666), 0, Verdict.UNCONFIRMED),
        (None, TcCounters(31, 2666), None, Verdict.UNCONFIRMED),
        (None, TcCounters(31, 2666), 24, Verdict.IDLE_HW),
        (None, TcCounters(272, 27200, 48, 4800), 24, Verdict.UNCONFIRMED),
        (None, TcCounters(272, 27200, 200, 20000), 24, Verdict.HW),
        (None, TcCounters(0, 0), 0, Verdict.HW),
        # Two samples are judged by what grew between them.
        (TcCounters(1000, 1, 1000), TcCounters(1224, 1, 1000), None, Verdict.IDLE_HW),
        (TcCounters(31, 1, 0), TcCounters(1031, 1, 1000), None, Verdict.HW),
        (TcCounters(31, 1, 0), TcCounters(1034, 1, 1000), None, Verdict.HW),
        (TcCounters(31, 1, 0), TcCounters(36, 1, 4), None, Verdict.TC_SW),
        (TcCounters(96, 1, 96), TcCounters(192, 1, 156), None, Verdict.TC_SW),
        (TcCounters(1000, 1, 1000), TcCounters(1000, 1, 1000), None, Verdict.HW),
        (TcCounters(1000, 1, 1000), TcCounters(40, 1, 10), None, Verdict.UNCONFIRMED),
    ],
)
def test_the_verdict_by_counters(
    before: TcCounters | None, now: TcCounters, active_s: int | None, verdict: Verdict
) -> None:
    found = _seen(HW, _filter(in_hw=True, counters=now, active_s=active_s), before)
    assert (found.verdict, found.is_counted) == (verdict, now.hw_packets is not None)


@pytest.mark.parametrize(
    ("stray", "verdict"), [(1, Verdict.UNCONFIRMED), (9, Verdict.UNCONFIRMED), (200, Verdict.IDLE_HW)]
)
def test_a_stray_packet_in_software_is_no_idle_rule_under_steady_traffic(stray: int, verdict: Verdict) -> None:
    """The NIC refreshes its counters every 10 s; 100 packets a second, one stray: IDLE_HW [confirmed]."""
    [(cookie, rule)] = _filter(in_hw=True, counters=TcCounters(3000 + stray, 1, 3000)).items()
    found = _seen(HW, {cookie: replace(rule, age_s=30)}, TcCounters(3000, 1, 3000))
    assert (found.verdict, found.growth) == (verdict, Growth(stray, 0) if verdict is Verdict.IDLE_HW else NO_GROWTH)


def test_the_counter_of_a_port_outweighs_the_nic() -> None:
    before, now = TcCounters(10, 1, 10), TcCounters(110, 1, 110)
    filters = _filter(in_hw=True, counters=now)
    assert _seen(HW, filters, before, contradicted="p0").verdict is Verdict.CONTRADICTED
    assert _seen(HW, filters, before, contradicted="p1").verdict is Verdict.HW
    assert _seen(HW, filters, now, contradicted="p0").verdict is Verdict.HW


# The tree of findings: service, block, megaflow, rule of traffic control.

VERIFY = Path(__file__).parents[2] / "golden" / "verify"
OF_FILE = expected_services(compiled(load_config(VERIFY / "dns.yaml")))
TABLE_FULL = (VERIFY / "table_full.dump").read_text()
OF_FIRST = next(line for line in TABLE_FULL.splitlines(keepends=True) if "src=0.0.0.0/0.0.0.1" in line)


def _listed(dump: str) -> OffloadFindings:
    dumped = with_known_counters(parse_tc_json((VERIFY / "table_full.tc.json").read_text()))
    filters = {found.cookie or "": found for found in dumped}
    return check_offload(OF_FILE, parse_dump(dump), Evidence(filters=filters), is_listing=True)


def _tree(findings: OffloadFindings) -> str:
    return "\n".join(before for before, _, _ in tree_lines(OffloadTree(findings).nodes()))


def test_many_megaflows_of_a_block_are_counted_and_one_without_its_filter_is_named() -> None:
    findings = _listed(OF_FIRST * 12)
    assert "and 2 more megaflows (all with -o json)" in _tree(findings)
    services: Any = OffloadTree(findings).to_json()["services"]
    assert len(services[0]["blocks"][0]["megaflow_list"]) == 12
    assert "no tc filter has its cookie" not in _tree(findings)
    assert "no tc filter has its cookie" in _tree(_listed(TABLE_FULL.splitlines()[0] + "\nufid:0" + OF_FIRST[6:]))


def test_megaflows_of_an_earlier_sample_stay_with_their_blocks() -> None:
    merged = carry_over(_listed(OF_FIRST), _listed(TABLE_FULL.replace(OF_FIRST, "")))
    assert OffloadTree(merged).to_json() == OffloadTree(_listed(TABLE_FULL)).to_json()
    assert of_services(merged, set()).listed == ()


@pytest.mark.parametrize(
    ("where", "actions", "verdict"),
    [
        (HW, "p0", Verdict.HW),
        (HW, "sample(sample=1.0%,actions(userspace(pid=1))),p0", Verdict.HW),
        (", offloaded:yes, dp:doca", "p0", Verdict.HW),
        (", offloaded:yes, dp:ovs", "p0", Verdict.PARTIAL),
        (PARTIAL, "p0", Verdict.PARTIAL),
        (HW, "p0,userspace(pid=1)", Verdict.PARTIAL),
        (HW, "userspace(pid=1,slow_path(action))", Verdict.PARTIAL),
        (", offloaded:yes, dp:dummy", "p0", Verdict.SW),
    ],
)
def test_bug_what_the_cpu_does_is_not_offloaded(where: str, actions: str, verdict: Verdict) -> None:
    """A megaflow of Open vSwitch's own layer, or with packets for ovs-vswitchd, was in hardware by its word alone."""
    assert verdict_of(parse_megaflow(_line(OTHER, where=where, actions=actions))) is verdict


def test_bug_a_report_failed_with_a_megaflow_that_matches_the_whole_tos() -> None:
    """`-o json` and `--tree` ended with an internal error beside a tunnel with `tos=inherit`."""
    megaflow = parse_megaflow(_line(f"in_port(p0),{V4}(dst=10.9.9.9,tos=0x22,frag=no)"))
    assert match_text(megaflow) == "ip,in_port=p0,nw_dst=10.9.9.9,nw_tos=32"


@pytest.mark.parametrize(
    ("line", "ends"),
    [
        (_line(OTHER, where=", offloaded:later, dp:tc"), "NOTHING_SEEN"),
        (_line(OTHER).replace("packets:7", "packets:x"), "IN_HARDWARE"),
        (_line(OTHER, where=TC_SW).partition(" actions:")[0], "IN_HARDWARE"),
    ],
    ids=["another word for software", "in hardware by its word", "cut off, as its flow is gone"],
)
@pytest.mark.parametrize("required", [None, 0.5])
def test_bug_unreadable_megaflows_did_not_count(line: str, ends: str, required: float | None) -> None:
    """`verify-offload` ended with exit status 0 though megaflows in software may be in lines that it cannot read."""
    lines = [_line(f"in_port(p0),{V4}(src=0.0.0.0/0.0.0.0,dst=10.9.9.9)"), line]
    found = replace(_check(megaflows=REQUESTS), is_filtered=check_dump(SERVICES, lines).is_filtered)
    assert found.conclusion_for(required).name == ends
    lost = replace(found, blocks=(replace(found.blocks[0], anomalies=Counter((Anomaly.DROPPED,))), *found.blocks[1:]))
    assert lost.conclusion_for(required).name == "NOT_ALL_IN_HARDWARE"
    assert check_bridge(map(_read, lines)).conclusion_for(required).name == ends


def _read(line: str) -> Megaflow | ParseError:
    return next(scan_dump(line))
