"""Tests on a NIC run only if they are named, and then missing options are reported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_REPOSITORY = Path(__file__).parents[2]


def _pytest(*arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/hardware", *arguments]
    return subprocess.run(argv, cwd=_REPOSITORY, capture_output=True, text=True, check=False)


def test_deselected_unless_named_also_where_another_marker_is() -> None:
    done = _pytest("-m", "not nic")
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED
    assert " deselected" in done.stdout


def test_one_sentence_when_options_are_missing() -> None:
    done = _pytest("-m", "hardware", "--p0", "p0")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "ERROR: the hardware tests need --p1, --client-interface, --server-interface: " in done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_one_sentence_when_a_port_does_not_exist() -> None:
    done = _pytest(
        *("-m", "hardware", "--p0", "nosuch", "--p1", "p1", "--client-interface", "a", "--server-interface", "b")
    )
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "ERROR: there is no network device nosuch: " in done.stderr
