"""A run of all tests tries cases with daemons again, once and alone; what it prints at its end says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_SOUND = "def test_sound(): pass\n"
_BROKEN = "def test_broken(): assert 1 == 2\n"
_BESIDE = """
from pathlib import Path

def test_{name}():
    tries = Path({directory!r}) / "{name}"
    with tries.open("a") as file:
        file.write("x")
    assert tries.read_text() == "xx"
"""


class Suite:
    """Tests in a directory of their own. `tries`: how often a case that fails the first time alone ran, by its name."""

    def __init__(self, root: Path) -> None:
        self.root, self._counts = root, root / "counts"
        self._counts.mkdir()

    def add(self, part: str, name: str, text: str = _BESIDE) -> None:
        path = self.root / "tests" / part / f"test_{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text if text != _BESIDE else text.format(name=name, directory=str(self._counts)))

    def run(self) -> tuple[int, list[str]]:
        argv = [sys.executable, "-m", "pytest", "-p", "xdist", "-n", "1", "-p", "tests.whole_run", "-ra"]
        argv += ["--import-mode=importlib", "--rootdir", str(self.root), "tests"]
        done = subprocess.run(argv, cwd=self.root, capture_output=True, text=True)
        return done.returncode, done.stdout.splitlines()

    @property
    def tries(self) -> dict[str, int]:
        return {path.name: path.stat().st_size for path in self._counts.iterdir()}


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Suite:
    monkeypatch.setenv("PYTHONPATH", str(_ROOT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    made = Suite(tmp_path)
    made.add("unit", "sound", _SOUND)
    return made


def test_a_case_with_daemons_that_passes_alone_is_listed_and_the_run_passes(suite: Suite) -> None:
    suite.add("ovs", "busy")
    status, lines = suite.run()
    (listed,) = (line for line in lines if line.startswith("passed alone, failed beside others: "))
    assert "tests/ovs/test_busy.py::test_busy" in listed
    assert "2 passed in" in lines[-1]
    assert "failed" not in lines[-1]
    assert (status, suite.tries) == (0, {"busy": 2})
    kept = (suite.root / ".pytest_cache/passed-alone.txt").read_text()
    assert kept.startswith("tests/ovs/test_busy.py::test_busy\n")
    assert "assert 'x' == 'xx'" in kept


def test_what_fails_twice_is_red_and_so_is_a_unit_test_that_fails_once(suite: Suite) -> None:
    suite.add("ovs", "broken", _BROKEN)
    suite.add("browser", "busy")
    suite.add("unit", "chance")
    status, lines = suite.run()
    assert status == pytest.ExitCode.TESTS_FAILED
    assert "2 failed, 2 passed in" in lines[-1]
    failed = {line.split()[1] for line in lines if line.startswith("FAILED ")}
    assert failed == {"tests/ovs/test_broken.py::test_broken", "tests/unit/test_chance.py::test_chance"}
    assert suite.tries == {"busy": 2, "chance": 1}


def test_more_than_three_that_fail_beside_others_are_red(suite: Suite) -> None:
    for number in range(4):
        suite.add("ovs", f"busy{number}")
    status, lines = suite.run()
    assert status == pytest.ExitCode.TESTS_FAILED
    assert "4 failed, 1 passed in" in lines[-1]


def test_cases_that_fail_for_one_reason_are_tried_together(suite: Suite) -> None:
    """One scenario that failed beside others made nine cases red, and none was tried again."""
    text = _BESIDE.format(name="machine", directory=str(suite.root / "counts")).replace("def test_", "def record_")
    text = f"import pytest\n{text}\n@pytest.fixture(scope='session')\ndef record(): record_machine()\n"
    text += "@pytest.mark.parametrize('number', range(5))\ndef test_of(record, number): pass\n"
    suite.add("nic", "machine", text)
    status, lines = suite.run()
    assert "6 passed in" in lines[-1]
    assert len([line for line in lines if line.startswith("passed alone, failed beside others: ")]) == 5
    assert (status, suite.tries) == (0, {"machine": 2})


def test_a_scenario_is_one_reason_whatever_its_tests_say(suite: Suite) -> None:
    """A canary that was not ready made four tests red with four texts, and none was tried again."""
    text = "import pytest\n@pytest.fixture(autouse=True)\ndef part(record_property): record_property('scenario', 'x')\n"
    text += _BESIDE.format(name="fleet", directory=str(suite.root / "counts")).replace("def test_", "def record_")
    text += "@pytest.fixture(scope='session')\ndef found():\n"
    text += "    try: record_fleet()\n    except AssertionError: return 1\n"
    text += "@pytest.mark.parametrize('number', range(1, 6))\n"
    text += "def test_of(found, number): assert not found, f'text {number}'\n"
    suite.add("nic", "fleet", text)
    status, lines = suite.run()
    assert (status, "6 passed in" in lines[-1]) == (0, True)
