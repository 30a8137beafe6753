"""One boot of the virtual machine for all tests of a run, however many processes share them."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.nic.recorded import Story
from tests.nic.vm import PARTS, record_all


def pytest_configure(config: pytest.Config) -> None:
    """Tell pytest the marker of this directory."""
    config.addinivalue_line("markers", "nic: boots the emulated NIC (as root, for minutes); never skips")


@pytest.fixture(scope="session")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The record of every part (tests/nic/vm.py), by name. `NIC_RECORDS`: an earlier result.json in place of a boot."""
    if "NIC_RECORDS" in os.environ:
        return _load(Path(os.environ["NIC_RECORDS"]))
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    with (shared / "nic.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = shared / "nic" / "result.json"
        return _load(result) if result.exists() else record_all(PARTS, _new(shared / "nic"))


@pytest.fixture
def story(records: dict[str, dict[str, Any]], request: pytest.FixtureRequest) -> Story:
    """The scenario that the test is named after: test_NAME or test_NAME__more, or the parameter."""
    name = getattr(request, "param", None) or request.node.name.removeprefix("test_").partition("__")[0]
    return Story(name, records[name])


def _load(result: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(result.read_text())
    return found


def _new(directory: Path) -> Path:
    # Another process may have failed here; each makes its own attempt and has its own message.
    if directory.exists():
        directory.rename(directory.with_name(f"nic-failed-before-{os.getpid()}"))
    return directory
