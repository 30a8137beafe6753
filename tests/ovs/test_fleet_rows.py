"""What the store of a fleet holds of services: groups of DPUs, on two DPUs, each an Open vSwitch of its own."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command_line import SMALL_CONFIG, CommandLine
from tests.ovs.fleets import FleetDpu, FleetServers, apply_until, running_fleet, wait_for_agents
from tests.patience import eventually
from xenoovs.switch.process import run

pytestmark = pytest.mark.ovs

WEB = """\
  - name: web
    groups: edge
    vip: 10.3.10.80
    protocol: tcp
    ports: [80]
    backends:
      - {name: web1, mac: 02:00:5e:10:00:12, weight: 1}
      - {name: web2, mac: 02:00:5e:10:00:13, weight: 1}
"""


@pytest.fixture
def store(tmp_path: Path, xenoovs: CommandLine) -> Iterator[FleetServers]:
    with running_fleet(tmp_path, xenoovs) as made:
        file = tmp_path / "services.yaml"
        file.write_text(SMALL_CONFIG)
        # A machine with much to do may start the controller late.
        made.fleet("apply", file, "--now", "--yes")
        wait_for_agents(made)
        eventually(made.is_well, "the first config")
        yield made


def apply(store: FleetServers, text: str) -> str:
    file = store.directory.parent / "services.yaml"
    file.write_text(text)
    said = store.fleet("apply", file, "--now", "--yes")
    assert said.status == 0, said.out + said.err
    return said.out + said.err


def has_web(dpu: FleetDpu) -> bool:
    return any("02:00:5e:10:00:12" in line for line in dpu.blocks())


def test_a_dpu_serves_the_services_of_its_groups(store: FleetServers) -> None:
    one, two = store.dpus
    said = apply(store, SMALL_CONFIG + WEB)
    assert "no DPU is in the group edge, so none has web" in said
    assert (has_web(one), has_web(two), store.is_well()) == (False, False, True)

    said_of = store.fleet("set-dpu", "dpu2", "--groups", "edge")
    assert (said_of.status, said_of.out) == (0, "dpu2: groups edge, rack none, wave 3\n")
    eventually(lambda: has_web(two) and store.is_well(), "the service of its group")
    assert (has_web(one), store.fleet("diff").status) == (False, 0)

    # A change of the group concerns its DPU alone, and all DPUs have the generation.
    file = store.directory.parent / "services.yaml"
    file.write_text((SMALL_CONFIG + WEB).replace("weight: 1}", "weight: 2}", 1))
    planned = store.fleet("plan", file)
    assert [line.split() for line in planned.out.splitlines()[-3:]] == [
        ["GROUP", "DPUS", "SERVICES"],
        ["all", "2", "1"],
        ["edge", "1", "1"],
    ]
    before = one.blocks(), two.blocks()
    said_of = store.fleet("apply", file, "--yes", "--soak", "1s")
    assert said_of.status == 0, said_of.out + said_of.err
    assert "wave 1: dpu2; watched for" in said_of.out
    assert "applied by 2 of 2 DPUs" in said_of.out
    assert (one.blocks() == before[0], two.blocks() == before[1]) == (True, False)

    # The saved view has the groups too: without the store, it boots with the services of its group.
    flows = two.blocks()
    eventually(lambda: b"web2" in two.cache.read_bytes(), "the saved view")
    store.stop()
    two.stop()
    two.bridge.add_flows("delete\n")
    two.start()
    eventually(lambda: two.blocks() == flows, "the flows of the saved view")
    store.start()
    eventually(store.is_well, "the store")
    assert two.blocks() == flows

    # Once forgotten, it keeps its groups, and still follows.
    assert store.fleet("forget", "dpu2").status == 0
    assert store.fleet("drain", "dns", "fips2").status == 0
    eventually(lambda: not any("02:00:5e:10:00:02" in line for line in two.blocks()), "the drain")
    assert has_web(two)
    said_of = store.fleet("add-dpu", "dpu2", "--groups", "edeg")
    assert "no service is for the group edeg yet (did you mean edge?)" in said_of.err
    eventually(lambda: not has_web(two), "another group")


TUNNELED = SMALL_CONFIG.replace("services:", "tunnels: [{name: gnv0, type: geneve, key: 5001}]\nservices:") + (
    '      - {name: far, mac: "02:00:5e:10:00:0d", weight: 30, egress: gnv0, remote: 192.168.77.11}\n'
)


def add_tunnel(dpu: FleetDpu, name: str, local: str) -> None:
    """Write the tunnel to the file of the DPU, and make the port as `xenoovs tunnels` says, with that file."""
    eventually(dpu.cache.exists, "the saved view")
    dpu.config.write_text(dpu.config.read_text() + f"tunnels: [{{name: {name}, type: geneve, local: {local}}}]\n")
    xenoovs, db = dpu.store.xenoovs, ("--db", dpu.bridge.ovs.db)
    shown = xenoovs("doctor", dpu.config, *db)
    assert f"tunnel port {name}: does not exist" in shown.out, shown.out + shown.err
    assert "services as the agent saved them: generation " in shown.err
    shown = xenoovs("tunnels", dpu.config, *db)
    assert shown.status == 0, shown.err
    run(["sh", "-c", shown.out])


def test_suggested_commands_work_with_the_file_of_a_dpu(store: FleetServers) -> None:
    """`verify-offload` suggested `xenoovs plan`, which refuses this file."""
    one, xenoovs = store.dpus[0], store.xenoovs
    one.stop()
    one.bridge.add_flows("delete\n")
    named = ("--db", one.bridge.ovs.db)
    for command in ("verify-offload", "why"):
        shown = xenoovs(command, one.config, *named)
        assert "of the config are missing on the bridge; see `xenoovs status --db" in shown.out + shown.err
        assert "xenoovs plan" not in shown.out + shown.err
    shown = xenoovs("status", one.config, *named)
    assert (shown.status, "; its agent installs them" in shown.out) == (2, True), shown.out + shown.err
    shown = xenoovs("lint", one.config)
    assert shown.status == 0, shown.out + shown.err


def test_backends_are_behind_the_tunnels_of_each_dpu(store: FleetServers) -> None:
    one, two = store.dpus
    add_tunnel(one, "gnv0", "192.168.77.1")
    file = store.directory.parent / "services.yaml"
    file.write_text(TUNNELED)
    before = two.blocks()
    lacks = "this DPU has no tunnel gnv0, needed by backends of dns"
    said = apply_until(store, file, lambda said: "applied by 1 of 2 DPUs" in said.out and lacks in said.err)
    assert (said.status, "dpu2: " in said.err) == (2, True)
    assert (two.blocks(), store.is_well()) == (before, False)

    # The other DPU has the tunnel by another name.
    two.config.write_text(two.config.read_text().replace("hosts: p2", "gnv0: tun9"))
    add_tunnel(two, "tun9", "192.168.77.2")
    eventually(store.is_well, "the tunnel")
    assert any("output:gnv0" in line for line in one.blocks())
    # Commands that would decide by themselves are refused; others go by what the agent has saved.
    shown = store.xenoovs("plan", one.config, "--db", one.bridge.ovs.db)
    assert (shown.status, "is the file of a DPU of a fleet" in shown.err) == (64, True)
    shown = store.xenoovs("status", one.config, "--db", one.bridge.ovs.db)
    assert "far" in shown.out
    shown = store.xenoovs("validate", one.config)
    assert "dpu1.yaml: valid, " in shown.out, shown.err
    assert one.blocks() == [line.replace("tun9", "gnv0") for line in two.blocks()]
    assert store.fleet("diff").status == 0

    assert store.fleet("drain", "dns", "fips2").status == 0
    assert one.blocks() == [line.replace("tun9", "gnv0") for line in two.blocks()]


NAT = """\
version: 1
switch: {ingress: [in], egress: out}
services:
  - name: web
    vip: 10.3.10.80
    protocol: tcp
    ports: [80]
    mode: nat
    backends:
      - {name: web1, mac: "02:00:5e:10:00:12", address: 10.4.0.1, port: 8080, weight: 1}
      - {name: web2, mac: "02:00:5e:10:00:13", address: 10.4.0.2, weight: 1, egress: hosts}
"""


def test_services_with_nat_are_the_same_on_all_dpus_in_both_directions(store: FleetServers) -> None:
    one, two = store.dpus
    apply(store, NAT)
    assert (without_counters(one), store.is_well()) == (without_counters(two), True)
    assert any("mod_nw_dst:10.4.0.1,mod_tp_dst:8080" in line for line in one.blocks())
    assert any("nw_src=10.4.0.2" in line and "in_port=p2" in line for line in one.flows())
    assert store.fleet("drain", "web", "web1").status == 0
    assert without_counters(one) == without_counters(two)
    assert not any("mod_nw_dst:10.4.0.1" in line for line in one.blocks())
    # A change of an address moves no client.
    file = store.directory.parent / "services.yaml"
    file.write_text(NAT.replace("10.4.0.2", "10.4.0.3"))
    assert store.fleet("plan", file).out.splitlines()[1].split() == ["web", "changed", "0", "0%"]


def test_a_dpu_announces_by_its_own_file(store: FleetServers, tmp_path: Path) -> None:
    """In a network namespace, as it sets routes."""
    one, two = store.dpus
    netns = f"xo{os.getpid()}fleet"
    run(["ip", "netns", "add", netns])
    try:
        one.stop()
        one.config.write_text(one.config.read_text() + "announce: {bgp: frr, on_agent_exit: withdraw}\n")
        argv = ["ip", "netns", "exec", netns, *one.argv()]
        one.process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        eventually(lambda: "10.3.10.45" in routes(netns), "the route of the VIP")
        eventually(store.is_well, "the report of the agent")
        # Services that come, and those that are not announced.
        quiet = NAT.replace("    mode: nat\n", "    mode: nat\n    announce: false\n").split("services:\n")[1]
        apply(store, SMALL_CONFIG.replace("10.3.10.45", "10.3.10.46") + quiet)
        eventually(lambda: "10.3.10.46" in routes(netns) and "10.3.10.45" not in routes(netns), "the other VIP")
        assert "10.3.10.80" not in routes(netns)
        assert one.blocks() == two.blocks()
        one.stop()
        assert "10.3.10.46" not in routes(netns)
    finally:
        one.kill()
        run(["ip", "netns", "delete", netns])


def routes(netns: str) -> str:
    return run(["ip", "-n", netns, "route", "show"]).stdout


def without_counters(dpu: FleetDpu) -> list[str]:
    """All flows of a DPU."""
    return sorted(re.sub(r"(duration|n_packets|n_bytes)=[^,]*, ", "", line) for line in dpu.flows())
