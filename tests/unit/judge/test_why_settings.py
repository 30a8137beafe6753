"""Settings and ports that keep megaflows out of the NIC, each with evidence and fix."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.judge.why_cases import OFF, WHOLE, case, device, host, megaflow
from xenoovs.datapath.database import Database
from xenoovs.datapath.host import Daemon, Device, Feature, HostFacts, OffloadHistory
from xenoovs.evidence.evidence import Evidence
from xenoovs.judge.why.case import shape_of
from xenoovs.judge.why.reason import Cause, Likelihood, Reason
from xenoovs.judge.why.settings import setting_reasons

SOFTWARE = megaflow("dp:ovs")


def _only(reasons: list[Reason]) -> Reason:
    (reason,) = reasons
    return reason


@pytest.mark.parametrize("layer", ["dp:ovs", "dp:tc"])
def test_a_host_that_offloads_gives_no_reason(layer: str) -> None:
    assert list(setting_reasons(case(megaflow(layer)))) == []


@pytest.mark.parametrize(
    ("config", "seen"),
    [({}, "other_config:hw-offload is not set"), ({"hw-offload": "false"}, "other_config:hw-offload is 'false'")],
)
def test_offload_is_off(config: dict[str, str], seen: str) -> None:
    reason = _only(list(setting_reasons(case(SOFTWARE, seen=host(offload=OFF, config=config)))))
    assert (reason.cause, reason.likelihood, reason.evidence) == (Cause.HW_OFFLOAD_OFF, Likelihood.CERTAIN, (seen,))
    assert reason.fix == (
        "ovs-vsctl set Open_vSwitch . other_config:hw-offload=true",
        "systemctl restart openvswitch-switch",
        "xenoovs apply FILE",
    )


def test_offload_is_set_but_the_daemon_was_not_restarted() -> None:
    reason = _only(list(setting_reasons(case(SOFTWARE, seen=host(offload=OFF)))))
    assert reason.cause is Cause.NOT_RESTARTED
    assert reason.evidence == ("other_config:hw-offload is 'true'", OFF.evidence)
    assert reason.fix[0] == "systemctl restart openvswitch-switch"


def test_a_daemon_that_still_offloads_is_no_reason_whatever_is_set_in_the_database() -> None:
    assert list(setting_reasons(case(seen=host(config={"hw-offload": "false"})))) == []


def test_the_policy_in_use_counts_not_the_one_that_is_set() -> None:
    in_use = OffloadHistory(has_started=True, tc_policy="skip_hw", providers=WHOLE.providers, is_complete=True)
    reason = _only(list(setting_reasons(case(seen=host(history=in_use)))))
    assert reason.cause is Cause.TC_POLICY_SKIP_HW
    assert reason.evidence == ("the log says: tc: Using policy 'skip_hw'",)

    not_yet = host(config={"hw-offload": "true", "tc-policy": "skip_hw"})
    assert list(setting_reasons(case(seen=not_yet))) == []


def test_a_port_without_a_provider() -> None:
    failure = "failed adding ingress qdisc required for offloading on p0: No such device"
    history = OffloadHistory(has_started=True, providers={"p1": "linux_tc"}, failures={"p0": failure}, is_complete=True)
    reason = _only(list(setting_reasons(case(SOFTWARE, seen=host(history=history)))))
    assert reason.cause is Cause.NO_PROVIDER
    assert reason.evidence[1] == failure


def test_a_log_that_does_not_reach_back_proves_nothing_about_ports() -> None:
    history = OffloadHistory(has_started=True, providers={"p1": "linux_tc"}, is_complete=False)
    assert list(setting_reasons(case(SOFTWARE, seen=host(history=history)))) == []


def test_the_device_accepts_no_rules() -> None:
    devices = (device("p0", hw_tc_offload=False), device("p1"))
    reason = _only(list(setting_reasons(case(seen=host(devices=devices)))))
    assert (reason.cause, reason.evidence) == (Cause.HW_TC_OFFLOAD_OFF, ("ethtool -k p0: hw-tc-offload: off",))
    assert reason.fix == ("ethtool -K p0 hw-tc-offload on", "ovs-appctl revalidator/purge")


def test_the_ingress_qdisc_is_missing() -> None:
    bare = Device("p0", True, 1500, switch_id="65737769746368", ingress=False)
    reason = _only(list(setting_reasons(case(SOFTWARE, seen=host(devices=(bare, device("p1")))))))
    assert reason.cause is Cause.NO_INGRESS_QDISC


def test_a_veth_is_no_port_of_an_eswitch() -> None:
    devices = (device("p0", switch_id=None), device("p1"))
    reason = _only(list(setting_reasons(case(seen=host(devices=devices)))))
    assert (reason.cause, reason.likelihood) == (Cause.NOT_ON_ESWITCH, Likelihood.CERTAIN)


def test_a_port_with_megaflows_in_hardware_is_on_an_eswitch_whatever_sysfs_shows() -> None:
    devices = (device("p0", switch_id=None), device("p1"))
    known = Evidence(host(devices=devices), in_hardware=frozenset((shape_of(megaflow("offloaded:yes, dp:tc")),)))
    assert list(setting_reasons(case(evidence=known))) == []


@pytest.mark.parametrize("switch_id", [None, "70617274"])
def test_packets_leave_by_a_port_of_no_or_another_eswitch(switch_id: str | None) -> None:
    devices = (device("p0"), device("p1", switch_id=switch_id))
    reason = _only(list(setting_reasons(case(seen=host(devices=devices)))))
    assert reason.cause is Cause.EGRESS_NOT_ON_ESWITCH
    assert f"of p1 {switch_id or 'empty'}" in reason.evidence[0]


GENEVE = replace(device("genev_sys_6081", switch_id=None), hw_tc_offload=Feature(False, is_fixed=True))
"""As ethtool and sysfs show it, also where the NIC forwards by its rules."""


def test_bug_a_device_of_tunnels_was_called_unfit_although_drivers_take_its_rules() -> None:
    """With OVN it was the first reason of each tunnel, marked as certain, and wrong."""
    came = megaflow(keys="tunnel(tun_id=0x1,src=192.0.2.2,dst=192.0.2.1,flags(+key))", in_port=GENEVE.name)
    outer = "set(tunnel(tun_id=0x1,dst=192.0.2.2,ttl=64,tp_dst=6081,flags(key)))"
    left = megaflow(actions=f"{outer},{GENEVE.name}")
    for found in (came, left):
        assert list(setting_reasons(case(found, seen=host(devices=(device("p0"), device("p1"), GENEVE))))) == []


@pytest.mark.parametrize(("datapath", "port_type"), [("netdev", "system"), ("dummy", "dummy"), ("netdev", "tap")])
def test_a_software_datapath_is_reason_enough(datapath: str, port_type: str) -> None:
    seen = host(datapath=datapath, port_type=port_type, offload=OFF, config={})
    reason = _only(list(setting_reasons(case(SOFTWARE, seen=seen))))
    assert (reason.cause, reason.likelihood) == (Cause.SOFTWARE_DATAPATH, Likelihood.CERTAIN)
    assert reason.fix == ()


@pytest.mark.parametrize("port_type", ["dpdk", "doca"])
def test_ports_of_dpdk_and_doca_can_offload(port_type: str) -> None:
    assert list(setting_reasons(case(SOFTWARE, seen=host(datapath="netdev", port_type=port_type)))) == []


def test_with_skip_sw_a_refusal_may_be_of_the_driver() -> None:
    strict = OffloadHistory(has_started=True, tc_policy="skip_sw", providers=WHOLE.providers, is_complete=True)
    reason = _only(list(setting_reasons(case(SOFTWARE, seen=host(history=strict)))))
    assert (reason.cause, reason.likelihood) == (Cause.REFUSED_BY_DRIVER, Likelihood.LIKELY)
    assert list(setting_reasons(case(megaflow("dp:tc"), seen=host(history=strict)))) == []


SHOWN = OffloadHistory(has_started=True, providers={"p1": "tc"}, is_complete=True)


def _of_3_7(priority: str | None, *, version: str = "3.7.0", port: str = "p0") -> HostFacts:
    """A host whose provider has all ports but `port`, with the hw-offload-priority of that interface."""
    seen = host(history=replace(SHOWN, providers={name: "tc" for name in ("p0", "p1") if name != port}))
    assert isinstance(seen.database, Database)
    assert isinstance(seen.daemon, Daemon)
    (bridge,) = seen.database.bridges
    ports = tuple(replace(each, offload_priority=priority) if each.name == port else each for each in bridge.ports)
    database = replace(seen.database, bridges=(replace(bridge, ports=ports),))
    return replace(seen, database=database, daemon=replace(seen.daemon, version=version))


@pytest.mark.parametrize("priority", ["none", "dpdk", "dpdk,none,tc"])
def test_an_interface_that_is_set_to_no_provider(priority: str) -> None:
    reason = _only(list(setting_reasons(case(SOFTWARE, seen=_of_3_7(priority)))))
    assert (reason.cause, reason.likelihood) == (Cause.NO_PROVIDER, Likelihood.CERTAIN)
    assert f"hw-offload-priority={priority}" in reason.evidence[0]
    assert reason.fix[0] == "ovs-vsctl remove Interface p0 other_config hw-offload-priority"


def test_an_output_port_that_is_set_to_no_provider() -> None:
    reason = _only(list(setting_reasons(case(SOFTWARE, seen=_of_3_7("none", port="p1")))))
    assert (reason.cause, reason.evidence[0][:13]) == (Cause.EGRESS_NOT_ON_ESWITCH, "Interface p1:")


@pytest.mark.parametrize(("priority", "version"), [(None, "3.7.0"), ("none", "3.6.1")])
def test_a_port_without_a_provider_for_another_reason_than_its_setting(priority: str | None, version: str) -> None:
    reason = _only(list(setting_reasons(case(SOFTWARE, seen=_of_3_7(priority, version=version)))))
    assert (reason.cause, reason.source) == (Cause.NO_PROVIDER, None)


def test_a_setting_that_is_not_in_effect_yet_is_no_reason() -> None:
    seen = _of_3_7("none")
    assert isinstance(seen.daemon, Daemon)
    known = replace(seen.daemon, history=replace(SHOWN, providers={"p0": "tc", "p1": "tc"}))
    assert list(setting_reasons(case(SOFTWARE, seen=replace(seen, daemon=known)))) == []
