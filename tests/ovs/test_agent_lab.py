"""A backend dies in the lab: others serve its clients, no other client moves, and it gets them back."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.command_line import CommandLine
from tests.ovs.agents import running_agent
from tests.ovs.dummy import ofctl
from tests.ovs.lab_support import running_lab
from tests.ovs.paced import steady_stream
from tests.patience import eventually
from xenoovs.agent.daemon import Agent
from xenoovs.lab.host import kill_and_wait, processes_in
from xenoovs.lab.lab import Lab
from xenoovs.lab.servers import Failure, fail, heal
from xenoovs.lab.topology import Machine
from xenoovs.lab.traffic import Load, send
from xenoovs.model.balancer import Balancer, Protocol
from xenoovs.model.load import load_config
from xenoovs.show.conditions import troubles
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.management import ManagementSwitch

CONFIG = """\
version: 1
switch: {bridge: ovsbr1, ingress: [p0], egress: p1}
health: {probe: tcp, interval: 1s, fast_interval: 50ms, timeout: 1s, fall: 4, rise: 2}
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


TUNNELS = "tunnels:\n  - {name: gnv0, type: geneve, local: 192.168.77.1, key: 5001}\nservices:"


def behind_tunnels(returns: str) -> str:
    """The same with backends behind tunnels."""
    text = CONFIG.replace("services:", TUNNELS).replace("    vip_mac:", f"    return: {returns}\n    vip_mac:")
    for number in (1, 2, 3):
        text = text.replace(f"100.{number}}}", f"100.{number}, egress: gnv0, remote: 192.168.77.1{number}}}")
    return text


@dataclass(frozen=True, slots=True)
class World:
    """A lab of a config in a file."""

    lab: Lab
    balancer: Balancer
    path: Path

    def agent(self) -> AbstractContextManager[Agent]:
        return running_agent(self.path, self.lab.ovs.directory, lab=self.lab)

    @property
    def one(self) -> Machine:
        return next(machine for machine in self.lab.topology.machines if machine.names[0] == "one")

    def servers(self) -> dict[str, str]:
        """Client -> backend, of 200 clients with two connections each."""
        report = send(self.lab, self.balancer, load=Load(clients=200, packets=400, protocol=Protocol.TCP))
        (service,) = report.services
        assert service.lost == 0
        found = dict([*service.answers])
        assert len(found) == len(service.answers) == 200
        return found

    def flows(self) -> set[str]:
        text = ManagementSwitch(Endpoint(self.lab.ovs.db, self.lab.ovs.directory)).dump_flow_text("ovsbr1")
        return {line.strip() for line in text.splitlines() if line.strip()}

    def set_forwarding(self, state: str, ports: Iterable[str]) -> None:
        """Take ports for live whatever their BFD sessions say (`true`), or as these say (`normal`): on a busy machine
        the session with a remote that is well goes down too."""
        for port in ports:
            self.lab.ovs.appctl("bfd/set-forwarding", port, state)

    def live_tunnels(self) -> set[str]:
        """The tunnel ports that fast failover groups and controllers take for live."""
        target = f"unix:{self.lab.ovs.directory}/ovsbr1.mgmt"
        text = ofctl(self.lab.ovs, "-O", "OpenFlow14", "dump-ports-desc", target)
        return set(re.findall(r"\((gnv0-\w+)\).*\n.*\n *state: +LIVE", text))


@contextmanager
def world(text: str, directory: Path) -> Iterator[World]:
    path = directory / "my.yaml"
    path.write_text(text)
    balancer = load_config(path)
    with running_lab("agent", balancer, directory / "labs") as lab:
        yield World(lab, balancer, path)


def assert_only_clients_of_one_moved(before: dict[str, str], during: dict[str, str]) -> None:
    moved = {client for client in before if before[client] != during[client]}
    assert moved == {client for client in before if before[client] == "one"}
    assert set(during.values()) == {"two", "six"}


@pytest.mark.each_release
@pytest.mark.parametrize(
    "config",
    [CONFIG, behind_tunnels("switch"), pytest.param(behind_tunnels("direct"), marks=pytest.mark.long)],
    ids=["plain", "tunnels-both-ways", "tunnels"],
)
def test_a_backend_dies_and_comes_back(config: str, tmp_path: Path) -> None:
    with world(config, tmp_path) as made, made.agent() as agent:
        eventually(lambda: agent.state.round.rounds == 1, "flows at first")
        flows, before = made.flows(), made.servers()
        assert set(before.values()) == {"one", "two", "six"}

        fail(made.lab, made.one, Failure.PORT, made.balancer)
        eventually(lambda: agent.state.round.rounds == 2, "clients of the dead one at others")
        assert_only_clients_of_one_moved(before, made.servers())

        heal(made.lab, [made.one], made.balancer)
        eventually(lambda: agent.state.round.rounds == 3, "clients given back")
        assert made.flows() == flows
        assert made.servers() == before


CLIENTS, RATE_PPS = 60, 20

DNS = (
    CONFIG.replace(
        "probe: tcp, interval: 1s, fast_interval: 50ms", 'probe: udp, send: "?", interval: 1s, fast_interval: 300ms'
    )
    .replace("name: web", "name: dns")
    .replace("protocol: tcp\n    ports: [80]", "protocol: udp\n    ports: [53]")
)


def test_only_clients_of_the_dead_backend_lose_packets_and_only_until_the_flows_change(tmp_path: Path) -> None:
    with world(DNS, tmp_path) as made:
        lab, one = made.lab, made.one
        labels = {machine.label: machine.names[0] for machine in lab.topology.machines}
        with made.agent() as agent:
            eventually(lambda: agent.state.round.rounds == 1, "flows at first")
            with steady_stream(lab, clients=CLIENTS, rate_pps=RATE_PPS) as stream:
                eventually(lambda: stream.say("reached") >= RATE_PPS, "a second of traffic")
                alive = stream.say("whole")
                kill_and_wait(processes_in(one.namespace))
                eventually(lambda: agent.state.round.rounds == 2, "clients of the dead one lent to others")
                # The flows have changed; the datapath forgets the old ones with the next revalidation.
                lab.ovs.appctl("revalidator/wait")
                changed = stream.say("reached")
                eventually(lambda: stream.say("reached") >= changed + RATE_PPS, "a second of traffic after the change")
                answers = stream.end()
        assert agent.state.round.rounds == 2

    owners = {client: labels[str(who[0])] for client, who in answers.items()}
    lost = {client: [number for number, by in enumerate(who) if by is None] for client, who in answers.items()}
    mine = {client for client, owner in owners.items() if owner == "one"}
    assert len(answers) == CLIENTS
    assert Counter(owners.values()) == {"one": 30, "two": 15, "six": 15}
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


PORT_OF_ONE = "gnv0-c0a84d0b"
DIAGNOSTICS = "Control Detection Time Expired", "Neighbor Signaled Session Down"
BFD = TUNNELS.replace("key: 5001", "key: 5001, bfd: {interval: 100ms, multiplier: 3}")


def watched_by_bfd() -> str:
    """A service behind tunnels that are watched by BFD; no backend is probed."""
    text = behind_tunnels("switch").replace(TUNNELS, BFD)
    return "\n".join(line for line in text.splitlines() if not line.startswith("health:"))


@pytest.mark.each_release
def test_a_remote_whose_bfd_goes_down_is_left_until_it_is_up(tmp_path: Path, xenoovs: CommandLine) -> None:
    """BFD costs no megaflow: what comes out of a tunnel has one for each remote."""
    with world(watched_by_bfd(), tmp_path) as made:
        lab, sessions = made.lab, dict.fromkeys(made.balancer.bfd_ports, "up")
        eventually(lambda: made.live_tunnels() == {*sessions}, "sessions that are up")
        made.set_forwarding("true", sessions)
        with made.agent() as agent:

            def found() -> dict[str, str]:
                return {port.name: port.bfd for port in agent.ports() or () if port.bfd}

            eventually(lambda: found() == sessions and agent.state.round.rounds > 0, "flows at first")
            flows, before = made.flows(), made.servers()
            assert set(before.values()) == {"one", "two", "six"}
            megaflows = [line for line in lab.ovs.appctl("dpctl/dump-flows").splitlines() if "src=10.3.10.45" in line]
            assert len(megaflows) == len(lab.topology.machines)

            fail(lab, made.one, Failure.LINK, made.balancer)
            made.set_forwarding("normal", [PORT_OF_ONE])
            eventually(lambda: made.flows() != flows, "clients of the dead one at others")
            assert_only_clients_of_one_moved(before, made.servers())
            assert made.live_tunnels() == made.balancer.bfd_ports - {PORT_OF_ONE}
            [service] = agent.lazy_snapshot().snapshot().services
            assert {each.name: (each.state.value, each.reason) for each in service.backends} == {
                "one": ("down", f"BFD of port {PORT_OF_ONE} is down"),
                "two": ("unchecked", ""),
                "six": ("unchecked", ""),
            }
            [why] = [text for text, _ in troubles(agent.lazy_snapshot().snapshot()) if text.startswith("BFD")]
            # It depends on which end has missed a message first.
            assert why in [f"BFD of port {PORT_OF_ONE} is down: {text}" for text in DIAGNOSTICS]
            said = xenoovs("doctor", made.path, "--db", lab.ovs.db, "-o", "json").out
            rows = [row["seen"] for row in json.loads(said)["checks"] if row["check"] == "tunnel BFD"]
            assert sorted(seen.partition(";")[0] for seen in rows) == [
                f"down: {why.rpartition(': ')[2]}: no message comes from 192.168.77.11",
                "up at both ends",
                "up at both ends",
            ]

            heal(lab, [made.one], made.balancer)
            eventually(lambda: made.live_tunnels() == {*sessions}, "a session that is up again")
            made.set_forwarding("true", [PORT_OF_ONE])
            eventually(lambda: made.flows() == flows, "clients given back")
            assert made.servers() == before


@pytest.mark.each_release
def test_the_switch_leaves_a_dead_remote_without_an_agent(tmp_path: Path) -> None:
    """The agent that comes later moves nobody again."""
    text = watched_by_bfd().replace("egress: p1}", "egress: p1, failover: in_switch}")
    with world(text, tmp_path) as made:
        everyone = made.balancer.bfd_ports
        eventually(lambda: made.live_tunnels() == everyone, "sessions that are up")
        made.set_forwarding("true", everyone)
        with made.agent() as agent:
            eventually(lambda: agent.state.round.rounds == 1, "flows at first")
        flows, before = made.flows(), made.servers()
        fail(made.lab, made.one, Failure.LINK, made.balancer)
        made.set_forwarding("normal", [PORT_OF_ONE])
        eventually(lambda: made.live_tunnels() == everyone - {PORT_OF_ONE}, "a port that is not live")
        during = made.servers()
        assert_only_clients_of_one_moved(before, during)
        with made.agent() as agent:
            eventually(lambda: agent.state.ejected == {"web": frozenset({"one"})}, "what the agent knows")
            eventually(lambda: agent.state.round.rounds == 1, "clients at their backends")
            assert made.flows() != flows
            assert made.servers() == during
            heal(made.lab, [made.one], made.balancer)
            eventually(lambda: made.live_tunnels() == everyone, "a session that is up again")
            made.set_forwarding("true", [PORT_OF_ONE])
            eventually(lambda: made.flows() == flows, "clients given back")
            assert made.servers() == before
