"""Checks of the backends: ok, wrong and unknown of each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.judge.doctor.facts import HOST, WANTED, only, states
from xenoovs.datapath.fact import Unknown
from xenoovs.datapath.host import BackendFacts, Neighbour
from xenoovs.evidence.evidence import Evidence
from xenoovs.judge.doctor import examine
from xenoovs.judge.doctor.check import CheckState, DoctorCase, RequiredBackend

MAC, OTHER_MAC, VIP = "02:00:5e:10:00:02", "02:00:5e:10:00:03", "10.3.10.45"
RIGHT = {"arp_ignore": 1, "arp_announce": 2, "rp_filter": 0}
SELF = BackendFacts((MAC,), ("127.0.0.1", VIP), RIGHT)
ONE = RequiredBackend("one", MAC, "p1", ("dns",), (VIP,), facts=SELF)
FAR = replace(ONE, facts=Unknown("a backend is not reached from here"))


def _case(*wanted: RequiredBackend, **host: Any) -> DoctorCase:
    return DoctorCase(Evidence(replace(HOST, **host)), replace(WANTED, backends=wanted))


@pytest.mark.parametrize(
    ("others", "state"),
    [
        ((), CheckState.OK),
        ((replace(ONE, services=("web",)),), CheckState.OK),
        ((replace(ONE, name="two"),), CheckState.UNKNOWN),
        ((replace(ONE, name="two", egress="p2"),), CheckState.WRONG),
        ((replace(ONE, egress="p2"),), CheckState.WRONG),
    ],
    ids=["alone", "two services", "two names", "two names, two ports", "two ports"],
)
def test_duplicate_macs(others: tuple[RequiredBackend, ...], state: CheckState) -> None:
    assert only(examine.check_duplicates, _case(ONE, *others)).state is state


def test_a_mac_that_the_backend_itself_has() -> None:
    assert only(examine.check_mac_is_known, _case(ONE)).state is CheckState.OK


def test_a_mac_that_the_backend_does_not_have() -> None:
    row = only(examine.check_mac_is_known, _case(replace(ONE, facts=replace(SELF, macs=(OTHER_MAC,)))))
    assert (row.state, row.seen) == (CheckState.WRONG, f"it has {OTHER_MAC}")


@pytest.mark.parametrize(
    ("host", "state"),
    [
        ({"learned": {"ovsbr1": {MAC: "p1"}}}, CheckState.OK),
        ({"learned": {"ovsbr1": {MAC: "p0"}}}, CheckState.WRONG),
        ({"neighbours": (Neighbour("192.0.2.7", MAC, "eth1"),)}, CheckState.OK),
        ({"neighbours": (Neighbour("192.0.2.7", OTHER_MAC, "eth1"),)}, CheckState.UNKNOWN),
        ({"neighbours": Unknown("ip is not installed")}, CheckState.UNKNOWN),
    ],
    ids=["learned", "learned elsewhere", "neighbour", "never heard", "no table"],
)
def test_a_mac_of_a_backend_that_is_not_reached(host: dict[str, Any], state: CheckState) -> None:
    assert only(examine.check_mac_is_known, _case(FAR, **host)).state is state


@pytest.mark.parametrize(
    ("facts", "state", "fix"),
    [
        (SELF, CheckState.OK, None),
        (replace(SELF, loopback=("127.0.0.1",)), CheckState.WRONG, "ip address add 10.3.10.45/32 dev lo"),
        (Unknown("not reached"), CheckState.UNKNOWN, "ip address show dev lo"),
    ],
)
def test_vip_on_lo(facts: Any, state: CheckState, fix: str | None) -> None:
    row = only(examine.check_vip, _case(replace(ONE, facts=facts)))
    assert row.state is state
    assert fix is None or str(row.fix) == fix


@pytest.mark.parametrize(
    ("key", "value", "state"),
    [
        ("arp_ignore", 0, CheckState.WRONG),
        ("arp_ignore", 2, CheckState.OK),
        ("arp_announce", 1, CheckState.WRONG),
        ("arp_announce", 2, CheckState.OK),
        ("rp_filter", 0, CheckState.OK),
        ("rp_filter", 1, CheckState.WRONG),
        ("rp_filter", 2, CheckState.OK),
    ],
)
def test_sysctls(key: str, value: int, state: CheckState) -> None:
    facts = replace(SELF, sysctls=RIGHT | {key: value})
    rows = {row.name: row.state for row in examine.check_sysctls(_case(replace(ONE, facts=facts)))}
    assert rows == dict.fromkeys(RIGHT, CheckState.OK) | {key: state}


def test_sysctls_of_an_unreachable_backend_come_with_the_command_to_check() -> None:
    rows = list(examine.check_sysctls(_case(FAR)))
    assert {row.state for row in rows} == {CheckState.UNKNOWN}
    assert str(rows[0].fix) == "sysctl net.ipv4.conf.all.arp_ignore"


def test_an_ipv6_service_needs_no_arp_settings() -> None:
    six = replace(FAR, vips=("2001:db8::1",))
    assert list(examine.check_sysctls(_case(six))) == []
    assert list(states(examine.check_vip, _case(six))) == ["one 2001:db8::1"]


def test_backends_are_checked_only_on_request() -> None:
    case = _case()
    assert [row for check in (examine.check_duplicates, examine.check_vip) for row in check(case)] == []
