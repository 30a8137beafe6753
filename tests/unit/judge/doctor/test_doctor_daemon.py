"""Checks of ovs-vswitchd and its settings: ok, wrong and unknown of each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.judge.doctor.facts import (
    DAEMON,
    DATABASE,
    GOOD,
    HISTORY,
    only,
    with_config,
    with_daemon,
    with_database,
    with_host,
    with_wanted,
)
from xenoovs.datapath.fact import Unknown
from xenoovs.datapath.host import OffloadState
from xenoovs.evidence.evidence import Evidence
from xenoovs.judge.doctor import openvswitch
from xenoovs.judge.doctor.check import CheckState, DoctorCase

OFF = OffloadState(is_on=False, evidence="refused")


@pytest.mark.parametrize(
    ("case", "state", "seen"),
    [
        (GOOD, CheckState.OK, "version 3.1.0"),
        (with_host(database=Unknown("connection refused")), CheckState.WRONG, "connection refused"),
        (with_host(daemon=Unknown("no process listens")), CheckState.WRONG, "no process listens"),
        (with_host(daemon=Unknown("on another host"), is_local=False), CheckState.UNKNOWN, "on another host"),
    ],
)
def test_running(case: DoctorCase, state: CheckState, seen: str) -> None:
    row = only(openvswitch.check_running, case)
    assert (row.state, row.seen) == (state, seen)


def test_a_dead_daemon_gives_no_rows_that_need_it() -> None:
    case = with_host(database=Unknown("refused"), daemon=Unknown("refused"))
    later = (
        openvswitch.check_fork,
        openvswitch.check_hw_offload,
        openvswitch.check_offload_in_effect,
        openvswitch.check_tc_policy,
    )
    assert [row for check in later for row in check(case)] == []


@pytest.mark.parametrize(
    ("case", "state", "seen"),
    [
        (GOOD, CheckState.OK, "upstream Open vSwitch, without DOCA"),
        (with_daemon(version="2.17.8+nvidia"), CheckState.OK, "NVIDIA's build of Open vSwitch, without DOCA"),
        (
            with_database(doca_initialized=True, doca_version="3.3.0040", config={"doca-init": "true"}),
            CheckState.OK,
            "OVS-DOCA 3.3.0040, initialised",
        ),
        (with_database(datapath_types=("doca",)), CheckState.OK, "OVS-DOCA, DOCA not in use (doca-init is not set)"),
        (
            with_database(doca_initialized=False, config={"doca-init": "true"}),
            CheckState.WRONG,
            "doca-init is set, but DOCA is not initialised",
        ),
    ],
)
def test_build(case: DoctorCase, state: CheckState, seen: str) -> None:
    row = only(openvswitch.check_fork, case)
    assert (row.state, row.seen) == (state, seen)


@pytest.mark.parametrize(
    ("config", "state"),
    [({"hw-offload": "true"}, CheckState.OK), ({"hw-offload": "false"}, CheckState.WRONG), ({}, CheckState.WRONG)],
)
def test_hw_offload(config: dict[str, str], state: CheckState) -> None:
    row = only(openvswitch.check_hw_offload, with_database(config=config))
    assert row.state is state
    assert str(row.fix) == "ovs-vsctl set Open_vSwitch . other_config:hw-offload=true && ovs-appctl revalidator/purge"


@pytest.mark.parametrize(
    ("case", "state"),
    [
        (GOOD, CheckState.OK),
        (with_daemon(offload=OFF), CheckState.WRONG),
        (with_daemon(offload=Unknown("no log")), CheckState.UNKNOWN),
        (with_database(config={}), CheckState.WRONG),
        (
            replace(
                GOOD,
                evidence=Evidence(
                    replace(GOOD.host, database=replace(DATABASE, config={}), daemon=replace(DAEMON, offload=OFF))
                ),
            ),
            CheckState.OK,
        ),
    ],
    ids=["on", "waits for a restart", "unknown", "on until the restart", "off as set"],
)
def test_offload_in_effect(case: DoctorCase, state: CheckState) -> None:
    assert only(openvswitch.check_offload_in_effect, case).state is state


def test_offload_that_waits_for_a_restart_suggests_it() -> None:
    row = only(openvswitch.check_offload_in_effect, with_daemon(offload=OFF))
    assert row.needs_restart
    assert not row.has_safe_fix
    assert str(row.fix) == "xenoovs doctor --fix --restart-ovs"


@pytest.mark.parametrize(
    ("setting", "used", "state", "needs_restart"),
    [
        ("none", "none", CheckState.OK, False),
        ("skip_sw", "skip_sw", CheckState.OK, False),
        ("skip_hw", "skip_hw", CheckState.WRONG, True),
        ("skip_hw", None, CheckState.WRONG, True),
        ("skip_hw", "none", CheckState.WRONG, True),
        ("none", "skip_hw", CheckState.WRONG, True),
        ("none", None, CheckState.UNKNOWN, False),
        ("skip_sw", "none", CheckState.OK, False),
    ],
)
def test_tc_policy(setting: str, used: str | None, state: CheckState, needs_restart: bool) -> None:
    case = with_config(tc_policy=setting)
    history = replace(HISTORY, tc_policy=used)
    row = only(
        openvswitch.check_tc_policy,
        replace(case, evidence=Evidence(replace(case.host, daemon=replace(DAEMON, history=history)))),
    )
    assert (row.state, row.needs_restart) == (state, needs_restart)


@pytest.mark.parametrize(
    ("value", "version", "state"),
    [
        ("dpdk,tc", "4.0.0", CheckState.OK),
        ("tc,dppk", "4.0.0", CheckState.WRONG),
        ("none", "4.0.0", CheckState.WRONG),
        ("tc", "3.5.0", CheckState.WRONG),
    ],
)
def test_the_order_of_offload_providers(value: str, version: str, state: CheckState) -> None:
    case = with_host(
        database=replace(DATABASE, config={"hw-offload-priority": value}), daemon=replace(DAEMON, version=version)
    )
    assert only(openvswitch.check_offload_priority, case).state is state
    assert list(openvswitch.check_offload_priority(with_host())) == []


def test_tc_policy_is_not_for_the_userspace_datapath() -> None:
    database = replace(DATABASE, bridges=(replace(DATABASE.bridges[0], datapath_type="netdev"),))
    assert list(openvswitch.check_tc_policy(with_host(database=database))) == []


@pytest.mark.parametrize(
    ("settings", "state"),
    [
        ({}, CheckState.OK),
        ({"max_idle": "20000"}, CheckState.OK),
        ({"max_idle": "2500"}, CheckState.WRONG),
        ({"max_idle": "2501"}, CheckState.OK),
        ({"offloaded_stats_delay": "10000"}, CheckState.WRONG),
        ({"max_idle": "many"}, CheckState.OK),
    ],
)
def test_max_idle_is_longer_than_counters_are_late(settings: dict[str, str], state: CheckState) -> None:
    assert only(openvswitch.check_max_idle, with_config(**settings)).state is state


@pytest.mark.parametrize(
    ("value", "state"), [("500", CheckState.OK), ("9999", CheckState.OK), ("10000", CheckState.WRONG)]
)
def test_max_revalidator(value: str, state: CheckState) -> None:
    assert only(openvswitch.check_max_revalidator, with_config(max_revalidator=value)).state is state


@pytest.mark.parametrize(
    ("case", "state", "seen"),
    [
        (GOOD, CheckState.OK, "200000 megaflows (10000 now); the config needs 9"),
        (
            with_wanted(entries=12_000),
            CheckState.OK,
            "200000 megaflows (10000 now); the config needs 12000",
        ),
        (
            with_wanted(entries=200_000),
            CheckState.WRONG,
            "200000 megaflows (10000 now); the config needs 200000",
        ),
        (with_daemon(flow_limit=Unknown("-")), CheckState.OK, "200000 megaflows; the config needs 9"),
        (with_config(flow_limit="5"), CheckState.WRONG, "5 megaflows (10000 now); the config needs 9"),
    ],
)
def test_flow_limit(case: DoctorCase, state: CheckState, seen: str) -> None:
    row = only(openvswitch.check_flow_limit, case)
    assert (row.state, row.seen) == (state, seen)


def test_a_policy_that_is_set_before_offload_begins_needs_no_restart() -> None:
    case = with_config(tc_policy="skip_hw")
    daemon_now = replace(DAEMON, offload=OFF, history=replace(HISTORY, tc_policy=None))
    row = only(openvswitch.check_tc_policy, replace(case, evidence=Evidence(replace(case.host, daemon=daemon_now))))
    assert (row.state, row.needs_restart) == (CheckState.WRONG, False)
    assert str(row.fix) == "ovs-vsctl remove Open_vSwitch . other_config tc-policy"


def test_a_policy_left_over_from_the_start_needs_a_restart_alone() -> None:
    row = only(openvswitch.check_tc_policy, with_daemon(history=replace(HISTORY, tc_policy="skip_hw")))
    assert str(row.fix) == "xenoovs doctor --fix --restart-ovs"
    assert not row.has_safe_fix


def test_offload_that_began_late_leaves_older_megaflows_unknown() -> None:
    """With OVS up to 3.6, hw-offload that was set on a running ovs-vswitchd was reported as ok."""
    row = only(openvswitch.check_offload_in_effect, with_daemon(history=replace(HISTORY, had_ports_before=True)))
    assert row.state is CheckState.UNKNOWN
    assert str(row.fix) == "ovs-appctl revalidator/purge"


@pytest.mark.parametrize(
    ("leftovers", "state"), [((), CheckState.OK), (("log levels",), CheckState.WRONG)], ids=["nothing", "raised levels"]
)
def test_what_a_killed_run_left(leftovers: tuple[str, ...], state: CheckState) -> None:
    row = only(openvswitch.check_leftovers, with_host(leftovers=leftovers))
    assert (row.state, row.has_safe_fix) == (state, state is CheckState.WRONG)


@pytest.mark.parametrize("limit", ["0", "2"])
def test_frames_with_two_tags(limit: str) -> None:
    assert [list(openvswitch.check_vlan_limit(case)) for case in (GOOD, with_config(vlan_limit="1"))] == [[], []]
    row = only(openvswitch.check_vlan_limit, with_config(vlan_limit=limit))
    assert row.fix is not None
    assert row.fix.commands == (("ovs-vsctl", "remove", "Open_vSwitch", ".", "other_config", "vlan-limit"),)


def test_a_restart_that_was_cut_off() -> None:
    assert list(openvswitch.check_restore_wait(GOOD)) == []
    row = only(openvswitch.check_restore_wait, with_config(flow_restore_wait="true"))
    assert row.state is CheckState.WRONG
    assert row.fix is not None
    assert row.fix.commands == (("ovs-vsctl", "remove", "Open_vSwitch", ".", "other_config", "flow-restore-wait"),)
