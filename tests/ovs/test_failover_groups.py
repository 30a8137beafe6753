"""Fast-failover groups on a real switch: made, read back, changed and deleted with the flows that name them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command_line import Command, CommandLine
from tests.ovs.dummy import DummyBridge, DummyOvs
from tests.ovs.lab_support import load_text
from tests.ovs.ways import live_switch
from xenoovs.compile.plan import bundle_of, plan
from xenoovs.compile.program import compile_config
from xenoovs.decision.decision import DesiredState
from xenoovs.engine.engine import Engine
from xenoovs.openflow.flow import OWNER, Flow, ObservedFlow
from xenoovs.openflow.text import parse_flow, render_flow
from xenoovs.switch.management import ManagementSwitch

CONFIG = """\
version: 1
switch: {bridge: ovsbr1, ingress: [p0], egress: p1, failover: in_switch}
services:
  - name: dns
    vip: 10.3.10.45
    protocol: udp
    ports: [53]
    backends:
      - {name: one, mac: 02:00:5e:10:00:02, weight: 1}
      - {name: two, mac: 02:00:5e:10:00:03, weight: 1, egress: p2}
"""
pytestmark = pytest.mark.each_release

_COOKIE = "cookie=0x786f010100000001, table=1, "
_PORTS = ("p0", "p1", "p2", "p3")


@pytest.fixture
def bridge(dummy_ovs: DummyOvs) -> Iterator[DummyBridge]:
    with dummy_ovs.bridge("ovsbr1", _PORTS) as made:
        yield made


def _flow(number: int, *buckets: str, protocol: str = "ip") -> Flow:
    actions = f"failover({','.join(f'bucket={bucket}' for bucket in buckets)})"
    return parse_flow(f"{_COOKIE}priority=1000,{protocol},reg0=0x1,nw_src=0.0.0.{number}/0.0.0.7 actions={actions}")


def _to(port: str, mac: int = 1) -> str:
    return f"mod_dl_dst:02:00:00:00:00:{mac:02x},output:{port}"


def _apply(bridge: DummyBridge, *flows: Flow) -> ManagementSwitch:
    switch = live_switch(bridge.ovs)
    switch.apply(bridge.name, bundle_of(plan(flows, (seen.flow for seen in switch.dump_flows(bridge.name)))))
    assert _flows(switch.dump_flows(bridge.name)) == set(flows)
    assert {line.strip() for line in switch.dump_flow_text(bridge.name).splitlines()} == set(map(render_flow, flows))
    return switch


def _flows(seen: tuple[ObservedFlow, ...]) -> set[Flow]:
    return {each.flow for each in seen}


def _groups(bridge: DummyBridge) -> list[str]:
    return [line.strip() for line in bridge.ofctl("dump-groups").splitlines() if "group_id=" in line]


def test_groups_come_and_go_with_the_flows_that_name_them(bridge: DummyBridge) -> None:
    pair, other = (_to("p1"), _to("p2", 2)), (_to("p2", 2), _to("p1"))
    _apply(bridge, _flow(0, *pair), _flow(1, *pair), _flow(2, *other))
    assert len(_groups(bridge)) == 2
    _apply(bridge, _flow(0, *pair), _flow(1, *other), _flow(2, *other))
    assert len(_groups(bridge)) == 2
    _apply(bridge, _flow(0, *other), _flow(1, *other), _flow(2, *other, _to("p3", 3)))
    assert len(_groups(bridge)) == 2
    plain = parse_flow(render_flow(_flow(0, *pair)).partition(" actions=")[0] + f" actions={_to('p1')}")
    _apply(bridge, plain)
    assert _groups(bridge) == []


def test_a_bucket_writes_the_vlan_of_its_backend(bridge: DummyBridge) -> None:
    tagged = "mod_dl_dst:02:00:00:00:00:02,load:0x100a->NXM_OF_VLAN_TCI[0..12],output:p2"
    _apply(bridge, _flow(0, _to("p1"), tagged))


def test_foreign_groups_stay_and_those_that_foreign_flows_name(bridge: DummyBridge) -> None:
    pair = (_to("p1"), _to("p2", 2))
    _apply(bridge, _flow(0, *pair))
    (mine,) = _groups(bridge)
    number = mine.partition(",")[0].removeprefix("group_id=")
    bridge.ofctl("add-group", "group_id=7,type=ff,bucket=watch_port:p1,actions=output:p1")
    # The number that xenoovs would take is a foreign group's, which does something else.
    _apply(bridge)
    bridge.ofctl("add-group", f"group_id={number},type=all,bucket=actions=output:p3")
    _apply(bridge, _flow(0, *pair))
    assert len(_groups(bridge)) == 3
    bridge.ofctl("add-flow", f"table=9,ip,actions=group:{int(number) + 1}")
    _apply(bridge)
    assert len(_groups(bridge)) == 3
    assert any(f"group:{int(number) + 1}" in line for line in bridge.dump_flows(version="OpenFlow14"))


def test_a_group_that_sets_l4_ports_is_of_one_protocol(bridge: DummyBridge) -> None:
    pair = tuple(f"mod_nw_dst:10.0.0.{n},mod_tp_dst:{8000 + n},output:p{n}" for n in (1, 2))
    _apply(bridge, _flow(0, *pair, protocol="tcp"), _flow(0, *pair, protocol="udp"))
    assert len(_groups(bridge)) == 2
    numbers = [int(line.partition(",")[0].removeprefix("group_id=")) for line in _groups(bridge)]
    assert {number >> 16 for number in numbers} == {OWNER}
    assert {name for name in ("tcp_dst", "udp_dst") if any(name in line for line in _groups(bridge))} == {
        "tcp_dst",
        "udp_dst",
    }


def test_bug_a_deleted_port_was_an_external_change_and_took_blocks_from_who_serves(
    bridge: DummyBridge, on_bridge: Command, config: Path
) -> None:
    desired = DesiredState(load_text(CONFIG))
    engine = Engine(live_switch(bridge.ovs))
    engine.round(desired, now_s=0.0)
    bridge.ovs.vsctl("del-port", bridge.name, "p2")
    said = on_bridge("status", config, "--interval", "0").out
    assert [line.split()[4] for line in said.splitlines() if line.startswith("dns  ")] == ["1", "0"]
    assert "dns: 1 block of two: the switch sends to one, as p2 is dead" in said
    done = engine.round(desired, now_s=1.0)
    assert (done.foreign, [problem.backends for problem in done.problems]) == (0, [(("dns", "two"),)])
    bridge.ofctl("del-flows", "table=1")
    assert engine.round(desired, now_s=2.0).foreign


def test_plan_counts_groups_and_a_rollback_restores_them(bridge: DummyBridge, on_bridge: Command, config: Path) -> None:
    assert "Groups: 0 before, 2 after (2 to add, 0 to remove)" in on_bridge("plan", config).out
    assert "Groups: 0 before, 2 after (2 to add, 0 to remove)" in on_bridge("apply", config, "--yes").out
    config.write_text(CONFIG.replace("egress: p2", "egress: p3"))
    summary = json.loads(on_bridge("plan", config, "-o", "json").out)["summary"]
    assert summary["groups"] == {"before": 2, "after": 2, "add": 2, "remove": 2}
    assert len(_groups(bridge)) == 2
    config.write_text(CONFIG.replace(", failover: in_switch", ""))
    groups = {*_groups(bridge)}
    assert "Groups: 2 before, 0 after (0 to add, 2 to remove)" in on_bridge("apply", config, "--yes").out
    assert (_groups(bridge), len(groups)) == ([], 2)
    assert on_bridge("apply", "--rollback", "--yes").status == 0
    assert {*_groups(bridge)} == groups


def test_ovs_ofctl_takes_what_validate_prints(bridge: DummyBridge, xenoovs: CommandLine, config: Path) -> None:
    text = xenoovs("validate", config, "--flows").out
    bridge.ofctl("bundle", "-", stdin=text)
    switch = live_switch(bridge.ovs)
    assert _flows(switch.dump_flows(bridge.name)) == set(compile_config(load_text(CONFIG)).flows)
    assert len(_groups(bridge)) == text.count("group add ") == 2


def test_flows_and_groups_by_the_thousand_are_read_by_ovs_ofctl(bridge: DummyBridge) -> None:
    flows = [
        parse_flow(
            f"{_COOKIE}priority=1000,ip,reg0=0x1,nw_src=10.0.{n >> 8}.{n & 255} "
            f"actions=failover(bucket={_to('p1', n % 7)},bucket={_to('p2', 9)})"
        )
        for n in range(1000)
    ]
    _apply(bridge, *flows)
    assert len(_groups(bridge)) == 7
