"""kill -9 of either side, again and again, while weights change: one program or the other, never a mixture."""

from __future__ import annotations

import random
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command_line import start
from tests.ovs.dummy import DummyBridge, DummyOvs, kill_and_start_vswitchd
from tests.ovs.programs import WEIGHTS, Flows, flows, text, whole_programs
from tests.ovs.ways import free_port, live_switch
from tests.patience import eventually
from xenoovs.switch.vsctl import attach, quicken

KILLS = pytest.mark.parametrize("kills", [5, pytest.param(25, marks=pytest.mark.long)])


class Controllers:
    """Of one bridge, one after the other, all at the same address. `allowed`: flows of whole programs, and weights."""

    def __init__(self, config: Path, bridge: DummyBridge, *, address: str, allowed: dict[Flows, int]) -> None:
        self._argv = ("controller", config, "--db", bridge.ovs.db, "--listen", address, "--log", "json")
        self.bridge, self.target, self.allowed = bridge, f"tcp:{address}", allowed
        self._process: subprocess.Popen[str] | None = None

    def start_and_connect(self) -> None:
        """One more, until the bridge has connected to it."""
        self._process = start(*self._argv)
        assert self._process.stderr is not None
        assert any('"event": "bridge connected"' in line for line in self._process.stderr)

    def fill(self) -> None:
        """The first one. From then on the bridge asks every second for one that is gone."""
        self.start_and_connect()
        quicken(live_switch(self.bridge.ovs).endpoint, target=self.target)
        eventually(self.is_filled, "the first flows")

    def kill(self) -> None:
        assert self.is_alive()
        self.end()

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def is_filled(self) -> bool:
        """False while there are no flows at all. Fails for a mixture."""
        found = flows(self.bridge)
        return found != () and self.allowed[found] in WEIGHTS

    def weight(self) -> int:
        """That of the program on the bridge. Fails for a mixture, and for an empty table."""
        return self.allowed[flows(self.bridge)]


@pytest.fixture
def controllers(own_ovs: DummyOvs, config: Path) -> Iterator[Controllers]:
    """None runs yet. The bridge is told where they will be; without one it keeps the flows that it has."""
    address = f"127.0.0.1:{free_port()}"
    with own_ovs.bridge() as bridge:
        made = Controllers(config, bridge, address=address, allowed=whole_programs(bridge, config))
        attach(live_switch(bridge.ovs).endpoint, bridge.name, target=made.target)
        try:
            yield made
        finally:
            made.end()


@KILLS
def test_the_controller_killed_while_weights_change(controllers: Controllers, config: Path, kills: int) -> None:
    """Each is killed around the moment at which it changes the flows."""
    chance, seen, span_s = random.Random(5), Counter[int](), 0.0
    controllers.fill()
    for number in range(kills):
        controllers.kill()
        seen[controllers.weight()] += 1
        wanted = WEIGHTS[(number + 1) % 2]
        config.write_text(text(wanted))
        controllers.start_and_connect()
        if number % 3:
            time.sleep(chance.uniform(0, span_s))
        else:
            begun_s = time.monotonic()
            eventually(lambda: controllers.weight() == wanted, "the change")  # noqa: B023
            span_s = 1.5 * (time.monotonic() - begun_s)
    eventually(lambda: controllers.weight() == wanted, "the last change")
    assert seen.total() == kills
    assert seen.keys() == set(WEIGHTS)


@KILLS
def test_the_switch_killed_while_weights_change(controllers: Controllers, config: Path, kills: int) -> None:
    """It begins with an empty table, and has a whole program next."""
    chance = random.Random(6)
    controllers.fill()
    for number in range(kills):
        wanted = WEIGHTS[(number + 1) % 2]
        config.write_text(text(wanted))
        time.sleep(chance.uniform(0, 0.3))
        controllers.weight()
        kill_and_start_vswitchd(controllers.bridge.ovs)
        eventually(controllers.is_filled, "the flows are back")
    eventually(lambda: controllers.weight() == wanted, "the last change")
    assert controllers.is_alive()
