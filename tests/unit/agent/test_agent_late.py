"""A round that does not end, because Open vSwitch stopped in the middle of a reply."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent_support import Scene, make_scene
from tests.fake_switch import HangingSwitch
from tests.patience import eventually
from xenoovs.agent import daemon


@pytest.fixture
def switch(monkeypatch: pytest.MonkeyPatch) -> Iterator[HangingSwitch]:
    monkeypatch.setattr(daemon, "_LATE_S", 0.2)
    switch = HangingSwitch()
    yield switch
    switch.goes_on.set()


def test_it_is_reported_and_no_request_waits_for_it(tmp_path: Path, switch: HangingSwitch) -> None:
    scene = Scene(tmp_path, switch)
    scene.config.write_text(make_scene(tmp_path).config.read_text())
    with scene.agent() as (agent, client):
        switch.goes_on.clear()
        answer = client.ask("drain", {"service": "dns", "backend": "fips3"})
        assert not answer["is_applied"]
        assert "reconciling bridge ovsbr1 is not finished after 200ms" in answer["message"]
        assert "is not finished" in client.ask("status")["snapshot"]["last_error"]
        switch.goes_on.set()
        eventually(lambda: not agent.state.round.error, "the round is finished")
        assert client.ask("drain", {"service": "dns", "backend": "fips3"})["is_applied"]
