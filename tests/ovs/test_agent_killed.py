"""kill -9 of the agent at moments over a whole change of weights: one program or the other, never a mixture."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from tests.command_line import start
from tests.ovs.dummy import DummyBridge
from tests.ovs.programs import WEIGHTS, flows, text, whole_programs
from tests.patience import eventually

MEASURED = 10
"""One kill in so many comes at the change itself, and measures how long it takes on this machine as it is now."""


def kill_at_change(bridge: DummyBridge, config: Path) -> float:
    """Kill an agent as soon as the flows are others; return the seconds from its start to then."""
    before, begun_s = flows(bridge), time.monotonic()
    process = start("agent", config, "--db", bridge.ovs.db)
    eventually(lambda: flows(bridge) != before, "other flows")
    process.kill()
    process.communicate()
    return time.monotonic() - begun_s


@pytest.mark.parametrize("kills", [10, pytest.param(50, marks=pytest.mark.long)])
def test_killed_while_weights_change(bridge: DummyBridge, config: Path, kills: int) -> None:
    """Each kill is at another part of the time from the start of an agent to well after its change."""
    allowed = whole_programs(bridge, config)
    is_changed = Counter[bool]()
    weight, longest_s = allowed[flows(bridge)], 0.0
    for number in range(-1, kills):
        (wanted,) = {*WEIGHTS} - {weight}
        config.write_text(text(wanted))
        # The first agent waits for imports: its time is not used.
        if number < 0 or number % MEASURED == 0:
            longest_s = 1.5 * kill_at_change(bridge, config)
        else:
            process = start("agent", config, "--db", bridge.ovs.db)
            time.sleep(longest_s * (number * 7 % kills) / kills)
            process.kill()
            process.communicate()
        weight = allowed[flows(bridge)]
        is_changed[weight == wanted] += 1
    assert is_changed.total() == kills + 1
    assert is_changed.keys() == {False, True}
