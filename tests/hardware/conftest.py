"""The tests of this directory run when `-m` names their marker, and are deselected otherwise; they never skip."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hardware.options import Options, add_options, read_options
from tests.hardware.rig import Rig, running_rig

_OPTIONS = pytest.StashKey[Options]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where this directory is named on the command line; else the options do not exist."""
    add_options(parser)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests that were not named; check the machine before the first test. Raises UsageError."""
    asked = re.search(r"\bhardware\b", str(config.option.markexpr)) is not None
    may_change = bool(config.getoption("--change-settings", default=False))
    left_out = [item for item in items if not _wanted(item, asked=asked, may_change=may_change)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    if any(item.get_closest_marker("hardware") for item in items) and not config.option.collectonly:
        config.stash[_OPTIONS] = read_options(lambda name: config.getoption(name, default=None))


def _wanted(item: pytest.Item, *, asked: bool, may_change: bool) -> bool:
    marker = item.get_closest_marker("hardware")
    return marker is None or (asked and (may_change or not marker.kwargs.get("changes_settings")))


@pytest.fixture(scope="session")
def options(pytestconfig: pytest.Config) -> Iterator[Options]:
    """What the operator has named. Meanwhile SIGTERM ends the run as Ctrl-C does, so that all is put back."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    yield pytestconfig.stash[_OPTIONS]
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For the config. Not tmp_path, which fails at the end of a test that Ctrl-C has hit while it was set up."""
    return tmp_path_factory.mktemp("hardware")


@pytest.fixture
def rig(options: Options, directory: Path) -> Iterator[Rig]:
    """A bridge for this test with both ports on it and the blocks of three backends."""
    with running_rig(options, directory) as made:
        yield made
