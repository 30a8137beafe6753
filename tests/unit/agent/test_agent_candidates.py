"""A config that waits or was refused is named in the status, with the time that is left or the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent_support import Scene, make_scene
from tests.patience import eventually
from xenoovs.errors import SwitchUnreachable
from xenoovs.show.conditions import is_as_desired, troubles


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return make_scene(tmp_path)


def test_a_refused_config_is_named_with_its_reason(scene: Scene) -> None:
    with scene.agent() as (agent, _):
        good = agent.config.digest
        scene.edit("weight: 70", "weight: -1")
        eventually(lambda: bool(agent.snapshot().config_problem), "the config is refused")
        shown = agent.snapshot()
        assert (shown.candidate not in ("", good), is_as_desired(shown)) == (True, False)
        (words,) = [text for text, _ in troubles(shown)]
        assert words.startswith(f"config {shown.candidate} is rejected, {good} stays in use: ")
        assert "weight: -1" in words
        scene.edit("weight: -1", "weight: 60")
        eventually(lambda: agent.reloader.reloads == 1, "a valid config is accepted")
        assert (agent.snapshot().candidate, is_as_desired(agent.snapshot())) == ("", True)


def test_a_config_to_be_confirmed_is_named_with_the_one_that_would_come_back(scene: Scene) -> None:
    with scene.agent(confirm_s=60) as (agent, client):
        good = agent.config.digest
        scene.edit("weight: 70", "weight: 50")
        eventually(lambda: agent.snapshot().confirm_by_s is not None, "the config waits for its confirmation")
        shown = agent.snapshot()
        assert (shown.rolls_back_to, shown.candidate, is_as_desired(shown)) == (good, "", True)
        (words,) = [text for text, _ in troubles(shown)]
        assert words.startswith("run `xenoovs confirm` within ")
        assert words.endswith(f", or config {agent.config.digest} is rolled back to {good}")
        client.ask("confirm")
        assert (list(troubles(agent.snapshot())), agent.snapshot().rolls_back_to) == ([], "")


def test_a_config_that_waits_for_the_switch_is_named(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object, **__: object) -> str:
        raise SwitchUnreachable(target="unix:/db.sock", reason="Connection refused")

    with scene.agent() as (agent, _):
        good = agent.config.digest
        monkeypatch.setattr(scene.switch, "dump_flow_text", away)
        scene.edit("weight: 70", "weight: 50")
        eventually(lambda: agent.snapshot().candidate != "", "the candidate is shown")
        shown = agent.snapshot()
        words = f"config {shown.candidate} is pending, {good} is in use"
        assert words in [text for text, _ in troubles(shown)]
        assert not is_as_desired(shown)
