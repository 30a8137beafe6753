"""Settings of all tests: hypothesis has no deadline, --update-golden rewrites golden files, long tests are named."""

from __future__ import annotations

import os
import re
import signal
import uuid
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.command_line import CommandLine

# `make bench` measures time, as ratios; tests do not, nor how long examples take to draw.
settings.register_profile(
    "xenoovs", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow], max_examples=70
)
settings.register_profile("long", settings.get_profile("xenoovs"), max_examples=5000)
settings.load_profile("xenoovs")

# A shell's background jobs ignore ctrl-c, and so would all processes that the tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# libuuid keeps a file open for each thread that asks it (get_clock() of libuuid/src/gen_uuid.c), as the threads of a
# store's clients do: commands in this process would leave hundreds.
uuid._generate_time_safe = None  # type: ignore[attr-defined]

# Programs that tests start import this checkout, as the tests do, and not the one that is installed.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH"))))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="Write the golden files of flows/ instead of comparing them; read the difference before you commit.",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect long tests unless `-m` names their marker."""
    is_named = re.search(r"\blong\b", str(config.option.markexpr)) is not None
    long = [] if is_named else [item for item in items if item.get_closest_marker("long")]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture
def xenoovs(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """The command line, in this process."""
    return CommandLine(capsys)
