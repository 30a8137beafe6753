"""kill -9 of the agent at any moment, 200 times, while weights change: one program or the other, never a mixture."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.ovs.dummy import DummyBridge
from tests.ovs.nest import Nest
from tests.ovs.programs import WEIGHTS, flows, text, whole_programs
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.ovs

KILLS = 200


def time_to_change(nest: Nest, bridge: DummyBridge) -> float:
    """Seconds from the start of an agent to other flows, on this machine as it is now."""
    before, begun_s = flows(bridge), time.monotonic()
    pid = nest.start()
    while flows(bridge) == before:
        assert time.monotonic() < begun_s + PATIENCE_S
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    return time.monotonic() - begun_s


# Two hundred starts of an agent take a minute, and an hour is far longer than a slow machine needs.
@pytest.mark.timeout(3600)
def test_killed_200_times_while_weights_change(bridge: DummyBridge, config: Path) -> None:
    allowed = whole_programs(bridge, config)
    chance, seen = random.Random(4), Counter[int]()
    nest = Nest("agent", config, "--db", bridge.ovs.db)
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
