"""Backends that flap, and backends that all die, on a real switch: exact counts, by a prober of the test's own."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from tests.ovs.agents import running_agent
from tests.ovs.dummy import DummyBridge, udp_packet
from tests.patience import eventually
from xenoovs.agent.daemon import Agent
from xenoovs.agent.probe.target import ProbeResult, Target, TcpTarget

pytestmark = pytest.mark.ovs

CONFIG = """\
version: 1
switch: {bridge: ovsbr1, ingress: [p0], egress: p1}
health: {probe: tcp, interval: 50ms, fast_interval: 50ms, timeout: 50ms, fall: 3, rise: 2, jitter: 0%}
services:
  - name: dns
    vip: 10.3.10.45
    protocol: udp
    ports: [53]
    backends:
      - {name: one, mac: 02:00:5e:10:00:02, weight: 1, address: 198.51.100.1}
      - {name: two, mac: 02:00:5e:10:00:03, weight: 1, address: 198.51.100.2}
"""
ONE, TWO = "198.51.100.1", "198.51.100.2"
MAC_OF_ONE, MAC_OF_TWO = b"\x02\x00\x5e\x10\x00\x02", b"\x02\x00\x5e\x10\x00\x03"


class Script:
    """Answers of each backend, in order: those that are to come, and then the last one for ever."""

    def __init__(self) -> None:
        self.coming: dict[str, list[bool]] = {ONE: [], TWO: []}
        self.last = {ONE: True, TWO: True}

    def plays(self, address: str, answers: list[bool]) -> None:
        self.coming[address] = list(answers)

    def is_over(self) -> bool:
        return not any(self.coming.values())

    async def probe(self, target: Target, *, timeout_s: float) -> ProbeResult:
        assert isinstance(target, TcpTarget)
        address = str(target.address)
        if self.coming[address]:
            self.last[address] = self.coming[address].pop(0)
        await asyncio.sleep(0)
        return ProbeResult(ok=self.last[address], latency_s=0.0, reason="as the test says")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "my.yaml"
    file.write_text(CONFIG)
    return file


def logged(agent: Agent) -> list[str]:
    return [event.text for event in agent.events.since(0) if event.text.startswith("backend ")]


def served(bridge: DummyBridge) -> dict[bytes, int]:
    """MAC -> how many of sixteen clients, each with one packet, it gets."""
    before = len(bridge.sent("p1"))
    bridge.send("p0", [udp_packet(f"192.0.2.{number}") for number in range(16)])
    return Counter(frame[:6] for frame in bridge.sent("p1")[before:])


def test_flaps_shorter_than_fall_change_nothing(bridge: DummyBridge, path: Path) -> None:
    script = Script()
    with running_agent(path, bridge.ovs.directory, probe=script.probe) as agent:
        eventually(lambda: agent.rounds == 1, "flows at first")
        before = bridge.dump_flows()
        script.plays(ONE, [False, True] * 15)
        script.plays(TWO, [False, False, True] * 10)
        eventually(script.is_over, "thirty results each")
    assert logged(agent) == []
    assert agent.rounds == 1
    assert bridge.dump_flows() == before


def test_each_flap_of_fall_and_rise_is_one_transition_and_one_round(bridge: DummyBridge, path: Path) -> None:
    """As a flapping backend plays it: two failures too few first, an answer too few before it comes back."""
    script = Script()
    with running_agent(path, bridge.ovs.directory, probe=script.probe) as agent:
        eventually(lambda: agent.rounds == 1, "flows at first")
        before = bridge.dump_flows()
        for turn in range(3):
            script.plays(ONE, [False, False, True, False, False, False])
            eventually(lambda turn=turn: agent.rounds == 2 * turn + 2, "it is out")  # type: ignore[misc]
            assert bridge.dump_flows() != before
            script.plays(ONE, [True, False, True, True])
            eventually(lambda turn=turn: agent.rounds == 2 * turn + 3, "it is in")  # type: ignore[misc]
            assert bridge.dump_flows() == before
        (flapping,) = (h for check, h in agent.state.tracker.health.items() if ONE in str(check.target))
        assert flapping.transitions == 6
    assert logged(agent) == ["backend down", "backend up"] * 3
    assert agent.rounds == 7


@pytest.mark.parametrize(("policy", "served_then"), [("keep", {MAC_OF_TWO: 16}), ("drop", {})], ids=["keep", "drop"])
def test_all_backends_die_and_come_back(
    bridge: DummyBridge, path: Path, policy: str, served_then: dict[bytes, int]
) -> None:
    path.write_text(CONFIG.replace("jitter: 0%", f"jitter: 0%, on_all_down: {policy}"))
    script = Script()
    with running_agent(path, bridge.ovs.directory, probe=script.probe) as agent:
        eventually(lambda: agent.rounds == 1, "flows at first")
        before = bridge.dump_flows()
        assert served(bridge) == {MAC_OF_ONE: 8, MAC_OF_TWO: 8}
        script.plays(ONE, [False])
        eventually(lambda: agent.rounds == 2, "the first is out")
        # The flows have changed; the datapath forgets the old ones with the next revalidation.
        bridge.ovs.appctl("revalidator/wait")
        assert served(bridge) == {MAC_OF_TWO: 16}
        script.plays(TWO, [False])
        eventually(lambda: logged(agent) == ["backend down"] * 2, "the second is down")
        eventually(lambda: served(bridge) == served_then, "none is up")
        script.plays(ONE, [True])
        script.plays(TWO, [True])
        eventually(lambda: bridge.dump_flows() == before, "both have their clients again")
        bridge.ovs.appctl("revalidator/wait")
        assert served(bridge) == {MAC_OF_ONE: 8, MAC_OF_TWO: 8}
        eventually(lambda: len(logged(agent)) == 4, "both are up")
    assert logged(agent) == ["backend down"] * 2 + ["backend up"] * 2
