"""Checks of ovs-vswitchd, its settings and the bridge: ok, wrong and unknown of each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.judge.doctor.facts import (
    BRIDGE,
    CONTROLLER,
    COST,
    DAEMON,
    DATABASE,
    DEVICES,
    GOOD,
    HISTORY,
    Check,
    Table,
    as_params,
    assert_row,
    interface,
    with_bridge,
    with_config,
    with_daemon,
    with_database,
    with_facts,
    with_history,
    with_host,
    with_wanted,
)
from xenoovs.datapath.database import Controller, Mirror
from xenoovs.datapath.fact import Unknown
from xenoovs.datapath.host import OffloadState
from xenoovs.judge.doctor import openvswitch
from xenoovs.judge.doctor.check import DoctorCase
from xenoovs.judge.doctor.foreign_flows import ForeignFlows

OFF = OffloadState(is_on=False, evidence="refused")
SLAVE = Controller("tcp:192.0.2.2:6653", is_connected=True, role="slave")
SILENT = Controller("tcp:192.0.2.3:6653")
EQUAL = Controller("tcp:192.0.2.4:6653", is_connected=True, role="other")
DPDK_PORTS = (interface("p0", 1, type="dpdk"), interface("p1", 2, type="doca"))
OFF_OF_THE_ESWITCH = replace(DEVICES["p1"], name="x0", switch_id=None)


def _policy(setting: str, used: str | None, **daemon: Any) -> DoctorCase:
    """Set in the database, and in use."""
    history = replace(HISTORY, tc_policy=used)
    return with_facts(with_config(tc_policy=setting), daemon=replace(DAEMON, history=history, **daemon))


def _providers(value: str, version: str) -> DoctorCase:
    database = replace(DATABASE, config={"hw-offload-priority": value})
    return with_host(database=database, daemon=replace(DAEMON, version=version))


def _foreign(**found: Any) -> DoctorCase:
    flow = "priority=2000,ip,nw_src=203.0.113.9 actions=drop"
    return with_wanted(foreign=ForeignFlows((flow,), **found))


def _mirror(**mirror: Any) -> DoctorCase:
    return with_facts(with_bridge(mirrors=(Mirror("m", **mirror),)), devices={**DEVICES, "x0": OFF_OF_THE_ESWITCH})


ROWS: Table = {
    (openvswitch.check_running, None): {
        "it runs": (GOOD, "ok: version 3.1.0"),
        "no database": (with_host(database=Unknown("connection refused")), "wrong: connection refused ->..."),
        "no ovs-vswitchd": (with_host(daemon=Unknown("no process listens")), "wrong: no process listens ->..."),
        "elsewhere": (with_host(daemon=Unknown("on another host"), is_local=False), "unknown: on another host"),
    },
    (openvswitch.check_fork, None): {
        "upstream": (GOOD, "ok: upstream Open vSwitch, without DOCA"),
        "NVIDIA's": (with_daemon(version="2.17.8+nvidia"), "ok: NVIDIA's build of Open vSwitch, without DOCA"),
        "DOCA": (
            with_database(doca_initialized=True, doca_version="3.3.0040", config={"doca-init": "true"}),
            "ok: OVS-DOCA 3.3.0040, initialised",
        ),
        "DOCA, not in use": (with_database(datapath_types=("doca",)), "ok: OVS-DOCA, DOCA not in use (doca-init..."),
        "DOCA failed": (
            with_database(doca_initialized=False, config={"doca-init": "true"}),
            "wrong: doca-init is set, but DOCA is not initialised -> xenoovs doctor --fix --restart-ovs",
        ),
    },
    (openvswitch.check_hw_offload, None): {
        "on": (GOOD, "ok: true"),
        "off": (
            with_database(config={"hw-offload": "false"}),
            "wrong: false => ovs-vsctl set Open_vSwitch . other_config:hw-offload=true && ovs-appctl revalidator/purge",
        ),
        "not set": (with_database(config={}), "wrong: not set, which means false =>..."),
    },
    (openvswitch.check_offload_in_effect, None): {
        "on": (GOOD, "ok: on: it says so"),
        "waits for a restart": (
            with_daemon(offload=OFF),
            "wrong: set, but the running daemon does not offload: refused -> xenoovs doctor --fix --restart-ovs",
        ),
        "unknown": (with_daemon(offload=Unknown("no log")), "unknown: no log"),
        "on until the restart": (with_database(config={}), "wrong: on until the next restart, then off: it says so"),
        "off as set": (with_facts(with_database(config={}), daemon=replace(DAEMON, offload=OFF)), "ok: off, as..."),
        # With OVS up to 3.6, hw-offload that was set on a running ovs-vswitchd was reported as ok.
        "began late": (
            with_history(had_ports_before=True),
            "unknown: on, but turned on while ports existed:...-> ovs-appctl revalidator/purge",
        ),
    },
    (openvswitch.check_tc_policy, None): {
        "none": (_policy("none", "none"), "ok: none"),
        "skip_sw": (_policy("skip_sw", "skip_sw"), "ok: skip_sw"),
        "skip_hw": (_policy("skip_hw", "skip_hw"), "wrong: skip_hw =>..."),
        "skip_hw, use unknown": (_policy("skip_hw", None), "wrong: skip_hw =>..."),
        "skip_hw, not yet": (_policy("skip_hw", "none"), "wrong: skip_hw, but the daemon started with none =>..."),
        "skip_hw until a restart": (
            _policy("none", "skip_hw"),
            "wrong: none, but the daemon started with skip_hw -> ...",
        ),
        "none, use unknown": (_policy("none", None), "unknown: none; the log does not show which one the daemon..."),
        "skip_sw, not yet": (_policy("skip_sw", "none"), "ok: skip_sw, but the daemon started with none"),
        "skip_hw before offload begins": (
            _policy("skip_hw", None, offload=OFF),
            "wrong: skip_hw => ovs-vsctl remove Open_vSwitch . other_config tc-policy",
        ),
        "left over from the start": (
            with_history(tc_policy="skip_hw"),
            "wrong: none, but the daemon started with skip_hw -> xenoovs doctor --fix --restart-ovs",
        ),
    },
    (openvswitch.check_offload_priority, None): {
        "right": (_providers("dpdk,tc", "4.0.0"), "ok: dpdk,tc"),
        "mistyped": (_providers("tc,dppk", "4.0.0"), "wrong: tc,dppk: Open vSwitch ignores dppk, which is no..."),
        "none": (_providers("none", "4.0.0"), "wrong: none: Open vSwitch ignores none, which is no provider ->..."),
        "too old": (_providers("tc", "3.5.0"), "wrong: tc, which Open vSwitch 3.5.0 ignores: it is new in 3.7 ->..."),
    },
    (openvswitch.check_max_idle, None): {
        "default": (with_config(), "ok: 10000 ms; counters of the NIC are up to 2500 ms old"),
        "long": (with_config(max_idle="20000"), "ok: 20000 ms; counters of the NIC are up to 2500 ms old"),
        "as late as counters": (with_config(max_idle="2500"), "wrong: 2500 ms; counters of the NIC are up to 2500..."),
        "a millisecond more": (with_config(max_idle="2501"), "ok: 2501 ms; counters of the NIC are up to 2500 ms old"),
        "later counters": (with_config(offloaded_stats_delay="10000"), "wrong: 10000 ms; counters of the NIC are..."),
        "no number": (with_config(max_idle="many"), "ok: 10000 ms; counters of the NIC are up to 2500 ms old"),
    },
    (openvswitch.check_max_revalidator, None): {
        "default": (with_config(max_revalidator="500"), "ok: 500 ms"),
        "below max-idle": (with_config(max_revalidator="9999"), "ok: 9999 ms"),
        "as max-idle": (with_config(max_revalidator="10000"), "wrong: 10000 ms =>..."),
    },
    (openvswitch.check_flow_limit, None): {
        "enough": (GOOD, "ok: 200000 megaflows (10000 now); the config needs 9"),
        "more than now": (with_wanted(entries=12_000), "ok: 200000 megaflows (10000 now); the config needs 12000"),
        "too many": (
            with_wanted(entries=200_000),
            "wrong: 200000 megaflows (10000 now); the config needs 200000 -> ...",
        ),
        "now unknown": (with_daemon(flow_limit=Unknown("-")), "ok: 200000 megaflows; the config needs 9"),
        "set lower": (with_config(flow_limit="5"), "wrong: 5 megaflows (10000 now); the config needs 9 ->..."),
    },
    (openvswitch.check_leftovers, None): {
        "nothing": (with_host(leftovers=()), "ok: none of earlier runs of xenoovs"),
        "raised levels": (with_host(leftovers=("log levels",)), "wrong: log levels => xenoovs doctor --fix"),
    },
    (openvswitch.check_vlan_limit, None): {
        "any": (
            with_config(vlan_limit="0"),
            "wrong: 0: two tags are not supported -> ovs-vsctl remove Open_vSwitch . other_config vlan-limit",
        ),
        "two": (
            with_config(vlan_limit="2"),
            "wrong: 2: two tags are not supported -> ovs-vsctl remove Open_vSwitch . other_config vlan-limit",
        ),
    },
    (openvswitch.check_restore_wait, None): {
        "a restart was cut off": (
            with_config(flow_restore_wait="true"),
            "wrong: true, as a...-> ovs-vsctl remove Open_vSwitch . other_config flow-restore-wait",
        ),
    },
    (openvswitch.check_bridge, None): {
        "it is there": (GOOD, "ok: exists"),
        "missing": (
            with_wanted(bridge="ovsbr9"),
            "wrong: does not exist; existing bridges: ovsbr1 -> ovs-vsctl add-br ovsbr9",
        ),
    },
    (openvswitch.check_datapath_type, None): {
        "kernel": (GOOD, "ok: system: the kernel's, offload by TC"),
        "dummy": (with_bridge(datapath_type="dummy"), "wrong: dummy: no offload to a NIC"),
        "userspace without DPDK": (with_bridge(datapath_type="netdev"), "wrong: netdev: userspace, but p0, p1 are..."),
        "DPDK": (with_bridge(datapath_type="netdev", ports=DPDK_PORTS), "ok: netdev: userspace, ports of DPDK or DOCA"),
    },
    (openvswitch.check_controllers, None): {
        "none": (with_bridge(controllers=()), "ok: none"),
        "one": (with_bridge(controllers=(CONTROLLER,)), "ok: one: tcp:192.0.2.1:6653; it may change the flows of..."),
        "one may write": (with_bridge(controllers=(CONTROLLER, SLAVE)), "unknown: 2 are set, 1 may write now:..."),
        "one is silent": (with_bridge(controllers=(CONTROLLER, SILENT)), "unknown: 2 are set, 1 may write now:..."),
        "two may write": (with_bridge(controllers=(CONTROLLER, EQUAL)), "wrong: 2 are connected and may write:..."),
    },
    (openvswitch.check_fail_mode, None): {
        "secure": (with_bridge(fail_mode="secure"), "ok: secure: without flows nothing is forwarded"),
        "secure, a controller": (with_bridge(fail_mode="secure", controllers=(CONTROLLER,)), "ok: secure: without..."),
        "standalone": (with_bridge(fail_mode="standalone"), "ok: standalone, no controller: a learning switch..."),
        "standalone, a controller": (with_bridge(fail_mode="standalone", controllers=(CONTROLLER,)), "wrong:..."),
    },
    (openvswitch.check_foreign_flows, None): {
        "none": (with_wanted(foreign=ForeignFlows(others=3)), "ok: packets of services meet none; 3 elsewhere"),
        "harmless": (_foreign(cost=COST), "ok: packets of services meet 1: priority=2000,ip,nw_src=203.0.113.9..."),
        "un-wildcards": (_foreign(cost=replace(COST, entries_with_foreign=46)), "wrong: packets of services meet..."),
        "overrides": (_foreign(cost=replace(COST, overridden=1)), "wrong: packets of services meet 1:..."),
        "both": (
            _foreign(cost=replace(COST, entries_with_foreign=46, overridden=2)),
            "wrong: ...46 hardware entries instead of 9; 2 of 100 packets are sent elsewhere -> "
            "ovs-ofctl --names dump-flows ovsbr1",
        ),
        "takes all": (_foreign(cost=Unknown("ct() is not simulated"), taken=("dns",)), "wrong: packets of..."),
        "not simulated": (_foreign(cost=Unknown("ct_state cannot be simulated")), "unknown: packets of services..."),
        "differs between clients": (
            _foreign(cost=Unknown("nw_tos cannot be simulated"), varying=("nw_tos",)),
            "wrong: packets of services meet 1: priority=2000,ip,nw_src=203.0.113.9 actions=drop; each value of...",
        ),
        "not read": (with_wanted(foreign=Unknown("permission denied")), "unknown: permission denied"),
    },
    # All rows were ok while all blocks were in software.
    (openvswitch.check_exporters, None): {
        "sFlow": (
            with_bridge(exporters=("sflow",)),
            "wrong: sFlow:...-> ovs-vsctl clear Bridge ovsbr1 sflow && ovs-appctl revalidator/purge",
        ),
        "IPFIX": (
            with_bridge(exporters=("ipfix",)),
            "wrong: IPFIX:...-> ovs-vsctl clear Bridge ovsbr1 ipfix && ovs-appctl revalidator/purge",
        ),
        "NetFlow": (
            with_bridge(exporters=("netflow",)),
            "wrong: NetFlow:...-> ovs-vsctl clear Bridge ovsbr1 netflow && ovs-appctl revalidator/purge",
        ),
    },
    (openvswitch.check_mirrors, None): {
        "on the eSwitch": (_mirror(output="p1"), "ok: m: copies leave by p1, which is on the eSwitch; each takes..."),
        "not on it": (_mirror(output="x0"), "wrong: m: copies leave by x0, a second output, which is not on the..."),
        "gone": (_mirror(output="gone"), "unknown: m: copies leave by gone: the kernel has no device gone ->..."),
        "shortened": (_mirror(output="p1", snaplen=64), "wrong: m: copies are shortened to 64 bytes, which..."),
        "to a VLAN": (_mirror(output_vlan=7), "unknown: m: copies go to VLAN 7; many drivers cannot add a tag..."),
    },
}


@pytest.mark.parametrize(("check", "subject", "case", "row"), as_params(ROWS))
def test_the_row_of_a_check(check: Check, subject: str | None, case: DoctorCase, row: str) -> None:
    assert_row(check, subject, case, row)


@pytest.mark.parametrize(
    ("case", "checks"),
    [
        (GOOD, (openvswitch.check_offload_priority, openvswitch.check_vlan_limit, openvswitch.check_restore_wait)),
        (with_config(vlan_limit="1"), (openvswitch.check_vlan_limit,)),
        (with_bridge(datapath_type="netdev"), (openvswitch.check_tc_policy,)),
        (
            with_host(database=Unknown("refused"), daemon=Unknown("refused")),
            (
                openvswitch.check_fork,
                openvswitch.check_hw_offload,
                openvswitch.check_offload_in_effect,
                openvswitch.check_tc_policy,
                openvswitch.check_bridge,
                openvswitch.check_datapath_type,
                openvswitch.check_foreign_flows,
                openvswitch.check_controllers,
            ),
        ),
    ],
    ids=["not set", "one tag", "userspace datapath", "nothing runs"],
)
def test_what_does_not_matter_has_no_row(case: DoctorCase, checks: tuple[Check, ...]) -> None:
    assert [row for check in checks for row in check(case)] == []


def test_without_a_config_every_bridge_is_checked() -> None:
    other = replace(BRIDGE, name="ovsbr2", datapath_type="netdev")
    case = replace(with_database(bridges=(BRIDGE, other)), required=None)
    assert [row.subject for row in openvswitch.check_datapath_type(case)] == ["ovsbr1", "ovsbr2"]
