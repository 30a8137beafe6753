"""The way back: megaflows that carry answers of backends, and other traffic, are judged beside the blocks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.compiled import compiled
from tests.judged import check_offload
from tests.switch_tunnels import behind_tunnels
from tests.unit.judge.programs import blocks, megaflow_of, two_services
from xenoovs.datapath.megaflow import Megaflow, Verdict
from xenoovs.datapath.parse import parse_megaflow
from xenoovs.evidence.evidence import BridgePorts, Evidence
from xenoovs.judge.expected import ExpectedService, OutsideKind, expected_services
from xenoovs.judge.findings import Conclusion, OffloadFindings, carry_over, part_of
from xenoovs.judge.offload import check_dump
from xenoovs.judge.report import outside_rows, total_row
from xenoovs.model.balancer import Returns

PROGRAM = two_services()
SERVICES = expected_services(PROGRAM)
BLOCKS = blocks(PROGRAM)
HW, TC_SW = ", offloaded:yes, dp:tc", ", dp:tc"
ANY_ANSWER = "in_port(p1),eth_type(0x0800),ipv4(src=0.0.0.0/0.0.0.0,frag=no)"


def _line(keys: str, *, where: str = HW, actions: str = "p0", packets: int = 7) -> str:
    return f"ufid:2, recirc_id(0),{keys}, packets:{packets}, bytes:{packets * 100}, used:0.1s{where}, actions:{actions}"


def _check(*lines: str, megaflows: tuple[Megaflow, ...] = (), evidence: Evidence | None = None) -> OffloadFindings:
    return check_offload(SERVICES, [*megaflows, *map(parse_megaflow, lines)], evidence)


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


def test_packets_between_backends_are_no_answers() -> None:
    services = [replace(service, ports=frozenset({"p1", "p2"})) for service in SERVICES]
    (found,) = check_offload(services, [parse_megaflow(_line(ANY_ANSWER, actions="p2"))]).outside
    assert found.kind is OutsideKind.OTHER


def _one_armed() -> list[ExpectedService]:
    return [replace(service, ports=frozenset({"p0"})) for service in SERVICES]


@pytest.mark.parametrize(
    ("source", "kind"), [("10.3.10.46", OutsideKind.ANSWERS), ("0.0.0.0/0.0.0.0", OutsideKind.OTHER)]
)
def test_behind_a_port_of_clients_only_the_vip_shows_answers(source: str, kind: OutsideKind) -> None:
    keys = f"in_port(p0),eth_type(0x0800),ipv4(src={source},dst=198.18.0.1,frag=no)"
    (found,) = check_offload(_one_armed(), [parse_megaflow(_line(keys))]).outside
    assert found.kind is kind


OTHER = "in_port(p0),eth_type(0x0800),ipv4(dst=10.9.9.9,frag=no)"


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


def test_bug_answers_out_of_a_tunnel_were_packets_of_no_service() -> None:
    """They enter by genev_sys_6081, which no next hop names; remote and key identify their backend."""
    services = expected_services(compiled(behind_tunnels()))
    keys = (
        "tunnel(tun_id={key},src=192.168.77.11,dst=192.168.77.1,flags(-df-csum+key)),in_port(genev_sys_6081),"
        "eth_type(0x0800),ipv4(src=10.3.10.45,frag=no)"
    )
    of_backend, of_another = (parse_megaflow(_line(keys.format(key=key))) for key in ("0x1389", "0x138a"))
    (found,) = check_offload(services, [of_backend]).outside
    assert (found.kind, found.services) == (OutsideKind.ANSWERS, ("web",))
    (found,) = check_offload(services, [of_another]).outside
    assert found.kind is OutsideKind.OTHER


@pytest.mark.parametrize("returns", Returns)
def test_bug_answers_are_not_missed_that_take_another_way(returns: Returns) -> None:
    """With `return: direct` a row showed answers as ABSENT, though none pass the bridge."""
    (service,) = expected_services(compiled(behind_tunnels(returns=returns)))
    assert {block.has_answers for block in service.blocks} == {returns is Returns.SWITCH}
