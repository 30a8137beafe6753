"""Links are cut under a steady stream: the switch moves clients alone, and no agent moves one of them again."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from tests.command_line import CommandLine, finish, start
from tests.ovs.dummy import ofctl
from tests.ovs.lab_support import lab_name
from tests.ovs.paced import steady_stream
from tests.patience import eventually
from xenoovs.lab.lab import DIRECTORY_VARIABLE, Lab, open_lab
from xenoovs.lab.topology import switch_namespace
from xenoovs.switch.process import run

pytestmark = pytest.mark.each_release

NAME = lab_name("failover")
CLIENTS, RATE_PPS = 40, 25
CONFIG = """\
version: 1
switch: {bridge: ovsbr1, ingress: [p0], egress: p1, failover: in_switch, depth: 3}
health: {probe: icmp, interval: 2s, fast_interval: 50ms, timeout: 2s, fall: 2, rise: 2, max_down: 70%}
services:
  - name: dns
    vip: 10.3.10.45
    protocol: udp
    ports: [53]
    vip_mac: 02:00:5e:10:00:01
    backends:
      - {name: one, mac: 02:00:5e:10:00:02, weight: 1}
      - {name: two, mac: 02:00:5e:10:00:03, weight: 1, egress: p2}
      - {name: three, mac: 02:00:5e:10:00:04, weight: 1, egress: p3}
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("failover") / "my.yaml"
    path.write_text(CONFIG)
    return path


@pytest.fixture(scope="module")
def lab(release: None, config: Path) -> Iterator[Lab]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(DIRECTORY_VARIABLE, str(config.parent / "labs"))
        assert finish(start("lab", "up", config, "--lab", NAME)).status == 0
        try:
            assert finish(start("apply", config, "--lab", NAME, "--yes")).status == 0
            yield open_lab(NAME)
        finally:
            assert finish(start("lab", "down", "--lab", NAME)).status == 0


def set_link(lab: Lab, state: str) -> None:
    """Cut the cable between p1 and the machine `one`, or connect it: at p1 for the switch, at `one` for probes."""
    switch = switch_namespace(lab.topology.name)
    found = run(["ip", "-j", "-n", switch, "link", "show", "p1"]).stdout
    for device in (json.loads(found)[0]["link"], "xo-b1"):
        run(["ip", "-n", switch, "link", "set", device, state])


def route(answers: list[str | None]) -> list[str]:
    """Return the machines that answered a client, in order, each once in a row."""
    there = [answer for answer in answers if answer is not None]
    return [who for number, who in enumerate(there) if number == 0 or there[number - 1] != who]


def dump(lab: Lab) -> list[str]:
    target = f"unix:{lab.ovs.directory / lab.topology.bridge}.mgmt"
    lines = ofctl(lab.ovs, "-O", "OpenFlow14", "--no-stats", "dump-flows", target).splitlines()
    return sorted(line for line in lines if "actions=" in line)


def blocks(lab: Lab) -> list[tuple[int, int]]:
    """The bits of the clients' addresses that megaflows match and their mask, sorted. In a dump, unmatched bits are
    those of the first packet."""
    found = re.findall(r"ipv4\(src=([0-9.]+)/([0-9.]+),dst=10\.3\.10\.45,", lab.ovs.appctl("dpctl/dump-flows"))
    pairs = ((int(IPv4Address(value)), int(IPv4Address(mask))) for value, mask in found)
    return sorted((value & mask, mask) for value, mask in pairs)


def owners(xenoovs: CommandLine) -> str:
    said = xenoovs("status", "--lab", NAME, "-o", "json")
    if said.status not in (0, 2):
        return said.err
    (service,) = json.loads(said.out).get("snapshot", {"services": [{"backends": []}]})["services"]
    return " ".join(backend["state"] for backend in service["backends"])


@pytest.mark.parametrize("when", ["never", "afterwards", "throughout", "killed"])
def test_each_client_moves_once_and_returns_once(when: str, lab: Lab, config: Path, xenoovs: CommandLine) -> None:
    """The agent runs `when`: never, only after the cut, all the time, or until it is killed during the cut."""
    agents = list[subprocess.Popen[str]]()

    def agent(*wanted: str) -> None:
        if not agents:
            agents.append(start("agent", config, "--lab", NAME))
        eventually(lambda: owners(xenoovs) in wanted, f"the agent says {wanted}")

    before = dump(lab)
    with steady_stream(lab, clients=CLIENTS, rate_pps=RATE_PPS) as stream:
        try:
            stream.say("whole")
            if when in ("throughout", "killed"):
                agent("up up up")
            set_link(lab, "down")
            if when == "killed":
                agents[0].kill()
                agents.pop().communicate()
            # Packets that were on their way when the link went down are lost; those from now on are not.
            stream.say("again")
            if when != "never":
                agent("down up up")
                eventually(lambda: dump(lab) != before, "the agent moves the blocks too")
            set_link(lab, "up")
            if when != "never":
                agent("up up up")
            eventually(lambda: dump(lab) == before, "the flows are as before")
            stream.say("again")
        finally:
            set_link(lab, "up")
            for each in agents:
                each.send_signal(signal.SIGTERM)
                each.communicate()
        answers = stream.end()
    found = {client: route(of_client) for client, of_client in answers.items()}
    moved = [each for each in found.values() if each[0] == "b1"]
    assert 10 < len(moved) < 20
    assert all(len(each) == 3 and each[2] == "b1" and each[1] in ("b2", "b3") for each in moved)
    assert all(len(each) == 1 for each in found.values() if each[0] != "b1")
    assert {each[1] for each in moved} == {"b2", "b3"}


def test_hardware_entries_are_those_of_plain_flows(
    lab: Lab, config: Path, xenoovs: CommandLine, tmp_path: Path
) -> None:
    """Before a cut, and afterwards, when verify-offload and trace know which next hop is in use."""
    plain = tmp_path / "plain.yaml"
    plain.write_text(CONFIG.replace(", failover: in_switch, depth: 3", ""))
    with steady_stream(lab, clients=CLIENTS, rate_pps=RATE_PPS) as stream:

        def seen() -> list[tuple[int, int]]:
            lab.ovs.appctl("revalidator/purge")
            stream.say("again")
            return blocks(lab)

        assert xenoovs("apply", str(plain), "--lab", NAME, "--yes").status == 0
        wanted = seen()
        assert xenoovs("apply", str(config), "--lab", NAME, "--yes").status == 0
        assert seen() == wanted
        assert "the switch" not in xenoovs("verify-offload", str(config), "--lab", NAME).out
        set_link(lab, "down")
        stream.say("again")
        try:
            assert seen() == wanted
            said = xenoovs("verify-offload", str(config), "--lab", NAME)
            assert re.search(
                r"^dns: \d blocks? of one: the switch sends to (two|three), as p1 is dead$", said.out, re.M
            )
            assert "misdelivered" not in said.out
            assert "the switch sends to" in xenoovs("status", str(config), "--lab", NAME).out
            for client in range(8):
                said = xenoovs("trace", str(config), "--lab", NAME, "--src", f"198.51.100.{client}")
                assert said.status == 0, said.out
                assert "-> backend one" not in said.out
        finally:
            set_link(lab, "up")
        stream.say("again")


def test_a_port_that_is_deleted_loses_its_clients_and_gets_them_back(
    lab: Lab, config: Path, xenoovs: CommandLine
) -> None:
    with steady_stream(lab, clients=CLIENTS, rate_pps=RATE_PPS) as stream:
        stream.say("again")
        lab.ovs.vsctl("del-port", "ovsbr1", "p2")
        stream.say("again")
        lab.ovs.vsctl("add-port", "ovsbr1", "p2")
        assert xenoovs("apply", str(config), "--lab", NAME, "--yes").status == 0
        stream.say("again")
        found = [route(each) for each in stream.end().values()]
    assert {len(each) for each in found} == {1, 3}
    assert all(each[0] == each[2] == "b2" != each[1] for each in found if len(each) == 3)
    assert all(each[0] != "b2" for each in found if len(each) == 1)
    assert xenoovs("plan", str(config), "--lab", NAME).status == 0
