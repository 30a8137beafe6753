"""Labs with backends behind tunnels of Open vSwitch: real packets in each type of tunnel, and both ways of answers."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from tests.command_line import CommandLine
from tests.golden.cases import file_of
from tests.ovs.dummy import ofctl
from tests.ovs.lab_support import install, lab_fixture, lab_name, load_text, owners_of_blocks, running_lab
from tests.patience import eventually
from xenoovs.agent.probe.sockets import in_namespace
from xenoovs.datapath.outer import encapsulations
from xenoovs.datapath.parse import parse_dump
from xenoovs.errors import LabError
from xenoovs.lab import underlay
from xenoovs.lab.host import LabNetns
from xenoovs.lab.lab import DIRECTORY_VARIABLE, Lab
from xenoovs.lab.lifecycle import up
from xenoovs.lab.probing import in_lab
from xenoovs.lab.servers import Failure, fail, find_machine, heal
from xenoovs.lab.status import lab_status
from xenoovs.lab.topology import plan_topology
from xenoovs.lab.traffic import LabReport, Load, send
from xenoovs.model.balancer import Balancer, Protocol
from xenoovs.model.packet import ANY_PORT

TYPES = {"vxlan": "vxl0", "geneve": "gnv0", "gre": "gre0"}
RETURNS = ("direct", "switch")
_HEAD = """
version: 1
switch: {bridge: ovsbr1, ingress: [p0], egress: p1}
tunnels:
"""


def _tunnels(ports: str) -> str:
    return "".join(
        f"  - {{name: {name}, type: {kind}, local: 192.168.77.1, key: 5001, ports: {ports}}}\n"
        for kind, name in TYPES.items()
    )


def _service(number: int, kind: str, returns: str) -> str:
    """A service with two backends, one of which has three quarters of the clients."""
    first = 20 + 2 * number
    one, other = (
        f"mac: 02:00:00:00:{number:02x}:0{at}, egress: {TYPES[kind]}, remote: 192.168.77.{first + at}" for at in (0, 1)
    )
    return f"""
  - name: {kind}-{returns}
    vip: 10.3.11.{number}
    return: {returns}
    backends:
      - {{name: {kind}-{returns}-a, {one}, weight: 75}}
      - {{name: {kind}-{returns}-b, {other}, weight: 25}}
"""


def tunnel_config(*, ports: str = "shared", kinds: Sequence[str] = tuple(TYPES)) -> str:
    pairs = [(kind, returns) for kind in kinds for returns in RETURNS]
    services = (_service(number, *pair) for number, pair in enumerate(pairs, start=1))
    plain = """
  - name: plain
    vip: 10.3.11.100
    backends: [{name: plain-a, mac: 02:00:00:00:64:01, weight: 1}]
"""
    return f"{_HEAD}{_tunnels(ports)}services:\n{''.join(services)}{plain}"


BALANCER = load_text(tunnel_config())


lab = lab_fixture("tunnels", BALANCER, lambda made: install(made, BALANCER))


def assert_exact(report: LabReport, balancer: Balancer) -> None:
    """Every client was answered, once, by the backend that has its block."""
    assert {service.service: (service.lost, service.foreign_answers) for service in report.services} == {
        service.name: (0, ()) for service in balancer.services
    }
    assert report.is_served
    for service in report.services:
        if len(service.backends) == 2:
            name = service.service
            assert sorted(owners_of_blocks(service).values()) == [f"{name}-a"] * 3 + [f"{name}-b"]


def test_each_backend_has_its_share_in_every_tunnel(lab: Lab) -> None:
    """Direct answers never pass the bridge; the others enter it by the tunnel, and leave by the ingress port alone."""
    netns, clients = LabNetns(lab.marks), lab.topology.clients

    def received(interface: str) -> int:
        path = f"/sys/class/net/{interface}/statistics/rx_packets"
        return int(netns.execute(clients.namespace, ["cat", path]).stdout)

    for protocol in (Protocol.TCP, Protocol.ICMP, Protocol.UDP):
        before = received(clients.interface)
        report = send(lab, BALANCER, load=Load(clients=64, packets=1400, protocol=protocol))
        assert_exact(report, BALANCER)
    through = sum(one.answered for one in report.services if one.service.endswith("switch") or one.service == "plain")
    arp = len(clients.arp_vips) + 10
    assert through <= received(clients.interface) - before <= through + arp


def test_a_port_for_each_remote(tmp_path: Path) -> None:
    wanted = load_text(tunnel_config(ports="each", kinds=["vxlan"]))
    with running_lab("each", wanted, tmp_path) as lab:
        install(lab, wanted)
        ports = lab.ovs.vsctl("list-ports", lab.topology.bridge).split()
        assert "vxl0" not in ports
        assert "vxl0-c0a84d16" in ports
        assert_exact(send(lab, wanted, load=Load(clients=64, packets=1400)), wanted)


def test_two_shared_ports_with_different_local_addresses(tmp_path: Path, xenoovs: CommandLine) -> None:
    """Flows choose between them, megaflows have the address, and `verify-offload` finds each block."""
    config = file_of("tunnel-locals", "config.yaml")
    wanted = load_text(config.read_text())
    with running_lab("locals", wanted, tmp_path) as lab:
        install(lab, wanted)
        [report] = send(lab, wanted, load=Load(clients=64, packets=640, protocol=Protocol.UDP)).services
        assert (report.lost, report.foreign_answers) == (0, ())
        sent = (encapsulations(megaflow.actions) for megaflow in parse_dump(lab.ovs.appctl("dpctl/dump-flows", "-m")))
        ends = {(str(IPv4Address(each.local or 0)), str(IPv4Address(each.remote))) for found in sent for each in found}
        assert ends == {("192.168.77.1", "192.168.77.11"), ("192.168.77.2", "192.168.77.12")}
        said = json.loads(xenoovs("verify-offload", config, "--db", lab.ovs.db, "-o", "json").out)
        assert [block["backend"] for block in said["blocks"]] == ["b1", "b2"]
        assert {block["verdict"] for block in said["blocks"]} == {"SW"}
        assert said["total"]["anomalies"] == {}


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("geneve-switch-b", Failure.SILENT),
        pytest.param("vxlan-direct-b", Failure.LINK, marks=pytest.mark.long),
        pytest.param("vxlan-direct-b", Failure.PORT, marks=pytest.mark.long),
        pytest.param("vxlan-direct-b", Failure.SILENT, marks=pytest.mark.long),
        pytest.param("geneve-switch-b", Failure.LINK, marks=pytest.mark.long),
        pytest.param("geneve-switch-b", Failure.PORT, marks=pytest.mark.long),
    ],
)
def test_a_backend_behind_a_tunnel_fails_alone(lab: Lab, how: Failure, name: str) -> None:
    inside = in_lab(BALANCER, lab.topology)
    machine = find_machine(lab, name)
    few = Load(clients=16, packets=16 * len(BALANCER.services), protocol=Protocol.UDP)
    healthy = send(lab, BALANCER, load=few)
    mine = {one.service: each.answered for one in healthy.services for each in one.backends if each.name == name}
    fail(lab, machine, how, inside)
    try:
        report = send(lab, BALANCER, load=few)
        assert {service.service: service.lost for service in report.services if service.lost} == mine
        status = lab_status(lab)
        assert status.state == "failing"
        assert [one.machine.names for one in status.machines if not one.is_up] == [(name,)]
    finally:
        heal(lab, [machine], inside)
    # A link that comes up forgets its neighbours: the first question may get no answer.
    eventually(lambda: lab_status(lab).state == "up", "a lab whose machines all work")
    assert_exact(send(lab, BALANCER, load=Load(clients=64, packets=1400)), BALANCER)


def test_an_open_vswitch_in_front_of_a_backend_has_the_flows_of_receive(
    xenoovs: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the kernel cannot end the tunnel. The flows let every packet pass before."""
    monkeypatch.setattr(underlay, "_add_kernel_devices", lambda *_: False)
    text = f"{_HEAD}{_tunnels('shared')}services:\n{_service(1, 'vxlan', 'switch')}{_service(2, 'geneve', 'direct')}"
    balancer, file = load_text(text), tmp_path / "my.yaml"
    file.write_text(text)
    with running_lab("receive", balancer, tmp_path) as lab:
        install(lab, balancer)
        for name in ("vxlan-switch-a", "geneve-direct-a"):
            machine = find_machine(lab, name)
            (end,) = machine.ends
            options = ("--host-port", end.interface, "--uplink", "LOCAL", "-o", "json")
            wanted = json.loads(xenoovs("tunnels", file, "--far-end", name, *options).out)["flows"]
            ovs = underlay.machine_ovs(lab, machine)
            dump = ofctl(ovs, "--names", "dump-flows", f"unix:{ovs.directory}/br-tun.mgmt")
            found, expected = (
                {line.partition("priority=")[2] for line in lines} for lines in (dump.splitlines(), wanted)
            )
            assert found - {""} == expected
        assert_exact(send(lab, balancer, load=Load(clients=64, packets=1400)), balancer)


def test_packets_of_1500_bytes_fit(lab: Lab) -> None:
    """The network of the outer packets has room for the headers of tunnels."""
    clients = lab.topology.clients
    source = clients.nets[0].replace(".0.0/15", ".0.9")
    with in_namespace(clients.namespace, lambda: socket.socket(type=socket.SOCK_DGRAM)) as sock:
        sock.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER, IP_PMTUDISC_DO of linux/in.h
        sock.settimeout(10)
        sock.bind((source, 0))
        for number in range(1, 7):
            sock.sendto(bytes(1472), (f"10.3.11.{number}", ANY_PORT))
            assert sock.recv(2048).lstrip(b"\0 ").startswith(b"b")


def test_ipsec_is_refused_in_userspace(tmp_path: Path) -> None:
    text = tunnel_config().replace("name: gnv0, type: geneve,", "name: gnv0, type: geneve, ipsec: {psk_file: /k},")
    with pytest.raises(LabError, match="tunnel gnv0 has `ipsec`, and Open vSwitch in userspace bypasses"):
        up(lab_name("ipsec"), load_text(text.replace("ports: shared", "ports: each")), directory=tmp_path)


def test_backends_of_one_remote_that_the_lab_cannot_tell_apart() -> None:
    text = tunnel_config().replace("192.168.77.23", "192.168.77.22")
    with pytest.raises(LabError, match=r"192\.168\.77\.22 has backends with the MACs .* give one another `key`"):
        plan_topology("one", load_text(text))


def test_the_first_steps_of_the_how_to_page(
    xenoovs: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its config, and its figures of the traffic."""
    monkeypatch.delenv(DIRECTORY_VARIABLE, raising=False)
    page = (Path(__file__).parents[2] / "docs/how-to/tunnels.md").read_text()
    file, name = tmp_path / "my.yaml", lab_name("first")
    file.write_text(page.partition("```yaml\n")[2].partition("```")[0])
    try:
        assert xenoovs("lab", "up", file, "--lab", name).status == 0
        port = xenoovs("tunnels", file, "--lab", name).out
        assert port.replace(name, "first") in page
        assert xenoovs("apply", file, "--lab", name, "--yes").status == 0
        assert xenoovs("lab", "traffic", "--lab", name).out.strip() in page
    finally:
        xenoovs("lab", "down", "--lab", name)
