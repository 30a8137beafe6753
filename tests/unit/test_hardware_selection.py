"""Tests on a NIC run only if they are named, and then missing options are reported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.hardware.options import read_options

_REPOSITORY = Path(__file__).parents[2]


def test_deselected_unless_named_also_where_another_marker_is() -> None:
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/hardware", "-m", "not nic"]
    done = subprocess.run(argv, cwd=_REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED
    assert " deselected" in done.stdout


@pytest.mark.parametrize(
    ("named", "reason"),
    [
        ({}, "the hardware tests need --p1, --client-interface, --server-interface: "),
        ({"--p1": "p1", "--client-interface": "a", "--server-interface": "b"}, "there is no network device nosuch: "),
    ],
)
def test_one_sentence_when_options_are_missing_or_a_port_does_not_exist(named: dict[str, str], reason: str) -> None:
    options = {"--p0": "nosuch", "--bridge": "xenoovs-test", **named}
    with pytest.raises(pytest.UsageError, match=f"^{reason}"):
        read_options(options.get)
