"""kill -9 of the agent at any moment, 200 times, while weights change: one program or the other, never a mixture."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.command_line import SMALL_CONFIG, finish, start
from tests.ovs.dummy import DummyBridge
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.ovs

KILLS = 200
WEIGHTS = (30, 50)


def text(weight: int) -> str:
    return SMALL_CONFIG.replace("weight: 30", f"weight: {weight}")


def flows(bridge: DummyBridge) -> tuple[str, ...]:
    return tuple(sorted(bridge.dump_flows(version="OpenFlow14")))


def whole_programs(bridge: DummyBridge, config: Path) -> dict[tuple[str, ...], int]:
    """What the bridge has after a change to each weight that nobody disturbs. Each finds the other before it."""
    found = {}
    for weight in (*WEIGHTS, *WEIGHTS):
        config.write_text(text(weight))
        assert finish(start("agent", config, "--db", bridge.ovs.db, "--once")).status == 0
        found[flows(bridge)] = weight
    assert sorted(found.values()) == sorted(WEIGHTS)
    return found


class Nest:
    """Brings forth agents."""

    def __init__(self, bridge: DummyBridge, config: Path) -> None:
        argv = [sys.executable, "-m", "tests.ovs.forking_agent", str(config), "--db", bridge.ovs.db]
        pipe, null = subprocess.PIPE, subprocess.DEVNULL
        self._process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=null, text=True, start_new_session=True)

    def start(self) -> int:
        """The pid of one more."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())

    def close(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()


def time_to_change(nest: Nest, bridge: DummyBridge) -> float:
    """Seconds from the start of an agent to other flows, on this machine as it is now."""
    before, begun_s = flows(bridge), time.monotonic()
    pid = nest.start()
    while flows(bridge) == before:
        assert time.monotonic() < begun_s + PATIENCE_S
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    return time.monotonic() - begun_s


# Two hundred starts of an agent take a minute, and a loaded machine some more.
@pytest.mark.timeout(900)
def test_killed_200_times_while_weights_change(bridge: DummyBridge, config: Path) -> None:
    allowed = whole_programs(bridge, config)
    chance, seen = random.Random(4), Counter[int]()
    nest = Nest(bridge, config)
    try:
        config.write_text(text(WEIGHTS[0]))
        longest_s = 1.5 * time_to_change(nest, bridge)
        for number in range(KILLS):
            config.write_text(text(WEIGHTS[number % 2]))
            pid = nest.start()
            time.sleep(chance.uniform(0, longest_s))
            os.kill(pid, signal.SIGKILL)
            seen[allowed[flows(bridge)]] += 1
    finally:
        nest.close()
    assert seen.total() == KILLS
    assert min(seen[weight] for weight in WEIGHTS) > 0
