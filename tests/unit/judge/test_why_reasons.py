"""Why one megaflow is not in hardware: tests/golden/reasons has what is said of each, the most likely reason first."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import CommandLine
from tests.judged import assert_recorded
from tests.unit.judge.why_cases import COOKIE, OFF, UFID, WHOLE, case, device, host, megaflow, shown
from xenoovs.datapath.database import BridgeState, Database, PortState
from xenoovs.datapath.fact import Unknown
from xenoovs.datapath.host import Daemon, Device, Feature, HostFacts, KernelFacts
from xenoovs.datapath.megaflow import Megaflow
from xenoovs.datapath.tc import DriverAnswer, Objection, TcFilter, objection_of
from xenoovs.evidence.evidence import Evidence
from xenoovs.judge.findings import Unwildcarding
from xenoovs.judge.why.case import Case, shape_of
from xenoovs.openflow.text import parse_flow

IN_TC, IN_SOFTWARE = megaflow(), megaflow("dp:ovs")
NO_ESWITCH = (device("p0", switch_id=None), device("p1"))
GENEVE = replace(device("genev_sys_6081", switch_id=None), hw_tc_offload=Feature(False, is_fixed=True))
"""As ethtool and sysfs show it, also where the NIC forwards by its rules."""
WITH_GENEVE = host(devices=(device("p0"), device("p1"), GENEVE))
FROM_TUNNEL = megaflow(keys="tunnel(tun_id=0x1,src=192.0.2.2,dst=192.0.2.1,flags(+key))", in_port=GENEVE.name)
INTO_TUNNEL = megaflow(actions=f"set(tunnel(tun_id=0x1,dst=192.0.2.2,ttl=64,tp_dst=6081,flags(key))),{GENEVE.name}")
FAILURE = "failed adding ingress qdisc required for offloading on p0: No such device"
HELD = frozenset((shape_of(megaflow("offloaded:yes, dp:tc")),))


def _with_policy(policy: str) -> HostFacts:
    """The policy in use."""
    return host(history=replace(WHOLE, tc_policy=policy))


def _without_p0(*, is_complete: bool = True, **failures: str) -> HostFacts:
    """Only p1 has a provider, as far as the log goes back."""
    return host(history=replace(WHOLE, providers={"p1": "linux_tc"}, failures=failures, is_complete=is_complete))


def _of_3_7(priority: str | None, *, version: str = "3.7.0", port: str = "p0", lacks: str | None = "p0") -> HostFacts:
    """A host with the hw-offload-priority of an interface, whose provider has all ports but `lacks`."""
    history = replace(WHOLE, tc_policy=None, providers={name: "tc" for name in ("p0", "p1") if name != lacks})
    seen = host(history=history)
    assert isinstance(seen.database, Database)
    assert isinstance(seen.daemon, Daemon)
    (bridge,) = seen.database.bridges
    ports = tuple(replace(each, offload_priority=priority) if each.name == port else each for each in bridge.ports)
    database = replace(seen.database, bridges=(replace(bridge, ports=ports),))
    return replace(seen, database=database, daemon=replace(seen.daemon, version=version))


def _software(**changes: Any) -> Case:
    """A megaflow in software, on a host that offloads but for the changes."""
    return case(IN_SOFTWARE, seen=host(**changes))


SETTINGS: dict[str, Case] = {
    "hw-offload is not set": _software(offload=OFF, config={}),
    "hw-offload is false": _software(offload=OFF, config={"hw-offload": "false"}),
    "hw-offload is false, and it still offloads": case(seen=host(config={"hw-offload": "false"})),
    "hw-offload is set, but not restarted": _software(offload=OFF),
    "skip_hw in use, whatever is set": case(seen=_with_policy("skip_hw")),
    "skip_hw not in use yet": case(seen=host(config={"hw-offload": "true", "tc-policy": "skip_hw"})),
    "skip_sw: the driver may have refused": case(IN_SOFTWARE, seen=_with_policy("skip_sw")),
    "skip_sw with a rule in tc": case(seen=_with_policy("skip_sw")),
    "no provider": case(IN_SOFTWARE, seen=_without_p0(p0=FAILURE)),
    "no provider in a log that does not reach back": case(IN_SOFTWARE, seen=_without_p0(is_complete=False)),
    "the device accepts no rules": case(seen=host(devices=(device("p0", hw_tc_offload=False), device("p1")))),
    "no ingress qdisc": _software(
        devices=(Device("p0", True, 1500, switch_id="65737769746368", ingress=False), device("p1"))
    ),
    "a veth": case(seen=host(devices=NO_ESWITCH)),
    "a veth with megaflows in hardware": case(evidence=Evidence(host(devices=NO_ESWITCH), in_hardware=HELD)),
    "egress by no eSwitch": case(seen=host(devices=(device("p0"), device("p1", switch_id=None)))),
    "egress by another eSwitch": case(seen=host(devices=(device("p0"), device("p1", switch_id="70617274")))),
    # Open vSwitch puts mirrors first.
    "the copy of a mirror is a second output": case(
        megaflow(actions="x0,p1"), seen=host(devices=(device("p0"), device("p1"), device("x0", switch_id=None)))
    ),
    **{
        f"a port of type {port_type} in a datapath {datapath}": _software(
            datapath=datapath, port_type=port_type, offload=OFF, config={}
        )
        for datapath, port_type in (("netdev", "system"), ("dummy", "dummy"), ("netdev", "tap"))
    },
    **{
        f"a port of type {port_type}": _software(datapath="netdev", port_type=port_type)
        for port_type in ("dpdk", "doca")
    },
    # Bug: with OVN it was the first reason of each tunnel, marked as certain, and wrong.
    "from a device of tunnels, whose rules drivers take": case(FROM_TUNNEL, seen=WITH_GENEVE),
    "into a tunnel": case(INTO_TUNNEL, seen=WITH_GENEVE),
    **{
        f"hw-offload-priority={priority}": case(IN_SOFTWARE, seen=_of_3_7(priority))
        for priority in ("none", "dpdk", "dpdk,none,tc")
    },
    "hw-offload-priority=none not in effect yet": case(IN_SOFTWARE, seen=_of_3_7("none", lacks=None)),
    "hw-offload-priority=none of an output port": case(IN_SOFTWARE, seen=_of_3_7("none", port="p1", lacks="p1")),
    "no provider in 3.7": case(IN_SOFTWARE, seen=_of_3_7(None)),
    "3.6 does not read hw-offload-priority": case(IN_SOFTWARE, seen=_of_3_7("none", version="3.6.1")),
    "nothing keeps it out, and the log does not reach back": _software(
        history=replace(WHOLE, tc_policy=None, providers={}, is_complete=False)
    ),
    "nothing keeps it out": case(IN_SOFTWARE),
    "nothing keeps it out of the NIC": case(IN_TC),
}


def _answered(error: int | None, words: str | None, *, seen: HostFacts | None = None, **more: Any) -> Case:
    text = "" if error is None else "No space left on device" if error == 28 else "Operation not supported"
    return case(evidence=Evidence(seen or host(), driver={UFID: DriverAnswer(error, text, words, **more)}))


def _in_kernel(layer: str, actions: str, has_tc_chains: bool | Unknown) -> Case:
    kernel = KernelFacts("6.1.0-56-amd64", {}, 0, has_tc_chains)
    return case(megaflow(layer, actions), seen=replace(host(), kernel=kernel))


RULE = {COOKIE: TcFilter("ip", 2, 0, 8, COOKIE, in_hw=False, counters=None)}
DISABLED = "TC offload is disabled on net device"
VETH = replace(device("p0", switch_id=None), hw_tc_offload=Feature(is_on=False, is_fixed=True))
TRACKED = "ct(zone=1),recirc(0x1)"
KERNEL: dict[str, Case] = {
    "no trial: the rule itself is the evidence": case(evidence=Evidence(host(), filters=RULE)),
    "no trial for a rule of a tunnel device": case(FROM_TUNNEL, evidence=Evidence(host(), filters=RULE)),
    "an answer about the preference of the trial": _answered(
        95, "requested priority is not supported", is_about_trial=True
    ),
    # Bug: `not-retried`, confirmed: "the NIC accepts the rule now".
    "held as another rule": _answered(None, None, is_about_trial=True),
    "the words of all trials": _answered(95, "unsupported match key", further=("unsupported priority",)),
    "prefixes alone": _answered(95, "eswitch: only prefix masks are supported"),
    "inline mode": _answered(95, "mlx5_core: Flow is not offloaded due to min inline setting"),
    "two uplinks": _answered(95, "mlx5_core: devices are not the same uplink, can't offload forwarding"),
    # A restart of Open vSwitch was the fix for a refused VLAN tag, and a full hash table was called a collision.
    "the range of preferences": _answered(95, "mlx5_core: Requested priority is out of supported range"),
    "no room for a value": _answered(28, "eswitch: hash collision"),
    "offload is off": _answered(95, DISABLED),
    "a device that cannot offload": _answered(95, DISABLED, seen=host(devices=(VETH,))),
    "a full table": _answered(28, "eswitch: rule table is full"),
    "another rule of this shape is in the NIC": case(evidence=Evidence(host(), in_hardware=HELD)),
    "accepted": _answered(None, None),
    "accepted, with skip_hw": _answered(None, None, seen=_with_policy("skip_hw")),
    "without a message": _answered(95, None),
    "a kernel without chains": _in_kernel("dp:ovs", TRACKED, has_tc_chains=False),
    "a kernel with chains": _in_kernel("dp:ovs", TRACKED, has_tc_chains=True),
    "a kernel of which it is unknown": _in_kernel("dp:ovs", TRACKED, has_tc_chains=Unknown("no config")),
    "a kernel without chains, which this needs not": _in_kernel("dp:ovs", "trunc(100),p1", has_tc_chains=False),
    "a kernel without chains, and a rule in traffic control": _in_kernel("dp:tc", TRACKED, has_tc_chains=False),
}

AT = "2026-11-21T04:33:58.590Z"
TRUNCATED = f"{AT}|00007|netdev_offload_tc(handler2)|DBG|unsupported put action type: 13"
FAILED = f"{AT}|00008|dpif_netlink(handler2)|DBG|failed to offload flow: Operation not supported: p0"


def _does(actions: str, *, keys: str = "dp_hash(0/0)", layer: str = "dp:ovs", logs: tuple[str, ...] = ()) -> Case:
    return case(megaflow(layer, actions, keys=keys), evidence=Evidence(host(), logs=logs))


def _hash(config: dict[str, str] | None, *, layers: tuple[str, ...] = (), port_type: str = "dpdk") -> Case:
    """A hash, partly offloaded; `layers`: of the whole dump."""
    found = case(megaflow("offloaded:partial, dp:ovs", "hash(l4(0)),p1"))
    evidence = Evidence(layers=frozenset(layers))
    if config is not None:
        evidence = replace(evidence, host=host(config=config, datapath="netdev", port_type=port_type))
    return replace(found, evidence=evidence)


def _sampled() -> Case:
    bridge = BridgeState("ovsbr1", (PortState("p0"),), exporters=("sflow", "netflow"))
    seen = replace(host(), database=Database({"hw-offload": "true"}, (bridge,)))
    return case(megaflow("dp:ovs", "sample(sample=10.0%,actions(userspace(pid=1,sFlow(vid=0)))),p1"), seen=seen)


OF_DOCA = ("offloaded", "doca")
ACTIONS: dict[str, Case] = {
    "the slow path": _does("userspace(pid=4294967295,slow_path(controller))"),
    "a shortened copy": _does("trunc(100),p1"),
    "a shortened copy, which the log confirms": _does("trunc(100),p1", logs=(f"{TRUNCATED}\n{FAILED}\n",)),
    "a hash": _does("hash(l4(0)),recirc(0x3)"),
    "a port of SCTP": _does("set(sctp(dst=80)),p1"),
    "a match of a hash": _does("p1", keys="dp_hash(0xb/0xf)"),
    # Without it, this host would be the reason.
    "the datapath reports it": case(
        megaflow("dp:ovs", "trunc(64),p1, dp-offload-info:match unsupported: ct_state=+new"),
        seen=host(offload=OFF, config={}),
    ),
    # The bridge itself is no port of the NIC, so the rule stays in traffic control.
    "to the bridge itself": _does("ovsbr1", layer="dp:tc"),
    "recirculation": _does("ct(commit),recirc(0x1)"),
    "a line of the log, but traffic control has the rule": _does("p1", layer="dp:tc", logs=(FAILED,)),
    # It was judged as DPDK's: only another megaflow of the dump shows OVS-DOCA.
    "a hash in a dump of DOCA": _hash(None, layers=OF_DOCA),
    "a hash in a dump of DOCA that offloads connections": _hash({"hw-offload-ct-size": "250000"}, layers=OF_DOCA),
    "a hash in a dump of DOCA by its default": _hash({}, layers=OF_DOCA),
    "a hash where DOCA offloads it": _hash({"hw-offload-ct-size": "0"}, port_type="doca"),
    "a hash where DPDK offloads a part": _hash({}),
    "samples": _sampled(),
}

TOS = parse_flow("priority=3000,udp,nw_tos=32 actions=drop")
BY_TOS = Unwildcarding("dns", (("nw_tos", 0xFC),), flows=(TOS,), added=frozenset(("nw_tos",)), bridge="ovsbr1")
MARK = parse_flow("table=1, priority=3000,ip,pkt_mark=0x1/0x1 actions=drop")
BY_MARK = Unwildcarding("dns", (("pkt_mark", 1),), flows=(MARK,), added=frozenset(("pkt_mark",)), bridge="ovsbr1")
PREFIX = parse_flow("priority=3000,ip,nw_src=203.0.113.0/24 actions=drop")
BY_PREFIX = Unwildcarding("dns", (("nw_src", 0xFFFFFF00),), flows=(PREFIX,), added=frozenset(), bridge="ovsbr1")
MANY = tuple(parse_flow(f"priority={priority},udp,nw_tos=32 actions=drop") for priority in range(3000, 3010))
REFUSED = DriverAnswer(95, "Operation not supported", "unsupported match key")
FULL = DriverAnswer(28, "No space left on device", "rule table is full")


def _widened(
    bits: Unwildcarding, answer: DriverAnswer | None = None, found: Megaflow | None = None, **evidence: Any
) -> Case:
    driver = {} if answer is None else {UFID: answer}
    return replace(case(found, evidence=Evidence(host(), driver=driver, **evidence)), unwildcarded=bits)


FOREIGN: dict[str, Case] = {
    "a key that the driver may refuse": _widened(BY_TOS, REFUSED),
    "a key, and nobody asked the driver": _widened(BY_TOS),
    "a key, but the table is full": _widened(BY_TOS, FULL),
    "a key, in software": _widened(BY_TOS, None, megaflow("dp:ovs")),
    "further bits of a key of ours": _widened(BY_PREFIX, REFUSED),
    "a rule that the driver accepts": _widened(BY_TOS, DriverAnswer(None)),
    "a key that the NIC holds costs entries alone": _widened(BY_TOS, in_hardware=HELD),
    "no such flow": _widened(replace(BY_TOS, flows=())),
    "flows that were not read": _widened(replace(BY_TOS, flows=None)),
    "a key that Open vSwitch does not offload": _widened(BY_MARK, None, megaflow("dp:ovs", keys="skb_mark(0/0x1)")),
    "of many flows the first are listed": _widened(replace(BY_TOS, flows=MANY)),
}


@pytest.mark.parametrize(
    ("name", "cases"), [("settings", SETTINGS), ("kernel", KERNEL), ("actions", ACTIONS), ("foreign", FOREIGN)]
)
def test_the_reasons_of_a_megaflow(name: str, cases: Mapping[str, Case], *, update_golden: bool) -> None:
    assert_recorded(
        f"reasons/{name}.txt", {title: shown(found) for title, found in cases.items()}, update=update_golden
    )


@pytest.mark.parametrize(
    ("error", "words", "objection"),
    [
        (28, "eswitch: hash table is full", Objection.TABLE_FULL),
        (17, "bucket chain too long", Objection.OTHER),
        (95, "mlx5_core: Setting VLAN prio is not supported", Objection.OTHER),
        (95, "inline crypto is not possible", Objection.OTHER),
    ],
)
def test_what_a_driver_objects_to(error: int, words: str | None, objection: Objection) -> None:
    assert objection_of(error, words) is objection


def test_blocks_under_different_masks_have_one_shape_and_other_keys_another() -> None:
    narrow = megaflow()
    assert shape_of(narrow) == shape_of(megaflow(actions="set(eth(dst=02:00:5e:10:00:03)),p1"))
    assert shape_of(narrow) != shape_of(megaflow(keys="dp_hash(0/0),ct_state(0/0)"))
    assert shape_of(narrow) != shape_of(megaflow(keys="dp_hash(0x1/0xf)"))


def test_the_flow_that_takes_packets_of_a_block_is_named(tmp_path: Path, xenoovs: CommandLine) -> None:
    """It printed "no traffic yet", although verify-offload named the flow."""
    (tmp_path / "dump").write_text(
        "ufid:11111111-0000-4000-8000-000000000001, recirc_id(0),in_port(p0),eth(dst=c4:70:bd:a0:56:ac),"
        "eth_type(0x0800),ipv4(src=198.18.0.64,dst=10.3.10.45,proto=17,frag=no),udp(dst=53), packets:6, bytes:600, "
        "used:0.3s, dp:tc, actions:push_vlan(vid=5,pcp=0),p1\n"
    )
    flow = "priority=3000,udp,in_port=p0,nw_dst=10.3.10.45,nw_src=198.18.0.64 actions=push_vlan:0x8100,output:p1"
    (tmp_path / "flows").write_text(f" cookie=0x1, {flow}\n")
    options = ("--from-dump", tmp_path / "dump", "--from-flows", tmp_path / "flows", "--service", "dns", "-o", "json")
    result = xenoovs("why", Path(__file__).parents[2] / "golden" / "verify" / "dns.yaml", *options)
    (row,) = json.loads(result.out)["megaflows"]
    first = row["reasons"][0]
    assert (result.status, first["cause"]) == (2, "overridden")
    assert "packets of 1 block of dns match this megaflow" in first["text"]
    assert first["evidence"][0].startswith("foreign flow: cookie=0x1, priority=3000")
