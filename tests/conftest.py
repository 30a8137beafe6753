"""What holds for all tests: hypothesis measures no time, and golden files are written anew on request."""

from __future__ import annotations

import signal

import pytest
from hypothesis import settings

from tests.command_line import CommandLine

# A slow machine is no mistake of the code: time is measured by `make bench`, as ratios.
settings.register_profile("xenoovs", deadline=None, print_blob=True)
settings.load_profile("xenoovs")

# What a shell starts in the background ignores ctrl-c, and so would all that the tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="Write the golden files of flows/ anew instead of comparing them; read the difference before you commit.",
    )


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture
def xenoovs(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """The command line, in this process."""
    return CommandLine(capsys)
