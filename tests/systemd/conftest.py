"""One boot of a machine under systemd, and one story, for all tests."""

from __future__ import annotations

import pytest

from tests.machines import install_packages
from tests.systemd.install import install
from tests.systemd.machine import booted
from tests.systemd.story import StepOutput, Story


@pytest.fixture(scope="session")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, StepOutput]:
    """The outputs of the steps by name (tests/systemd/story.py)."""
    install_packages()
    place = tmp_path_factory.mktemp("systemd")
    directories = [place / name for name in ("install", "machine", "story")]
    for directory in directories:
        directory.mkdir()
    with booted(directories[1], install(directories[0])) as machine:
        return Story(machine, directories[2]).run()
