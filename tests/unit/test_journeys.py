"""Which files `make journeys` counts: those whose functions run, and not because of an import."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from threading import Thread

import pytest

from scripts.journeys import Profile

FILES = {
    "called": "def run(): pass",
    "resumed": "async def run(waiting): await waiting",
    "imported": "def make(): return 1\nVALUE = make()",
    "body": "class Body:\n    value = [each for each in range(3)][0]",
    "generated": "from dataclasses import dataclass\n@dataclass\nclass Generated:\n    value: int",
    "lazy": "def run():\n    from counted import imported",
}


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Profile:
    package = tmp_path / "counted"
    package.mkdir()
    for name, text in {"__init__": "", **FILES}.items():
        (package / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "counted"]:
        monkeypatch.delitem(sys.modules, name)
    return Profile(package)


def counted(profile: Profile, action: Callable[[], object]) -> set[str]:
    profile.is_counting = True
    with profile.installed():
        action()
    return {Path(file).stem for file in profile.files}


def test_a_function_counts(profile: Profile) -> None:
    assert counted(profile, lambda: import_module("counted.called").run()) == {"called"}


def test_a_function_in_another_thread_counts(profile: Profile) -> None:
    run = import_module("counted.called").run

    def in_thread() -> None:
        thread = Thread(target=run)
        thread.start()
        thread.join()

    assert counted(profile, in_thread) == {"called"}


def test_a_coroutine_that_goes_on_counts(profile: Profile) -> None:
    class Waiting:
        def __await__(self):  # type: ignore[no-untyped-def]
            yield

    coroutine = import_module("counted.resumed").run(Waiting())
    coroutine.send(None)

    def go_on() -> None:
        with suppress(StopIteration):
            coroutine.send(None)

    assert counted(profile, go_on) == {"resumed"}


@pytest.mark.parametrize("name", ["imported", "body", "generated"])
def test_an_import_does_not_count(profile: Profile, name: str) -> None:
    assert counted(profile, lambda: import_module(f"counted.{name}")) == set()


def test_an_import_inside_a_function_does_not_count(profile: Profile) -> None:
    assert counted(profile, lambda: import_module("counted.lazy").run()) == {"lazy"}


def test_a_generated_method_does_not_count(profile: Profile) -> None:
    generated = import_module("counted.generated").Generated
    assert counted(profile, lambda: generated(1) == generated(2)) == set()


def test_nothing_counts_before_the_journey(profile: Profile) -> None:
    with profile.installed():
        import_module("counted.called").run()
    assert profile.files == set()


def test_one_dump_line_reaches_the_command_line() -> None:
    """A journey in a process of its own, as `make journeys` runs it."""
    root = Path(__file__).parents[2]
    argv = [sys.executable, str(root / "scripts" / "journeys.py"), "--run", "dump-line"]
    output = subprocess.run(argv, cwd=root, stdout=subprocess.PIPE, check=True, text=True).stdout
    assert '"xenoovs/cli/verify_offload.py"' in output
    assert '"xenoovs/cli/apply.py"' not in output
