"""A directory for an agent, and a switch in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent_support import Scene, make_scene


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return make_scene(tmp_path)
