"""VIPs that a real FRR announces to another one, by the routes of a real agent."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import CommandResult, finish, start
from tests.ovs.dummy import DummyBridge
from tests.ovs.frr import Router, documented_configs, two_routers
from tests.patience import eventually

VIPS = ("192.0.2.10", "192.0.2.64/26", "2001:db8::10")
CONFIG = """
version: 1
switch: {{bridge: ovsbr1, ingress: [p0], egress: p1}}
announce: {{bgp: frr, on_agent_exit: {policy}}}
health:
  {{probe: exec, command: [/usr/bin/test, -e, {alive}],
   interval: 500ms, fast_interval: 50ms, timeout: 500ms, rise: 1, fall: 4}}
services:
  - name: web
    vip: [192.0.2.10, 192.0.2.64/26, "2001:db8::10"]
    backends:
      - {{name: one, mac: "02:00:5e:10:00:02", weight: 1}}
      - {{name: two, mac: "02:00:5e:10:00:03", weight: 1}}
"""


class RunningAgent:
    """A process of `xenoovs agent` beside the first router. alive: the file without which no backend answers."""

    def __init__(self, host: Router, bridge: DummyBridge, directory: Path) -> None:
        self.host, self.bridge = host, bridge
        self.config, self.alive, self.socket = (directory / name for name in ("my.yaml", "alive", "agent.sock"))
        self.alive.touch()
        self.env = {**os.environ, "PATH": f"{host.run}:{os.environ['PATH']}"}
        self.process: subprocess.Popen[str] | None = None

    def start(self, policy: str = "keep") -> None:
        self.config.write_text(CONFIG.format(policy=policy, alive=self.alive))
        self.process = self._start("agent", self.config, "--allow-exec")

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            finish(self.process)

    def call(self, *words: object) -> CommandResult:
        """A command to the agent."""
        return finish(self._start(*words))

    def _start(self, *words: object) -> subprocess.Popen[str]:
        return start(*words, "--db", self.bridge.ovs.db, env=self.env, netns=self.host.netns)

    def views(self) -> list[dict[str, Any]]:
        """The announcements in its status; empty while it does not answer."""
        text = finish(start("status", "-o", "json", "--db", self.bridge.ovs.db)).out
        found: list[dict[str, Any]] = json.loads(text)["snapshot"]["announcements"] if text else []
        return found

    def says(self, has: Callable[[dict[str, Any]], bool]) -> None:
        """Wait until the views of all VIPs are so."""
        found: list[dict[str, Any]] = []

        def is_so() -> bool:
            found[:] = self.views()
            return len(found) == len(VIPS) and all(map(has, found))

        eventually(is_so, "the agent says so")


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[Router, Router]]:
    """The host, with the first configuration of the page, and its neighbor."""
    with two_routers(documented_configs()[0]) as made:
        yield made


@pytest.fixture
def routers(request: pytest.FixtureRequest, shared: tuple[Router, Router]) -> Iterator[tuple[Router, Router]]:
    """The host and its neighbor, which has no VIP. A test that changes their configuration names one for its own."""
    if (number := getattr(request, "param", None)) is not None:
        with two_routers(documented_configs()[number]) as made:
            yield made
        return
    yield shared
    host, neighbor = shared
    for device in re.findall(r"\bx[op]-[^:@ ]+", host.ip("-brief", "link", "show")):
        # The end of one of a pair ends the other one.
        subprocess.run(["ip", "-n", host.netns, "link", "delete", device], capture_output=True, check=False)
    vanishes(neighbor)


@pytest.fixture
def agent(routers: tuple[Router, Router], bridge: DummyBridge, tmp_path: Path) -> Iterator[RunningAgent]:
    made = RunningAgent(routers[0], bridge, tmp_path)
    try:
        yield made
    finally:
        made.kill()


def has_all(router: Router) -> bool:
    return all(map(router.has, VIPS))


def has_none(router: Router) -> bool:
    return not any(map(router.has, VIPS))


def appears(router: Router) -> None:
    eventually(lambda: has_all(router), "the neighbor has all VIPs")


def vanishes(router: Router) -> None:
    eventually(lambda: has_none(router), "the neighbor has no VIP")


@pytest.mark.parametrize("routers", [None, 1], indirect=True, ids=["redistribute", "network"])
def test_the_neighbor_has_a_vip_while_a_backend_serves(agent: RunningAgent, routers: tuple[Router, Router]) -> None:
    _, neighbor = routers
    agent.start()
    appears(neighbor)
    agent.says(lambda view: view["is_announced"] and view["peers"] == 1 and not view["problem"])
    assert (
        "announced: 192.0.2.10 to 1 neighbor, 192.0.2.64/26 to 1 neighbor, 2001:db8::10 to 1 neighbor"
        in agent.call("status").out
    )
    rows = json.loads(agent.call("doctor", agent.config, "-o", "json").out)["checks"]
    bgp = [(row["state"], row["seen"]) for row in rows if row["check"] == "BGP of VIPs"]
    assert bgp == [("ok", "session with 198.51.100.2, 2001:db8:0:1::2")]
    agent.alive.unlink()
    vanishes(neighbor)
    agent.says(lambda view: not view["is_announced"] and view["reason"] == "no backend of web serves")
    agent.alive.touch()
    appears(neighbor)


def test_a_killed_agent_keeps_its_vips_and_the_next_one_takes_them_over_and_so_a_withdrawal(
    agent: RunningAgent, routers: tuple[Router, Router]
) -> None:
    host, neighbor = routers
    agent.start("keep")
    appears(neighbor)
    version = json.loads(neighbor.vtysh("show bgp ipv4 unicast 192.0.2.10/32 json"))["version"]
    agent.kill()
    agent.start("keep")
    agent.says(lambda view: view["is_announced"] and view["peers"] == 1)
    assert json.loads(neighbor.vtysh("show bgp ipv4 unicast 192.0.2.10/32 json"))["version"] == version
    assert "all VIPs are withdrawn" in agent.call("pause", "--withdraw").out
    vanishes(neighbor)
    agent.kill()
    agent.start()
    agent.says(lambda view: "xenoovs pause --withdraw" in view["reason"])
    assert has_none(neighbor)
    agent.call("pause", "--end")
    appears(neighbor)
    agent.kill(signal.SIGTERM)
    assert has_all(neighbor)
    # Without its flows, no VIP is announced.
    assert agent.call("remove", agent.config, "--yes").status == 0
    vanishes(neighbor)
    assert "xo-" not in host.ip("link", "show")


def test_an_agent_that_ends_withdraws_its_vips(agent: RunningAgent, routers: tuple[Router, Router]) -> None:
    """Also by a policy that changes at run time, and with a config without `announce`."""
    host, neighbor = routers
    agent.start("withdraw")
    for how in (signal.SIGTERM, signal.SIGKILL):
        appears(neighbor)
        agent.kill(how)
        vanishes(neighbor)
        assert "xo-" not in host.ip("link", "show")
        agent.start("keep")
        appears(neighbor)
        eventually(lambda: "xp-" in host.ip("link", "show"), "the device is one that stays")
        agent.config.write_text(CONFIG.format(policy="withdraw", alive=agent.alive))
        eventually(lambda: "xp-" not in host.ip("link", "show"), "the device is one that ends with the agent")
    appears(neighbor)
    agent.config.write_text(CONFIG.format(policy="keep", alive=agent.alive))
    eventually(lambda: "xp-" in host.ip("link", "show"), "the device is one that stays")
    appears(neighbor)
    assert "cannot be set" not in agent.call("logs").out
    agent.config.write_text(agent.config.read_text().replace("announce: {", "# announce: {"))
    vanishes(neighbor)
    assert "xo-" not in host.ip("link", "show")


def test_vips_come_back_after_a_restart_of_frr_and_a_vtysh_that_hangs_delays_no_round(
    agent: RunningAgent, routers: tuple[Router, Router]
) -> None:
    host, neighbor = routers
    agent.start()
    appears(neighbor)
    host.stop()
    vanishes(neighbor)
    agent.says(lambda view: view["is_announced"] and "FRR does not run" in view["problem"])
    host.start()
    appears(neighbor)
    agent.says(lambda view: view["peers"] == 1)
    host.stop("bgpd", how=signal.SIGSTOP)
    agent.says(lambda view: view["is_announced"] and "vtysh did not answer" in view["problem"])
    agent.alive.unlink()
    agent.says(lambda view: view["reason"] == "no backend of web serves")
    host.stop("bgpd", how=signal.SIGCONT)
    agent.alive.touch()
    appears(neighbor)


@pytest.mark.parametrize("routers", [0], indirect=True, ids=["own"])
def test_routes_of_others_stay_and_lost_ones_come_back(agent: RunningAgent, routers: tuple[Router, Router]) -> None:
    """Another host announces one of the VIPs too."""
    host, neighbor = routers
    # Of the same prefix and protocol, by another device and with a larger metric: ours is the better one.
    host.ip("route", "add", "192.0.2.10/32", "via", "198.51.100.2", "metric", "500", "proto", "120")
    host.ip("route", "add", "192.0.2.99/32", "via", "198.51.100.2")
    neighbor.ip("route", "add", "blackhole", "192.0.2.64/26")
    argv = ["-c", "configure", "-c", "router bgp", "-c", "address-family ipv4 unicast"]
    subprocess.run([str(neighbor.run / "vtysh"), *argv, "-c", "network 192.0.2.64/26"], check=True)
    learned = lambda: "proto bgp" in host.ip("route", "show", "192.0.2.64/26")  # noqa: E731
    eventually(learned, "the host has learned the other route")
    agent.start()
    agent.says(lambda view: view["peers"] == 1)
    host.ip("route", "delete", "192.0.2.10/32", "metric", "120")
    eventually(lambda: "metric 120" in host.ip("route", "show", "192.0.2.10"), "the route is back")
    agent.alive.unlink()
    eventually(lambda: not neighbor.has("2001:db8::10"), "the VIP is withdrawn")
    eventually(learned, "the host has the other route again")
    assert "metric 500" in host.ip("route", "show", "192.0.2.10")
    assert "via" in host.ip("route", "show", "192.0.2.99")
