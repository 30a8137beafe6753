"""A switch in memory, and a directory for an agent on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent_support import Scene, make_scene
from tests.fake_switch import FakeSwitch, fake_bridge


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return make_scene(tmp_path)


@pytest.fixture
def switch() -> FakeSwitch:
    return FakeSwitch(fake_bridge("ovsbr1", ["p0", "p1"]))
