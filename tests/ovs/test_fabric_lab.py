"""A fabric lab: source ports choose spines, each machine can be entered, a spine dies and recovers, nothing stays."""

from __future__ import annotations

import json
import socket
import sys

import pytest

from tests.command_line import CommandLine, finish, start
from tests.ovs.lab_support import fabric_fixture
from tests.patience import eventually
from xenoovs.agent.probe.sockets import in_namespace
from xenoovs.errors import LabError
from xenoovs.lab.fabric.plan import SOURCE_PORTS, FabricShape
from xenoovs.lab.fabric.status import fabric_status, restore, silence
from xenoovs.lab.lab import FabricLab, open_lab
from xenoovs.measure.bed import replace_flows
from xenoovs.measure.fabric_bed import open_fabric_bed
from xenoovs.switch.process import run

PLAIN = "in_port=p0 actions=output:pf0hpf\nin_port=pf0hpf actions=output:p0\n"

lab = fabric_fixture("fabric", FabricShape(paths=3, senders=2))


def test_flows_of_a_host_are_spread_over_all_spines_and_use_the_source_ports(lab: FabricLab) -> None:
    fabric = lab.fabric
    before = {spine: _forwarded(lab, spine) for spine in fabric.spines}

    def seen() -> list[int]:
        return [_forwarded(lab, spine) - before[spine] for spine in fabric.spines]

    with open_fabric_bed(lab.name) as bed:
        for pair in bed.pairs:
            replace_flows(pair.dpu, fabric.bridge, PLAIN)
        host, receiver = lab.fabric.namespace("hosta2"), fabric.receiver.overlay_ip

        def have_left() -> bool:
            # Queues drop a part of a burst, such as those of packets that wait for ARP.
            with in_namespace(host, lambda: socket.socket(type=socket.SOCK_DGRAM)) as sock:
                for number in range(300):
                    sock.sendto(b"x", (receiver, 10_000 + number))
            return sum(seen()) >= 300

        eventually(have_left, "300 packets have left")
        flows = bed.senders[1].dpu.run("ovs-appctl", "dpctl/dump-flows", "-m").stdout
    # The host has 64 source ports; nothing is answered, as no program listens there (ICMP errors are inside too).
    assert min(seen()) > 0
    first, last = SOURCE_PORTS
    ports = {int(word) for part in flows.split("udp(src=")[1:] if (word := part.partition("/")[0].partition(",")[0])}
    assert all(first <= port <= last for port in ports if port)


def _forwarded(lab: FabricLab, spine: str) -> int:
    """Packets that a spine has sent to the second leaf."""
    text = run(["ip", "-n", lab.fabric.namespace(spine), "-s", "-j", "link", "show", "leafb"]).stdout
    return int(json.loads(text)[0]["stats64"]["tx"]["packets"])


def test_a_spine_fails_and_recovers(lab: FabricLab) -> None:
    assert fabric_status(lab).state == "up"
    silence(lab, "spine2")
    states = {machine.name: machine.state for machine in fabric_status(lab).machines}
    assert [name for name, state in states.items() if state != "up"] == ["spine2"]
    assert fabric_status(lab).state == "failing"
    assert restore(lab, lab.fabric.spines) == ("spine2",)
    assert fabric_status(lab).state == "up"
    with pytest.raises(LabError, match="has no spine 'spine9'; it has spine1, spine2, spine3"):
        silence(lab, "spine9")


def test_a_command_on_a_dpu_uses_its_switch(lab: FabricLab, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = [_said(lab, site.dpu, "ovs-vsctl", "get", "bridge", "ovsbr1", "datapath-id") for site in lab.fabric.sites]
    assert len(set(seen)) == 3
    # What a shell names for its own commands is another Open vSwitch.
    monkeypatch.setenv("XENOOVS_LAB", "another")
    monkeypatch.setenv("XENOOVS_CONFIG", "/another.yaml")
    assert _said(lab, "hosta1", "sh", "-c", "echo $XENOOVS_LAB$XENOOVS_CONFIG") == ""
    shown = json.loads(_said(lab, lab.fabric.sites[0].dpu, sys.executable, "-m", "xenoovs", "validate", "-o", "json"))
    assert shown["valid"]
    assert _said(lab, "hosta2", "ip", "-br", "address", "show", "vxlan0").split()[2] == "192.168.233.2/24"


def _said(lab: FabricLab, machine: str, *argv: str) -> str:
    said = finish(start("lab", "exec", "--lab", lab.name, "--on", machine, "--", *argv))
    assert said.status == 0, said.err
    return said.out.strip()


def test_commands_say_what_a_fabric_is_and_has(lab: FabricLab, xenoovs: CommandLine) -> None:
    with pytest.raises(LabError, match="is a fabric with 3 switches"):
        open_lab(lab.name)
    said = xenoovs("lab", "status", "--lab", lab.name, "-o", "json")
    assert said.status == 0, said.err
    machines = [machine["name"] for machine in json.loads(said.out)["machines"]]
    assert machines[:5] == ["hosta1", "dpua1", "hosta2", "dpua2", "leafa"]
    said = xenoovs("lab", "exec", "--lab", lab.name, "--on", "dpua7", "--", "true")
    assert (said.status, said.out) == (1, "")
    assert "has no machine 'dpua7'" in said.err
    said = xenoovs("lab", "fail", "spine1", "--how", "link", "--lab", lab.name)
    assert "a spine of a fabric fails as `--how silent`" in said.err
