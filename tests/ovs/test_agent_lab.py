"""A backend dies in the lab: others serve its clients, no other client moves, and it gets them back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ovs.agents import AtHome, running_agent
from tests.ovs.lab_support import running_lab
from tests.patience import eventually
from xenoovs.agent.daemon import Agent
from xenoovs.config.load import load_config
from xenoovs.lab.host import LabNetns, kill_and_wait, processes_in
from xenoovs.lab.lab import Lab
from xenoovs.lab.lifecycle import start_responder
from xenoovs.lab.traffic import Load, send
from xenoovs.model.balancer import Balancer, Protocol
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.management import ManagementSwitch
from xenoovs.switch.process import run

pytestmark = pytest.mark.ovs

CONFIG = """\
version: 1
switch: {bridge: ovsbr1, ingress: [p0], egress: p1}
health: {probe: tcp, interval: 1s, fast_interval: 50ms, timeout: 1s, fall: 2, rise: 2}
services:
  - name: web
    vip: 10.3.10.45
    protocol: tcp
    ports: [80]
    vip_mac: 02:00:5e:10:00:01
    backends:
      - {name: one, mac: 02:00:5e:10:00:02, weight: 2, address: 198.51.100.1}
      - {name: two, mac: 02:00:5e:10:00:03, weight: 1, address: 198.51.100.2}
      - {name: six, mac: 02:00:5e:10:00:04, weight: 1, address: 198.51.100.3}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "my.yaml"
    file.write_text(CONFIG)
    return file


def servers(lab: Lab, balancer: Balancer) -> dict[str, str]:
    """Client -> backend, of 200 clients with two connections each."""
    report = send(lab, balancer, load=Load(clients=200, packets=400, protocol=Protocol.TCP))
    (service,) = report.services
    assert service.lost == 0
    found = {answer.client: answer.backend for answer in service.answers}
    assert len(found) == len(service.answers) == 200
    return found


def our_flows(lab: Lab) -> set[str]:
    text = ManagementSwitch(Endpoint(lab.ovs.db, lab.ovs.directory)).dump_flow_text("ovsbr1")
    return {line.strip() for line in text.splitlines() if line.strip()}


def test_a_backend_dies_and_comes_back(path: Path, tmp_path: Path) -> None:
    balancer = load_config(path)
    with running_lab("health", balancer, tmp_path / "labs") as lab:
        machines = {m.names[0]: m for m in lab.topology.machines}
        with running_agent(path, lab.ovs.directory, probe=AtHome(lab, balancer.services[0]).probe) as agent:
            eventually(lambda: agent.rounds == 1, "flows at first")
            flows, before = our_flows(lab), servers(lab, balancer)
            assert set(before.values()) == {"one", "two", "six"}

            kill_and_wait(processes_in(machines["one"].namespace))
            eventually(lambda: agent.rounds == 2, "clients of the dead one at others")
            during = servers(lab, balancer)
            assert {client for client in before if before[client] != during[client]} == {
                client for client in before if before[client] == "one"
            }
            assert set(during.values()) == {"two", "six"}

            start_responder(LabNetns(lab.marks), machines["one"], log=lab.directory / "again.log")
            eventually(lambda: agent.rounds == 3, "clients given back")
            assert our_flows(lab) == flows
            assert servers(lab, balancer) == before


def test_a_backend_comes_back_slowly(path: Path, tmp_path: Path) -> None:
    path.write_text(CONFIG.replace("rise: 2}", "rise: 2, ramp: 8s}"))
    balancer = load_config(path)
    with running_lab("ramp", balancer, tmp_path / "labs") as lab:
        machines = {m.names[0]: m for m in lab.topology.machines}
        with running_agent(path, lab.ovs.directory, probe=AtHome(lab, balancer.services[0]).probe) as agent:
            eventually(lambda: agent.rounds == 1, "flows at first")
            flows, before = our_flows(lab), servers(lab, balancer)
            kill_and_wait(processes_in(machines["one"].namespace))
            eventually(lambda: agent.rounds == 2, "clients of the dead one at others")
            start_responder(LabNetns(lab.marks), machines["one"], log=lab.directory / "again.log")
            eventually(lambda: agent.rounds >= 4, "the second step")
            early = servers(lab, balancer)
            own = [client for client in before if before[client] == "one"]
            returned = [client for client in own if early[client] == "one"]
            assert 0 < len(returned) < len(own)
            assert all(early[client] != "one" for client in before if before[client] != "one")
            eventually(lambda: our_flows(lab) == flows, "all clients given back")
            assert servers(lab, balancer) == before
            assert agent.rounds == 10


def logged(agent: Agent, text: str) -> list[str]:
    """The ports of the events with this text."""
    return [str(event.facts["port"]) for event in agent.events.since(0) if event.text == text]


def test_an_uplink_loses_its_link(path: Path, tmp_path: Path) -> None:
    """It is logged and shown. No block moves: health checks decide that."""
    balancer = load_config(path)
    with running_lab("link", balancer, tmp_path / "labs") as lab, running_agent(path, lab.ovs.directory) as agent:
        eventually(lambda: agent.rounds == 1, "flows at first")
        flows, before = our_flows(lab), servers(lab, balancer)

        def links() -> dict[str, bool | None]:
            seen = agent.ports()
            return {port.name: port.link_up for port in seen or ()}

        eventually(lambda: links() == {"p0": True, "p1": True}, "both links up")
        for state, is_up in (("down", False), ("up", True)):
            run(["ip", "-n", lab.topology.switch_namespace, "link", "set", "p1", state])
            eventually(lambda is_up=is_up: links()["p1"] is is_up, "the link")  # type: ignore[misc]
            eventually(lambda state=state: logged(agent, f"link {state}") == ["p1"], "it is logged")  # type: ignore[misc]
            assert our_flows(lab) == flows
        eventually(lambda: servers(lab, balancer) == before, "packets go again")
        assert agent.rounds == 1
