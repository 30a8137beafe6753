"""Settings of all tests: hypothesis has no deadline, and --update-golden rewrites golden files."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

from tests.command_line import CommandLine

# `make bench` measures time, as ratios; tests do not.
settings.register_profile("xenoovs", deadline=None, print_blob=True)
settings.load_profile("xenoovs")

# A shell's background jobs ignore ctrl-c, and so would all processes that the tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Programs that tests start import this checkout, as the tests do, and not the one that is installed.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH"))))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="Write the golden files of flows/ instead of comparing them; read the difference before you commit.",
    )


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture
def xenoovs(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """The command line, in this process."""
    return CommandLine(capsys)
