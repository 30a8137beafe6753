"""A round that does not end, because Open vSwitch stopped in the middle of a reply."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from tests.agent_support import Scene, make_scene
from tests.fake_switch import FakeSwitch, fake_bridge
from tests.patience import PATIENCE_S, eventually
from xenoovs.agent import daemon
from xenoovs.openflow.flow import OURS, Cookies


class Stopping(FakeSwitch):
    """Its dumps wait for `goes_on`."""

    def __init__(self) -> None:
        super().__init__(fake_bridge("ovsbr1", ["p0", "p1"]))
        self.goes_on = Event()
        self.goes_on.set()

    def dump_flow_text(self, bridge: str, *, only: Cookies = OURS) -> str:
        self.goes_on.wait(PATIENCE_S)
        return super().dump_flow_text(bridge, only=only)


@pytest.fixture
def switch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stopping]:
    monkeypatch.setattr(daemon, "_LATE_S", 0.2)
    switch = Stopping()
    yield switch
    switch.goes_on.set()


def test_it_is_reported_and_no_request_waits_for_it(tmp_path: Path, switch: Stopping) -> None:
    scene = Scene(tmp_path, switch)
    scene.config.write_text(make_scene(tmp_path).config.read_text())
    with scene.agent() as (agent, client):
        switch.goes_on.clear()
        answer = client.ask("drain", {"service": "dns", "backend": "fips3"})
        assert not answer["is_applied"]
        assert "reconciling bridge ovsbr1 is not finished after 200ms" in answer["message"]
        assert "is not finished" in client.ask("status")["snapshot"]["last_error"]
        switch.goes_on.set()
        eventually(lambda: not agent.report.last_error, "the round is finished")
        assert client.ask("drain", {"service": "dns", "backend": "fips3"})["is_applied"]
