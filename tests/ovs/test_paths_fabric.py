"""Agents choose paths through a fabric of Linux routers: what dies, what comes back, and what must not move.

The margin is far above any queue, so that a busy machine makes no path congested: only dead paths lose blocks.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.ovs.dummy import ofctl
from tests.ovs.lab_support import fabric_fixture
from tests.patience import eventually
from xenoovs.agent.control.client import Client
from xenoovs.errors import AgentMissing
from xenoovs.lab.fabric.plan import BRIDGE, PROBE_PORT, FabricShape
from xenoovs.lab.fabric.status import restore, silence
from xenoovs.lab.host import kill_and_wait
from xenoovs.lab.lab import FabricLab
from xenoovs.lab.private_ovs import start_vswitchd_again
from xenoovs.model.tunnel import ANSWER_SOURCE_PORTS, REFLECTED_PORT

pytestmark = pytest.mark.timeout(900)

REMOTE = "fabric/hostb1"


class PathAgent:
    """An agent as a process of its own, outside of the namespaces of the lab."""

    def __init__(self, lab: FabricLab, dpu: str, directory: Path) -> None:
        self.lab, self.dpu = lab, dpu
        self.control, self.log = directory / f"{dpu}.sock", directory / f"{dpu}.log"
        self.client, self.config = Client(self.control), lab.config(dpu)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> PathAgent:
        argv = [sys.executable, "-m", "xenoovs", "agent", str(self.config), "--control", str(self.control)]
        with self.log.open("ab") as log:
            env = {**os.environ, **self.lab.ovs(self.dpu).env}
            self.process = subprocess.Popen(argv, env=env, stderr=log)
        return self

    def end(self, signal_number: int = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(signal_number)
            self.process.wait(60)
            self.process = None

    def remote(self) -> dict[str, Any]:
        """What the agent says of the remote; without paths while it does not answer or knows none."""
        try:
            found: list[dict[str, Any]] = self.client.ask("paths")["remotes"]
        except AgentMissing:
            return {"paths": []}
        return found[0] if found else {"paths": []}

    def states(self) -> list[str]:
        return [path["state"] for path in self.remote()["paths"]]

    def blocks(self) -> list[int]:
        return [path["blocks"] for path in self.remote()["paths"]]

    def ofctl(self, command: str, *words: str, option: str = "--no-stats") -> str:
        ovs = self.lab.ovs(self.dpu)
        bridge = f"unix:{ovs.directory / BRIDGE}.mgmt"
        return ofctl(ovs, "-O", "OpenFlow14", "--names", option, command, bridge, *words)

    def block_flows(self) -> list[str]:
        """The flows of the blocks of the remote, without counters."""
        return sorted(line.strip() for line in self.ofctl("dump-flows", "table=1").splitlines() if "udp_src" in line)

    def wait_until_good(self) -> None:
        def is_good() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, self.log.read_text()
            return self.states() == ["good"] * 4

        eventually(is_good, f"four good paths at {self.dpu}")


def _without_any_congestion(made: FabricLab) -> None:
    for config in map(made.config, ("dpua1", "dpub1")):
        lines = [line for line in config.read_text().splitlines() if not line.strip().startswith("margin:")]
        config.write_text("\n".join([*lines, "    margin: 1000ms", ""]))


lab = fabric_fixture("paths", FabricShape(paths=4), _without_any_congestion)


@contextmanager
def dead_path(agent: PathAgent, wait_until_good: Callable[[], None] | None = None) -> Iterator[None]:
    """A spine swallows everything until the end of the `with`: one that is not on all ways back."""
    for spine in agent.lab.fabric.spines:
        silence(agent.lab, spine)
        try:
            eventually(
                lambda: {"failed", "unknown"} & {*agent.states()} != set(), "a failed path, or none that answers"
            )
            if "failed" in agent.states():
                yield
                return
        finally:
            restore(agent.lab, (spine,))
        (wait_until_good or agent.wait_until_good)()
    pytest.fail("each spine is on all ways back")


@contextmanager
def agents(lab: FabricLab, directory: Path) -> Iterator[tuple[PathAgent, PathAgent]]:
    """An agent at each end, once all paths of the first are good."""
    near, far = (PathAgent(lab, dpu, directory).start() for dpu in ("dpua1", "dpub1"))
    try:
        near.wait_until_good()
        yield near, far
    finally:
        near.end()
        far.end()


def test_one_port_of_each_path_is_found_and_has_a_quarter_of_the_blocks(lab: FabricLab, tmp_path: Path) -> None:
    with agents(lab, tmp_path) as (near, _):
        remote = near.remote()
        assert near.blocks() == [16, 16, 16, 16]
        spines = {path["hops"].split(",")[1] for path in remote["paths"] if path["hops"]}
        # A new search was made only if the bridge had no ports yet.
        assert len(spines) in (0, 4)
        assert len(near.block_flows()) == 4
        # The other agent may have begun so late that another way back was tried.
        eventually(lambda: (now := near.remote())["tos"] == now["tos_sent"], "answers by the way that is asked for")
        assert near.remote()["tos"] in (0x20, 0x24, 0x2C, 0x34)


def test_exactly_the_blocks_of_a_dead_path_leave_and_the_same_come_back(lab: FabricLab, tmp_path: Path) -> None:
    """Open vSwitch restarts meanwhile."""
    with agents(lab, tmp_path) as (near, _):
        # On a busy machine a path may have failed before.
        eventually(lambda: near.blocks() == [16, 16, 16, 16] and len(near.block_flows()) == 4, "all blocks at home")
        before = near.block_flows()
        with dead_path(near):
            eventually(lambda: near.blocks().count(0) == 1, "an empty path")
            (dead,) = (path["port"] for path in near.remote()["paths"] if path["state"] == "failed")
            blocks = near.blocks()
            assert sum(blocks) == 64
            assert near.remote()["moves"]["failed"] == 16
            port = f"set_field:{dead}->"
            eventually(lambda: not any(port in flow for flow in near.block_flows()), "flows without it")
            without, ovs = near.block_flows(), lab.ovs("dpua1")
            kill_and_wait([ovs.pids()[0]])
            start_vswitchd_again(ovs)
            eventually(lambda: near.block_flows() == without, "the same flows again")
            eventually(lambda: near.states().count("good") == 3, "answers again")
            assert near.blocks() == blocks
        near.wait_until_good()
        eventually(lambda: near.blocks() == [16, 16, 16, 16], "all blocks at home")
        eventually(lambda: near.block_flows() == before, "the same flows as before")
        assert near.remote()["moves"]["restored"] == 16


def test_bug_ways_back_that_lose_answers_moved_blocks(lab: FabricLab, tmp_path: Path) -> None:
    with agents(lab, tmp_path) as (near, _):
        first, *others = ANSWER_SOURCE_PORTS
        near.ofctl("add-meter", "meter=1,pktps,burst,band=type=drop,rate=100,burst_size=1")

        def answers(port: int) -> str:
            return f"priority=60000,udp,in_port=p0,tp_src={port},tp_dst={REFLECTED_PORT}"

        def lose(port: int) -> None:
            near.ofctl("add-flow", f"{answers(port)},actions=meter:1,output:{PROBE_PORT}")

        try:
            eventually(lambda: near.remote()["tos_sent"] == 0x20, "probes for the first way")
            lose(first)
            eventually(lambda: near.remote()["tos_sent"] != 0x20, "probes for another way")
            near.wait_until_good()
            for port in others:
                lose(port)
            eventually(
                lambda: min(path["lost"] for path in near.remote()["paths"]) > 0.3, "a third of all answers lost"
            )
            assert near.remote()["moves"] == {}
            assert near.blocks() == [16, 16, 16, 16]
        finally:
            for port in ANSWER_SOURCE_PORTS:
                near.ofctl("del-flows", answers(port), option="--strict")
            near.ofctl("del-meter", "meter=1")


def test_a_killed_agent_leaves_the_flows_and_the_next_one_moves_nothing_and_obeys_its_pin(
    lab: FabricLab, tmp_path: Path
) -> None:
    with agents(lab, tmp_path) as (near, _):
        ports = [path["port"] for path in near.remote()["paths"]]
        try:
            near.client.ask("paths/pin", {"remote": REMOTE, "path": "p3"})
            eventually(lambda: near.blocks() == [0, 0, 64, 0], "all blocks on p3")
            before = near.block_flows()
            near.end(signal.SIGKILL)
            assert near.block_flows() == before
            near.start()
            near.wait_until_good()
            assert [path["port"] for path in near.remote()["paths"]] == ports
            assert (near.blocks(), near.block_flows()) == ([0, 0, 64, 0], before)
            assert sum(near.remote()["moves"].values()) == 0
        finally:
            near.client.ask("paths/pin", {"remote": REMOTE})
        eventually(lambda: near.blocks() == [16, 16, 16, 16], "all blocks at home")
