"""Checks of the backends: ok, wrong and unknown of each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.judge.doctor.facts import HOST, WANTED, Check, Table, as_params, assert_row, states
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


def _facts(facts: Any) -> DoctorCase:
    return _case(replace(ONE, facts=facts))


NEIGHBOUR = Neighbour("192.0.2.7", MAC, "eth1")
ROWS: Table = {
    (examine.check_duplicates, None): {
        "alone": (_case(ONE), "ok: only one"),
        "two services": (_case(ONE, replace(ONE, services=("web",))), "ok: only one"),
        "two names": (_case(ONE, replace(ONE, name="two")), "unknown: one, two share it:..."),
        "two names, two ports": (_case(ONE, replace(ONE, name="two", egress="p2")), "wrong: one, two share it..."),
        "two ports": (_case(ONE, replace(ONE, egress="p2")), "wrong: one share it behind different ports: p1, p2"),
    },
    (examine.check_mac_is_known, None): {
        "the backend has it": (_case(ONE), "ok: the backend has it"),
        "the backend has another": (_facts(replace(SELF, macs=(OTHER_MAC,))), f"wrong: it has {OTHER_MAC}"),
        "learned": (_case(FAR, learned={"ovsbr1": {MAC: "p1"}}), "ok: the bridge has learned it on p1"),
        "learned elsewhere": (
            _case(FAR, learned={"ovsbr1": {MAC: "p0"}}),
            "wrong: the bridge has learned it on p0...",
        ),
        "neighbour": (_case(FAR, neighbours=(NEIGHBOUR,)), "ok: neighbour 192.0.2.7 on eth1"),
        "never heard": (_case(FAR, neighbours=(replace(NEIGHBOUR, mac=OTHER_MAC),)), "unknown: neither learned..."),
        "no table": (
            _case(FAR, neighbours=Unknown("ip is not installed")),
            "unknown: ip is not installed -> ...",
        ),
    },
    (examine.check_vip, None): {
        "present": (_case(ONE), "ok: present"),
        "missing": (
            _facts(replace(SELF, loopback=("127.0.0.1",))),
            "wrong: missing -> ip address add 10.3.10.45/32 dev lo",
        ),
        "not reached": (_facts(Unknown("not reached")), "unknown: ...-> ip address show dev lo"),
    },
}


@pytest.mark.parametrize(("check", "subject", "case", "row"), as_params(ROWS))
def test_the_row_of_a_check(check: Check, subject: str | None, case: DoctorCase, row: str) -> None:
    assert_row(check, subject, case, row)


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
