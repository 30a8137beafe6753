"""One recording for all tests of a run: each test waits for its own part alone."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.nic.guest.catalogue import LONG
from tests.nic.recorded import Story
from tests.nic.vm import HARDWARE, LAB, PARTS, Record, Recording
from tests.whole_run import SCENARIO


def _part_of(item: Any) -> str | None:
    """The part that a test is about: its parameter `story`, else NAME of test_NAME or test_NAME__more."""
    for part in (LAB, HARDWARE):
        if part in item.fixturenames:
            return part
    if "story" not in item.fixturenames:
        return None
    chosen = getattr(item, "callspec", None)
    name: str = item.originalname.removeprefix("test_").partition("__")[0]
    return chosen.params.get("story", name) if chosen else name


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the recording, and order them as the records come."""
    here = [item for item in items if item.path.is_relative_to(Path(__file__).parent) and _part_of(item)]
    for item in here:
        item.add_marker(pytest.mark.nic)
        # The recording has limits of its own, one for each part.
        item.add_marker(pytest.mark.timeout(0))
        item.user_properties.append((SCENARIO, _part_of(item)))
        if _part_of(item) in LONG:
            item.add_marker(pytest.mark.long)
    order = {part: number for number, part in enumerate(PARTS, start=1)}
    position = {item: order[str(_part_of(item))] for item in here}
    items.sort(key=lambda item: position.get(item, 0))


@pytest.fixture(scope="session")
def recorded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Record]]:
    """Return the record of a part, as soon as it is complete. `NIC_RECORDS`: a directory of earlier ones."""
    if "NIC_RECORDS" in os.environ:
        directory = Path(os.environ["NIC_RECORDS"])
        yield lambda part: json.loads((directory / f"{part}.json").read_text())
        return
    parts = {part for item in request.session.items if item.get_closest_marker("nic") and (part := _part_of(item))}
    items: list[Any] = request.session.items
    rows = [item.callspec.params["row"] for item in items if getattr(item, "originalname", "") == "test_row"]
    with Recording(parts, tmp_path_factory.mktemp("nic") / "records", rows=rows) as recording:
        yield recording.record


@pytest.fixture
def record(recorded: Callable[[str], Record], request: pytest.FixtureRequest) -> Record:
    """The record of the part that the test is about (tests/nic/vm.py)."""
    record = recorded(str(_part_of(request.node)))
    if error := record.get("error"):
        pytest.fail(error, pytrace=False)
    return record


@pytest.fixture
def story(record: Record, request: pytest.FixtureRequest) -> Story:
    """The scenario that the test is about."""
    return Story(str(_part_of(request.node)), record)


@pytest.fixture
def lab(record: Record) -> Record:
    """The steps of tests/nic/test_lab.py, each of which asserts."""
    return record


@pytest.fixture
def hardware(record: Record) -> Record:
    """`outcomes`, `failures`, `refusals`, `before` and `after` (tests/nic/guest/hardware.py)."""
    return record
