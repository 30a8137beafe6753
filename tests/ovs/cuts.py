"""Cuts under a steady stream where the switch itself fails over: links, deleted ports, and remotes behind BFD."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from tests.command_line import finish, start
from tests.ovs.dummy import ofctl
from tests.ovs.lab_support import lab_name
from tests.ovs.paced import steady_stream
from tests.ovs.ways import live_switch
from tests.patience import eventually
from xenoovs.lab.lab import Lab, open_lab
from xenoovs.switch.process import run

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
PLAIN = CONFIG.replace(", failover: in_switch, depth: 3", "")
"""The same where only an agent moves clients."""
_INTERVAL_S = 0.1
BFD = """\
version: 1
switch: {bridge: ovsbr1, ingress: [p0], egress: p1, failover: in_switch}
tunnels:
  - {name: gnv0, type: geneve, local: 192.168.77.1, key: 5001, bfd: {interval: 100ms, multiplier: 3}}
services:
  - name: dns
    vip: 10.3.10.45
    protocol: udp
    ports: [53]
    return: switch
    vip_mac: 02:00:5e:10:00:01
    backends:
      - {name: one, mac: 02:00:5e:10:00:02, weight: 1, egress: gnv0, remote: 192.168.77.11}
      - {name: two, mac: 02:00:5e:10:00:03, weight: 1, egress: gnv0, remote: 192.168.77.12}
      - {name: three, mac: 02:00:5e:10:00:04, weight: 1, egress: gnv0, remote: 192.168.77.13}
"""

_CLIENTS, _RATE_PPS = 10, 100
RATE_PPS = _CLIENTS * _RATE_PPS
"""Of all clients. A third of it goes to the backend whose way is cut."""
MOST_LOST = {"link": 2 * RATE_PPS * 0.02, "port": 2 * RATE_PPS * 0.02, "bfd": 3.5 * RATE_PPS * _INTERVAL_S}
"""Packets that a cut may cost, by its kind: 20 ms, and three intervals and a half."""
WHEN = ("never", "throughout", "killed")
CUTS = {"link": (CONFIG, 8), "port": (CONFIG, 6), "bfd": (BFD, 6)}
"""By kind: the config, and how often."""


@dataclass(frozen=True, slots=True)
class Cut:
    """`agent`: when it ran: never, all the time, or until it was killed in the middle. `moved`: the clients
    of one machine that another one served; `astray`: those of others, and those that did not move once and back."""

    kind: str
    agent: str
    lost: int
    moved: int
    astray: int


def cuts(directory: Path) -> Iterator[Cut]:
    """Cut 20 times, each kind in a lab of its own, with an agent and without. `directory`: for the configs."""
    for kind, (config, times) in CUTS.items():
        yield from cuts_of(kind, directory / f"{kind}.yaml", config, [WHEN[number % 3] for number in range(times)])


def cuts_of(kind: str, path: Path, config: str, agents: list[str]) -> Iterator[Cut]:
    """Yield one cut for each of `agents`."""
    with applied(path, config, lab_name(f"cut-{kind}")) as lab:
        for agent in agents:
            yield _cut(kind, agent, lab, path)


@contextmanager
def applied(path: Path, config: str, name: str) -> Iterator[Lab]:
    """A lab with the flows of a config, which is written to `path`, in the directory that the environment names."""
    path.write_text(config)
    assert finish(start("lab", "up", path, "--lab", name)).status == 0
    try:
        assert finish(start("apply", path, "--lab", name, "--yes")).status == 0
        yield open_lab(name)
    finally:
        assert finish(start("lab", "down", "--lab", name)).status == 0


def _cut(kind: str, when: str, lab: Lab, path: Path) -> Cut:
    agents = list[subprocess.Popen[str]]()
    eventually(lambda: _is_live(lab), "all ports are live")
    before = dump(lab)
    with steady_stream(lab, clients=_CLIENTS, rate_pps=_RATE_PPS) as stream:
        try:
            if when != "never":
                agents.append(start("agent", path, "--lab", lab.topology.name))
                eventually(lambda: states(lab) in ({"up"}, {"unchecked"}), "an agent")
            first = stream.say("again")
            _set(kind, lab, "down")
            if when == "killed":
                agents.pop().kill()
            last = stream.say("again")
            if when == "killed":
                # The one that was killed may have moved blocks before: another one moves them back.
                agents.append(start("agent", path, "--lab", lab.topology.name))
            if agents:
                eventually(lambda: dump(lab) != before, "the agent moves the blocks too")
        finally:
            _set(kind, lab, "up")
        if kind == "port" and not agents:
            assert finish(start("apply", path, "--lab", lab.topology.name, "--yes")).status == 0
        eventually(lambda: dump(lab) == before, "the flows are as before")
        eventually(lambda: _is_live(lab), "all ports are live again")
        stream.say("again")
        for each in agents:
            each.send_signal(signal.SIGTERM)
            each.communicate()
        answers = stream.end()
    lost = sum(answer is None for each in answers.values() for answer in each[first:last])
    routes = [route(each) for each in answers.values()]
    moved = [each for each in routes if len(each) > 1]
    there_and_back = [each for each in moved if len(each) == 3 and each[0] == each[2] == moved[0][0]]
    return Cut(kind, when, lost, len(moved), len(moved) - len(there_and_back))


def _set(kind: str, lab: Lab, state: str) -> None:
    """Cut the way to the backend `one`, or restore it; a port that is deleted is that of `two`."""
    match kind:
        case "link":
            set_link(lab, state)
        case "port":
            lab.ovs.vsctl("--may-exist" if state == "up" else "--if-exists", *_PORT[state])
        case _:
            how = ("fail", "one", "--how", "link") if state == "down" else ("fail", "one", "--end")
            assert finish(start("lab", *how, "--lab", lab.topology.name)).status == 0


_PORT = {"up": ("add-port", "ovsbr1", "p2"), "down": ("del-port", "ovsbr1", "p2")}


def set_link(lab: Lab, state: str) -> None:
    """Cut the cable between p1 and the machine `one`, or connect it: at p1 for the switch, at `one` for probes."""
    switch = lab.topology.switch_namespace
    found = run(["ip", "-j", "-n", switch, "link", "show", "p1"]).stdout
    for device in (json.loads(found)[0]["link"], "xo-b1"):
        run(["ip", "-n", switch, "link", "set", device, state])


def route(answers: list[str | None]) -> list[str]:
    """Return the machines that answered a client, in order, each once in a row."""
    there = [answer for answer in answers if answer is not None]
    return [who for number, who in enumerate(there) if number == 0 or there[number - 1] != who]


def dump(lab: Lab) -> list[str]:
    """The flows of xenoovs with what their groups do."""
    return sorted(live_switch(lab.ovs).dump_flow_text(lab.topology.bridge).splitlines())


def _is_live(lab: Lab) -> bool:
    """Whether groups may send by every port but that of the bridge itself, and BFD has its interval: until a session
    is up, each end sends once a second (RFC 5880, 6.8.3), so one that dies then is found only after three."""
    target = f"unix:{lab.ovs.directory / lab.topology.bridge}.mgmt"
    text, sessions = ofctl(lab.ovs, "-O", "OpenFlow14", "dump-ports-desc", target), lab.ovs.appctl("bfd/show")
    is_fast = sessions.count("RX Interval: Approx 100ms") == sessions.count("RX Interval: Approx")
    return is_fast and text.count("LIVE") == text.count("addr:") - 1


def states(lab: Lab) -> set[str]:
    """What the agent of the lab says of the backends; none while there is no agent."""
    said = finish(start("status", "--lab", lab.topology.name, "-o", "json"))
    services = json.loads(said.out).get("snapshot", {"services": []})["services"] if said.status in (0, 2) else ()
    return set(chain.from_iterable((each["state"] for each in service["backends"]) for service in services))
