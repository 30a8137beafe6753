"""Blocks judged by megaflows: which belongs to which block, what counts, and the exit status."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from ipaddress import ip_address

import pytest

from tests.compiled import compiled
from tests.judged import check_offload
from tests.switch_tunnels import behind_tunnels
from tests.unit.balancer import claim, program, service
from tests.unit.judge.programs import blocks, megaflow_of, two_services
from xenoovs.compile.plan import hardware_entries
from xenoovs.datapath.megaflow import Megaflow, Verdict
from xenoovs.datapath.parse import parse_megaflow
from xenoovs.datapath.tc import TcCounters, TcFilter, cookie_of_ufid
from xenoovs.evidence.evidence import BridgePorts, Evidence
from xenoovs.evidence.samples import NO_GROWTH, DatapathSample, Growth, id_of, sampled
from xenoovs.judge.expected import OutsideKind, expected_services
from xenoovs.judge.findings import Anomaly, Conclusion, OffloadFindings, carry_over, part_of
from xenoovs.judge.offload import MegaflowState, check_dump, state_of
from xenoovs.judge.report import outside_rows, service_rows, total_row
from xenoovs.model.balancer import Protocol, Returns

PROGRAM = two_services()
SERVICES = expected_services(PROGRAM)
BLOCKS = blocks(PROGRAM)


def _check(
    *lines: str | Megaflow, megaflows: Sequence[Megaflow] = (), evidence: Evidence | None = None
) -> OffloadFindings:
    found = (parse_megaflow(line) if isinstance(line, str) else line for line in lines)
    return check_offload(SERVICES, [*megaflows, *found], evidence)


@pytest.mark.parametrize(
    ("where", "verdict"),
    [(", dp:tc", Verdict.TC_SW), (", dp:ovs", Verdict.SW), (", offloaded:partial, dp:ovs", Verdict.PARTIAL)],
)
def test_the_worst_megaflow_decides_and_packets_are_counted_separately(where: str, verdict: Verdict) -> None:
    both = [megaflow_of(BLOCKS[0], packets=7), megaflow_of(BLOCKS[0], packets=3, where=where)]
    findings = _check(*both)
    found = findings.blocks[0]
    assert (found.verdict, found.packets, found.hw_packets, found.hw_bytes) == (verdict, 10, 7, 700)
    assert found.verdicts == ((Verdict.HW, 1), (verdict, 1))
    assert findings.conclusion is Conclusion.NOT_ALL_IN_HARDWARE


@pytest.mark.parametrize("actions", ["set(eth(dst=02:00:00:00:00:77)),p1", "set(eth(dst=02:00:00:00:00:01)),p9", "p1"])
def test_another_mac_or_port_than_expected_is_misdelivered(actions: str) -> None:
    findings = _check(megaflow_of(BLOCKS[0], actions=actions))
    assert findings.blocks[0].misdelivered == 1
    assert findings.conclusion is Conclusion.NOT_ALL_IN_HARDWARE


def test_packets_that_leave_by_no_port_are_dropped_not_misdelivered() -> None:
    """The port was renamed: "packets leave by another port or with another MAC", while none left."""
    findings = _check(megaflow_of(BLOCKS[0], actions="drop"))
    assert findings.blocks[0].anomalies == ((Anomaly.DROPPED, 1),)
    assert findings.conclusion is Conclusion.NOT_ALL_IN_HARDWARE


def test_the_slow_path_is_counted() -> None:
    slow = megaflow_of(BLOCKS[0], where=", dp:ovs", actions="userspace(pid=0,slow_path(action))")
    found = _check(slow).blocks[0]
    assert (found.slow_path, found.misdelivered) == (1, 0)


@pytest.mark.parametrize(
    ("keys", "actions", "kind"),
    [
        ("in_port(p0),eth_type(0x0806),arp(tip=10.3.10.45)", "p1", OutsideKind.ARP),
        ("in_port(p0),eth_type(0x86dd),ipv6(proto=58),icmpv6(type=135)", "p1", OutsideKind.NEIGHBOUR_DISCOVERY),
        ("in_port(p0),eth(dst=33:33:00:00:00:01),eth_type(0x86dd),ipv6(frag=no)", "p1", OutsideKind.MULTICAST),
        ("in_port(p0),eth_type(0x0800),ipv4(dst=10.9.9.9)", "drop", OutsideKind.DROP),
        ("recirc_id(0x3),in_port(p0),eth_type(0x0800),ipv4(frag=no)", "p1", OutsideKind.RECIRCULATED),
        ("in_port(p1),eth_type(0x0800),ipv4(src=0.0.0.1/0.0.0.1,dst=10.3.10.46)", "p0", OutsideKind.ANSWERS),
        ("in_port(p0),eth_type(0x0800),ipv4(src=0.0.0.1/0.0.0.1,dst=10.3.10.47)", "p1", OutsideKind.OTHER),
    ],
)
def test_megaflows_of_no_block_are_counted_by_kind(keys: str, actions: str, kind: OutsideKind) -> None:
    text = f"{keys}, packets:1, bytes:60, used:never, dp:ovs, actions:{actions}"
    findings = _check(text)
    assert [(each.kind, each.megaflows) for each in findings.outside] == [(kind, 1)]
    assert findings.conclusion is Conclusion.NOTHING_SEEN


MIXED = [megaflow_of(BLOCKS[0], packets=90), megaflow_of(BLOCKS[1], packets=10, where=", dp:tc")]
UNPROVEN = [megaflow_of(BLOCKS[0], packets=100), megaflow_of(BLOCKS[1], packets=0)]
ASTRAY = [megaflow_of(BLOCKS[0], actions="set(eth(dst=02:00:00:00:00:77)),p1")]


@pytest.mark.parametrize(
    ("megaflows", "required", "conclusion"),
    [
        (MIXED, None, Conclusion.NOT_ALL_IN_HARDWARE),
        (MIXED, 0.9, Conclusion.IN_HARDWARE),
        (MIXED, 0.91, Conclusion.NOT_ALL_IN_HARDWARE),
        ([megaflow_of(BLOCKS[0], packets=0)], 0.5, Conclusion.NOTHING_SEEN),
        # What was expected of unproven blocks counts.
        (UNPROVEN, 0.9, Conclusion.NOTHING_SEEN),
        (UNPROVEN, 0.01, Conclusion.IN_HARDWARE),
        (ASTRAY, 0.5, Conclusion.NOT_ALL_IN_HARDWARE),
    ],
)
def test_a_required_share_is_of_packets(
    megaflows: list[Megaflow], required: float | None, conclusion: Conclusion
) -> None:
    assert _check(*megaflows).conclusion_for(required) is conclusion


def test_offloaded_without_one_packet_is_no_success_yet() -> None:
    idle = megaflow_of(BLOCKS[0], packets=0)
    assert _check(idle).conclusion is Conclusion.NOTHING_SEEN
    assert _check(idle, megaflow_of(BLOCKS[1])).conclusion is Conclusion.NOTHING_SEEN


def test_a_held_block_without_a_packet_is_unconfirmed_with_what_its_share_lets_expect() -> None:
    """A NIC that ignored two bits of masks sent the packets of four blocks by the rule of a fifth: exit status 0."""
    findings = _check(megaflow_of(BLOCKS[0], packets=1984), *(megaflow_of(each, packets=0) for each in BLOCKS[1:2]))
    assert [block.verdict for block in findings.blocks[:2]] == [Verdict.HW, Verdict.UNCONFIRMED]
    (unproven,) = findings.unproven
    assert (unproven.block, unproven.of_packets) == (BLOCKS[1], 1984)
    assert unproven.expected == 1984 // 2 ** BLOCKS[1].key.mask.bit_count()
    assert f"no packet; about {unproven.expected} of 1984 expected for" in str(unproven)


def test_a_second_megaflow_of_a_proven_block_needs_no_packet() -> None:
    """A client's first packet goes by the CPU, so one that sent no second one has a megaflow without a packet."""
    findings = _check(megaflow_of(BLOCKS[0]), megaflow_of(BLOCKS[0], packets=0))
    assert (findings.blocks[0].verdict, findings.conclusion) == (Verdict.HW, Conclusion.IN_HARDWARE)


def test_an_absent_block_keeps_its_earlier_finding() -> None:
    earlier = _check(megaflow_of(BLOCKS[0], where=", dp:ovs"), megaflow_of(BLOCKS[1], where=", dp:ovs"))
    later = _check(megaflow_of(BLOCKS[1]))
    both = carry_over(earlier, later)
    assert [block.verdict for block in both.blocks] == [Verdict.SW, Verdict.HW, Verdict.ABSENT, Verdict.ABSENT]
    assert (both.absent, carry_over(None, later)) == (2, later)


@pytest.mark.parametrize(("max_idle_s", "count"), [(10.0, 0), (0.12, 1)])
def test_what_is_about_to_idle_out_depends_on_max_idle(max_idle_s: float, count: int) -> None:
    findings = _check(megaflow_of(BLOCKS[0]), evidence=Evidence(max_idle_s=max_idle_s))
    assert findings.blocks[0].count(Anomaly.EXPIRING) == count


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


HW, TC_SW = ", offloaded:yes, dp:tc", ", dp:tc"
ANY_ANSWER = "in_port(p1),eth_type(0x0800),ipv4(src=0.0.0.0/0.0.0.0,frag=no)"


def _line(keys: str, *, where: str = HW, actions: str = "p0", packets: int = 7) -> str:
    return f"ufid:2, recirc_id(0),{keys}, packets:{packets}, bytes:{packets * 100}, used:0.1s{where}, actions:{actions}"


REQUESTS = tuple(map(megaflow_of, BLOCKS))


@pytest.mark.parametrize(
    ("keys", "services"),
    [
        (ANY_ANSWER, ("dns", "web")),
        ("in_port(p1),eth_type(0x0800),ipv4(src=10.3.10.45,proto=17,frag=no),udp(src=53)", ("dns",)),
        ("in_port(p1),eth_type(0x0800),ipv4(src=10.3.10.46,frag=no)", ("web",)),
        ("in_port(p1),eth_type(0x0800),ipv4(src=10.3.10.45,proto=17,frag=no),udp(src=54)", ()),
        ("in_port(p1),eth_type(0x0800),ipv4(src=10.9.9.9,frag=no)", ()),
        ("in_port(p1),eth_type(0x86dd),ipv6(frag=no)", ()),
        ("in_port(p0),eth_type(0x0800),ipv4(src=10.3.10.46,dst=10.9.9.9,frag=no)", ()),
    ],
)
def test_answers_come_from_a_port_of_backends_and_may_have_the_vip_as_source(
    keys: str, services: tuple[str, ...]
) -> None:
    (found,) = _check(_line(keys)).outside
    assert (found.kind, found.services) == (OutsideKind.ANSWERS if services else OutsideKind.OTHER, services)


OTHER = "in_port(p0),eth_type(0x0800),ipv4(dst=10.9.9.9,frag=no)"


SERVED = "in_port(p0),eth_type(0x0800),ipv4(src={},dst=198.18.0.1,frag=no)"


@pytest.mark.parametrize(
    ("ports", "keys", "actions", "kind"),
    [
        # Packets between backends are no answers.
        ({"p1", "p2"}, ANY_ANSWER, "p2", OutsideKind.OTHER),
        # Behind a port of clients only the VIP shows answers.
        ({"p0"}, SERVED.format("10.3.10.46"), "p0", OutsideKind.ANSWERS),
        ({"p0"}, SERVED.format("0.0.0.0/0.0.0.0"), "p0", OutsideKind.OTHER),
    ],
)
def test_answers_by_the_ports_of_backends(ports: set[str], keys: str, actions: str, kind: OutsideKind) -> None:
    services = [replace(service, ports=frozenset(ports)) for service in SERVICES]
    (found,) = check_offload(services, [parse_megaflow(_line(keys, actions=actions))]).outside
    assert found.kind is kind


@pytest.mark.parametrize(
    ("keys", "where", "conclusion"), [(ANY_ANSWER, HW, 0), (ANY_ANSWER, TC_SW, 2), (OTHER, HW, 0), (OTHER, TC_SW, 0)]
)
def test_answers_outside_hardware_are_no_success_and_other_traffic_is_only_shown(
    keys: str, where: str, conclusion: int
) -> None:
    findings = _check(_line(keys, where=where, actions="p2"), megaflows=REQUESTS)
    assert findings.conclusion is Conclusion.IN_HARDWARE
    assert (findings.conclusion_for(None), findings.conclusion_for(0.9)) == (conclusion, conclusion)
    (row,) = (row for row in outside_rows(findings) if row.in_port)
    assert row.sums.count(Verdict.HW if where == HW else Verdict.TC_SW) == 1


@pytest.mark.parametrize(("required", "conclusion"), [(0.5, 0), (0.51, 2)])
def test_the_required_share_counts_answers(required: float, conclusion: int) -> None:
    answers = _line(ANY_ANSWER, where=TC_SW, packets=sum(megaflow.packets for megaflow in REQUESTS))
    assert _check(answers, megaflows=REQUESTS).conclusion_for(required) == conclusion


@pytest.mark.parametrize("ports", [BridgePorts(frozenset({"p0"})), BridgePorts(frozenset({"p0"}), ("vxlan_sys_",))])
def test_traffic_of_another_bridge_is_not_judged(ports: BridgePorts) -> None:
    keys = "in_port(pf9),eth_type(0x0800),ipv4(frag=no)"
    findings = _check(_line(keys, where=TC_SW), megaflows=REQUESTS, evidence=Evidence(ports=ports))
    assert [each.kind for each in findings.outside] == [OutsideKind.OTHER_PORT]
    assert findings.conclusion_for(None) is Conclusion.IN_HARDWARE


def test_lines_that_differ_in_the_vip_are_answers_of_different_services() -> None:
    keys = "in_port(p1),eth_type(0x0800),ipv4(src={},frag=no)"
    lines = [_line(keys.format(source)) for source in ("10.9.9.9", "10.3.10.46", "10.9.9.8", "10.3.10.46")]
    found = check_dump(SERVICES, lines).outside
    assert {each.services: each.megaflows for each in found} == {(): 2, ("web",): 2}


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
    dns = part_of(findings, services={"dns"})
    assert [(each.kind, each.services) for each in dns.outside] == [(OutsideKind.ANSWERS, ("dns", "web"))]
    assert (dns.conclusion_for(None), findings.conclusion_for(None)) == (0, 2)


def test_a_later_sample_without_answers_keeps_those_of_the_one_before() -> None:
    before = _check(_line(ANY_ANSWER), megaflows=REQUESTS)
    later = carry_over(before, _check(megaflows=REQUESTS))
    assert (later.unanswered, total_row(later)) == ((), total_row(before))


@pytest.mark.parametrize(
    ("key", "kind", "services"),
    [("0x1389", OutsideKind.ANSWERS, ("web",)), ("0x138a", OutsideKind.OTHER, ())],
    ids=["of a backend", "of none"],
)
def test_bug_answers_out_of_a_tunnel_were_packets_of_no_service(
    key: str, kind: OutsideKind, services: tuple[str, ...]
) -> None:
    """They enter by genev_sys_6081, which no next hop names; remote and key identify their backend."""
    keys = (
        f"tunnel(tun_id={key},src=192.168.77.11,dst=192.168.77.1,flags(-df-csum+key)),in_port(genev_sys_6081),"
        "eth_type(0x0800),ipv4(src=10.3.10.45,frag=no)"
    )
    expected = expected_services(compiled(behind_tunnels()))
    (found,) = check_offload(expected, [parse_megaflow(_line(keys))]).outside
    assert (found.kind, found.services) == (kind, services)


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
    ("where", "in_hw", "verdict", "anomalies"),
    [
        (HW, True, Verdict.HW, ()),
        (HW, False, Verdict.TC_SW, (Anomaly.NOT_IN_HW,)),
        (HW, None, Verdict.UNCONFIRMED, ()),
        (", dp:tc", False, Verdict.TC_SW, ()),
    ],
)
def test_the_kernel_decides(where: str, in_hw: bool | None, verdict: Verdict, anomalies: tuple[Anomaly, ...]) -> None:
    found = _seen(where, _filter(in_hw=in_hw))
    assert (found.verdict, found.anomalies) == (verdict, anomalies)
    assert found.is_counted == (in_hw is not None)


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


@pytest.mark.parametrize(
    ("where", "verdict", "anomalies"),
    [
        (HW, Verdict.HW, (Anomaly.WITHOUT_FILTER,)),
        (", dp:ovs", Verdict.SW, ()),
        (", offloaded:yes, dp:doca", Verdict.HW, ()),
        (", offloaded:partial, dp:ovs", Verdict.PARTIAL, ()),
    ],
)
def test_without_a_filter_the_dump_decides(where: str, verdict: Verdict, anomalies: tuple[Anomaly, ...]) -> None:
    """It is an anomaly of traffic control alone: other layers have none."""
    found = _seen(where, {})
    assert (found.verdict, found.anomalies) == (verdict, anomalies)
