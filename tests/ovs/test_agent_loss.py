"""A backend dies under an agent: packets are lost of its own clients alone, and only until the flows change."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ovs.agents import AtHome, running_agent
from tests.ovs.lab_support import running_lab
from tests.ovs.paced import steady_stream
from tests.patience import eventually
from xenoovs.lab.host import kill_and_wait, processes_in
from xenoovs.model.load import parse_config

pytestmark = pytest.mark.ovs

CLIENTS, RATE_PPS = 60, 20

CONFIG = """\
version: 1
switch: {bridge: ovsbr1, ingress: [p0], egress: p1}
health: {probe: udp, send: "?", interval: 1s, fast_interval: 300ms, timeout: 1s, fall: 2, rise: 2}
services:
  - name: dns
    vip: 10.3.10.45
    protocol: udp
    ports: [53]
    vip_mac: 02:00:5e:10:00:01
    backends:
      - {name: one, mac: 02:00:5e:10:00:02, weight: 2, address: 198.51.100.1}
      - {name: two, mac: 02:00:5e:10:00:03, weight: 1, address: 198.51.100.2}
      - {name: six, mac: 02:00:5e:10:00:04, weight: 1, address: 198.51.100.3}
"""


def test_only_clients_of_the_dead_backend_lose_packets_and_only_until_the_flows_change(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_text(CONFIG)
    balancer = parse_config(CONFIG, file="my.yaml")
    with running_lab("loss", balancer, tmp_path / "labs") as lab:
        labels = {machine.label: machine.names[0] for machine in lab.topology.machines}
        machines = {machine.names[0]: machine for machine in lab.topology.machines}
        home = AtHome(lab, balancer.services[0])
        with running_agent(path, lab.ovs.directory, probe=home.probe) as agent:
            eventually(lambda: agent.rounds == 1, "flows at first")
            with steady_stream(lab, clients=CLIENTS, rate_pps=RATE_PPS) as stream:
                eventually(lambda: stream.say("reached") >= RATE_PPS, "a second of traffic")
                alive = stream.say("whole")
                kill_and_wait(processes_in(machines["one"].namespace))
                eventually(lambda: agent.rounds == 2, "clients of the dead one lent to others")
                # The flows have changed; the datapath forgets the old ones with the next revalidation.
                lab.ovs.appctl("revalidator/wait")
                changed = stream.say("reached")
                eventually(lambda: stream.say("reached") >= changed + RATE_PPS, "a second of traffic after the change")
                answers = stream.end()
        assert agent.rounds == 2

    owners = {client: labels[str(who[0])] for client, who in answers.items()}
    lost = {client: [number for number, by in enumerate(who) if by is None] for client, who in answers.items()}
    mine = {client for client, owner in owners.items() if owner == "one"}
    assert len(answers) == CLIENTS
    assert {name: list(owners.values()).count(name) for name in machines} == {"one": 30, "two": 15, "six": 15}
    assert {client for client, numbers in lost.items() if numbers} == mine
    for client in mine:
        first, last = lost[client][0], lost[client][-1]
        assert lost[client] == list(range(first, last + 1))
        assert alive <= first
        assert last < changed
        assert {labels[str(by)] for by in answers[client][:first]} == {"one"}
        (heir,) = {labels[str(by)] for by in answers[client][last + 1 :]}
        assert heir in ("two", "six")
    for client in answers.keys() - mine:
        assert {labels[str(by)] for by in answers[client]} == {owners[client]}
