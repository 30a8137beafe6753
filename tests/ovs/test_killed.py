"""kill -9 of an agent or a controller over a whole change of weights: one program or the other, never a mixture."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.command_line import SMALL_CONFIG, finish, start
from tests.ovs.dummy import DummyBridge
from tests.patience import eventually

WEIGHTS = (30, 50)
MEASURED = 10
"""One kill in so many comes at the change itself, and measures how long it takes on this machine as it is now."""


@pytest.mark.parametrize("kills", [10, pytest.param(50, marks=pytest.mark.long)])
@pytest.mark.parametrize("words", [("agent",), ("controller", "--attach")], ids=lambda words: words[0])
def test_killed_while_weights_change(bridge: DummyBridge, config: Path, words: tuple[str, ...], kills: int) -> None:
    """Each kill is at another part of the time from the start of a process to well after its change."""

    def begin(weight: int, *options: str) -> subprocess.Popen[str]:
        config.write_text(SMALL_CONFIG.replace("weight: 30", f"weight: {weight}"))
        return start(words[0], config, "--db", bridge.ovs.db, *words[1:], *options)

    def flows() -> tuple[str, ...]:
        return tuple(sorted(bridge.dump_flows(version="OpenFlow14")))

    allowed = {}
    for weight in (*WEIGHTS, *WEIGHTS):
        assert finish(begin(weight, "--once")).status == 0
        allowed[flows()] = weight
    assert sorted(allowed.values()) == sorted(WEIGHTS)
    is_changed, longest_s = Counter[bool](), 0.0
    for number in range(-1, kills):
        before = flows()
        (wanted,) = {*WEIGHTS} - {allowed[before]}
        begun_s, process = time.monotonic(), begin(wanted)
        # The first one waits for imports: its time is not used.
        if number < 0 or number % MEASURED == 0:
            eventually(lambda before=before: flows() != before, "other flows")  # type: ignore[misc]
            longest_s = 1.5 * (time.monotonic() - begun_s)
        else:
            time.sleep(longest_s * (number * 7 % kills) / kills)
        process.kill()
        process.communicate()
        is_changed[allowed[flows()] == wanted] += 1
    assert is_changed.total() == kills + 1
    assert is_changed.keys() == {False, True}
