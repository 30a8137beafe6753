"""Checks of the backends: ok, wrong and unknown of each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.verify.doctor.facts import HOST, WANTED, only, states
from xenoovs.datapath.host import BackendFacts, Neighbour, Unknown
from xenoovs.verify.doctor import examine
from xenoovs.verify.doctor.check import Case, State, WantedBackend

MAC, OTHER_MAC, VIP = "02:00:5e:10:00:02", "02:00:5e:10:00:03", "10.3.10.45"
RIGHT = {"arp_ignore": 1, "arp_announce": 2, "rp_filter": 0}
SELF = BackendFacts((MAC,), ("127.0.0.1", VIP), RIGHT)
ONE = WantedBackend("one", MAC, "p1", ("dns",), (VIP,), facts=SELF)
FAR = replace(ONE, facts=Unknown("a backend is not reached from here"))


def _case(*wanted: WantedBackend, **host: Any) -> Case:
    return Case(replace(HOST, **host), replace(WANTED, backends=wanted))


@pytest.mark.parametrize(
    ("others", "state"),
    [
        ((), State.OK),
        ((replace(ONE, services=("web",)),), State.OK),
        ((replace(ONE, name="two"),), State.UNKNOWN),
        ((replace(ONE, name="two", egress="p2"),), State.WRONG),
        ((replace(ONE, egress="p2"),), State.WRONG),
    ],
    ids=["alone", "two services", "two names", "two names, two ports", "two ports"],
)
def test_duplicate_macs(others: tuple[WantedBackend, ...], state: State) -> None:
    assert only(examine.check_duplicates, _case(ONE, *others)).state is state


def test_a_mac_that_the_backend_itself_has() -> None:
    assert only(examine.check_mac_is_known, _case(ONE)).state is State.OK


def test_a_mac_that_the_backend_does_not_have() -> None:
    row = only(examine.check_mac_is_known, _case(replace(ONE, facts=replace(SELF, macs=(OTHER_MAC,)))))
    assert (row.state, row.seen) == (State.WRONG, f"it has {OTHER_MAC}")


@pytest.mark.parametrize(
    ("host", "state"),
    [
        ({"learned": {"ovsbr1": {MAC: "p1"}}}, State.OK),
        ({"learned": {"ovsbr1": {MAC: "p0"}}}, State.WRONG),
        ({"neighbours": (Neighbour("192.0.2.7", MAC, "eth1"),)}, State.OK),
        ({"neighbours": (Neighbour("192.0.2.7", OTHER_MAC, "eth1"),)}, State.UNKNOWN),
        ({"neighbours": Unknown("ip is not installed")}, State.UNKNOWN),
    ],
    ids=["learned", "learned elsewhere", "neighbour", "never heard", "no table"],
)
def test_a_mac_of_a_backend_that_is_not_reached(host: dict[str, Any], state: State) -> None:
    assert only(examine.check_mac_is_known, _case(FAR, **host)).state is state


@pytest.mark.parametrize(
    ("facts", "state", "fix"),
    [
        (SELF, State.OK, None),
        (replace(SELF, loopback=("127.0.0.1",)), State.WRONG, "ip address add 10.3.10.45/32 dev lo"),
        (Unknown("not reached"), State.UNKNOWN, "ip address show dev lo"),
    ],
)
def test_vip_on_lo(facts: Any, state: State, fix: str | None) -> None:
    row = only(examine.check_vip, _case(replace(ONE, facts=facts)))
    assert row.state is state
    assert fix is None or str(row.fix) == fix


@pytest.mark.parametrize(
    ("key", "value", "state"),
    [
        ("arp_ignore", 0, State.WRONG),
        ("arp_ignore", 2, State.OK),
        ("arp_announce", 1, State.WRONG),
        ("arp_announce", 2, State.OK),
        ("rp_filter", 0, State.OK),
        ("rp_filter", 1, State.WRONG),
        ("rp_filter", 2, State.OK),
    ],
)
def test_sysctls(key: str, value: int, state: State) -> None:
    facts = replace(SELF, sysctls=RIGHT | {key: value})
    rows = {row.name: row.state for row in examine.check_sysctls(_case(replace(ONE, facts=facts)))}
    assert rows == dict.fromkeys(RIGHT, State.OK) | {key: state}


def test_sysctls_of_a_backend_that_is_not_reached_come_with_the_command_to_look() -> None:
    rows = list(examine.check_sysctls(_case(FAR)))
    assert {row.state for row in rows} == {State.UNKNOWN}
    assert str(rows[0].fix) == "sysctl net.ipv4.conf.all.arp_ignore"


def test_an_ipv6_service_needs_no_arp_settings() -> None:
    six = replace(FAR, vips=("2001:db8::1",))
    assert list(examine.check_sysctls(_case(six))) == []
    assert list(states(examine.check_vip, _case(six))) == ["one 2001:db8::1"]


def test_backends_are_looked_at_only_when_asked() -> None:
    case = _case()
    assert [row for check in (examine.check_duplicates, examine.check_vip) for row in check(case)] == []
