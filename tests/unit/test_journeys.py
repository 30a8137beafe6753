"""Which files `make journeys` counts: those whose functions run, and not because of an import."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from scripts.journeys import Profile, files_of

FILES = {
    "called": "def run(): pass",
    "resumed": "async def run(waiting): await waiting",
    "imported": "def make(): return 1\nVALUE = make()",
    "body": "class Body:\n    value = [each for each in range(3)][0]",
    "generated": "from dataclasses import dataclass\n@dataclass\nclass Generated:\n    value: int",
    "lazy": "def run():\n    from counted import imported",
}


class Waiting:
    def __await__(self):  # type: ignore[no-untyped-def]
        yield


def _in_thread(run: Callable[[], object]) -> None:
    thread = Thread(target=run)
    thread.start()
    thread.join()


def _begun(module: Any) -> Any:
    coroutine = module.run(Waiting())
    coroutine.send(None)
    return coroutine


@pytest.mark.parametrize(
    ("name", "prepare", "action", "counted"),
    [
        ("called", lambda module: module.run, lambda run: run(), {"called"}),
        ("called", lambda module: module.run, _in_thread, {"called"}),
        ("resumed", _begun, lambda coroutine: next(coroutine.__await__(), None), {"resumed"}),
        ("generated", lambda module: module.Generated, lambda kind: kind(1) == kind(2), set()),
        ("lazy", lambda module: module.run, lambda run: run(), {"lazy"}),
        *((name, None, lambda module: import_module(f"counted.{module}"), set()) for name in FILES),
    ],
    ids=["function", "thread", "coroutine", "generated method", "import inside", *(f"import {name}" for name in FILES)],
)
def test_functions_count_and_imports_do_not(
    name: str, prepare: Any, action: Any, counted: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "counted"
    package.mkdir()
    for file, text in {"__init__": "", **FILES}.items():
        (package / f"{file}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    for module in [module for module in sys.modules if module.partition(".")[0] == "counted"]:
        monkeypatch.delitem(sys.modules, module)
    profile = Profile(package)
    with profile.installed():
        # Nothing counts before the journey.
        prepared = prepare(import_module(f"counted.{name}")) if prepare else name
        profile.is_counting = True
        action(prepared)
    assert {Path(file).stem for file in profile.files} == counted


def test_one_dump_line_reaches_the_command_line() -> None:
    """A journey in a process of its own, as `make journeys` runs it."""
    files = files_of("dump-line", Path(__file__).parents[2])
    assert ("xenoovs/cli/verify_offload.py" in files, "xenoovs/cli/apply.py" in files) == (True, False)
