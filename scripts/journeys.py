"""`make journeys`: how many files of `xenoovs/` run on each of three journeys, counted by a profiler.

A file counts when one of its functions or methods runs. Code that runs only because a module is imported does not
count, nor do bodies of modules and classes, nor methods that `dataclass` generates.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from inspect import CO_OPTIMIZED
from io import StringIO
from pathlib import Path
from runpy import run_module
from types import FrameType
from typing import Any
from unittest.mock import patch

import yaml

_ROOT = Path(__file__).resolve().parents[1]
_CONFIG = Path("templates/quickstart.yaml")
_DUMP = Path("tests/golden/megaflows/nic-blocks-in-hardware.txt")
_IMPORT = "<frozen importlib._bootstrap>"
_FALL = 3
_HEALTH = {"probe": "icmp", "interval": "200ms", "fast_interval": "100ms", "timeout": "50ms", "fall": _FALL}
_RESYNC_S = 3600.0
"""No round has another reason than the backend."""


class Profile:
    """The files of a package, relative to the directory that holds it, whose functions run in any thread."""

    def __init__(self, package: Path) -> None:
        self.files: set[str] = set()
        self.is_counting = False
        self._prefix = f"{package}{os.sep}"

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Listen to this thread, and to those that start meanwhile."""
        threading.setprofile(self._event)
        sys.setprofile(self._event)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def _event(self, frame: FrameType, _event: str, _argument: object) -> None:
        # Returns count as calls do: a coroutine that goes on with a result was called before the result came.
        name = frame.f_code.co_filename
        if self.is_counting and name.startswith(self._prefix) and name not in self.files and _is_run(frame):
            self.files.add(name)


def _is_run(frame: FrameType) -> bool:
    """Whether it is the frame of a function that runs for another reason than an import."""
    # Bodies of modules and classes have no fast locals.
    if not frame.f_code.co_flags & CO_OPTIMIZED:
        return False
    caller = frame.f_back
    while caller is not None and caller.f_code.co_filename != _IMPORT:
        caller = caller.f_back
    return caller is None


def apply_quickstart(profile: Profile) -> None:
    """`xenoovs apply` of the quickstart on an empty bridge of a real Open vSwitch."""
    from tests.ovs.dummy import running_dummy_ovs

    with tempfile.TemporaryDirectory() as name, running_dummy_ovs(Path(name) / "ovs") as ovs, ovs.bridge() as bridge:
        _run(profile, ["apply", _CONFIG, "--yes", "--db", bridge.ovs.db])


def judge_one_megaflow(profile: Profile) -> None:
    """`xenoovs verify-offload --from-dump` of one line that was recorded on a NIC."""
    with tempfile.TemporaryDirectory() as name:
        dump = Path(name) / "dump.txt"
        dump.write_text(_DUMP.read_text().splitlines(keepends=True)[0])
        # 3: a dump in which every line is offloaded may have been filtered.
        _run(profile, ["verify-offload", _CONFIG, "--from-dump", dump], expected=3)


def lose_a_backend(profile: Profile) -> None:
    """From the probe result that takes a backend out to the end of the round, in an agent on a real Open vSwitch."""
    from tests.agent_support import all_answer
    from tests.ovs.agents import running_agent
    from tests.ovs.dummy import running_dummy_ovs
    from tests.patience import eventually

    death = _Death(profile, all_answer)
    with tempfile.TemporaryDirectory() as name, running_dummy_ovs(Path(name) / "ovs") as ovs, ovs.bridge() as bridge:
        config = Path(name) / "config.yaml"
        config.write_text(_with_health(_CONFIG.read_text()))
        with (
            profile.installed(),
            running_agent(config, bridge.ovs.directory, probe=death.probe, resync_s=_RESYNC_S) as agent,
        ):
            eventually(lambda: agent.state.round.rounds == 1, "the first round")
            before = bridge.dump_flows()
            death.agent = agent
            eventually(lambda: death.is_over, "a round without the backend")
            if bridge.dump_flows() == before:
                raise RuntimeError("a backend died and no flow has changed")


JOURNEYS: dict[str, tuple[str, Callable[[Profile], None]]] = {
    "apply": ("xenoovs apply of the quickstart", apply_quickstart),
    "dump-line": ("xenoovs verify-offload of one dump line", judge_one_megaflow),
    "dead-backend": ("a backend dies: last probe result to end of round", lose_a_backend),
}

MOST = {"apply": 63, "dump-line": 54, "dead-backend": 47}
"""How many files may run: a test compares. Lower them as files become fewer."""


class _Death:
    """A prober whose backends all answer until `agent` is set; then the one that is asked next never answers again."""

    def __init__(self, profile: Profile, answer: Any) -> None:
        self.agent: Any = None
        self.is_over = False
        self._profile, self._answer = profile, answer
        self._victim: object = None
        self._failures = self._rounds = 0

    async def probe(self, target: object, *, timeout_s: float) -> Any:
        if self._profile.is_counting and self.agent.state.round.rounds > self._rounds:
            # The agent asks again, so the round is over.
            self._profile.is_counting, self.is_over = False, True
        result = await self._answer(target, timeout_s=timeout_s)
        if self.agent is None:
            return result
        self._victim = self._victim or target
        if target != self._victim:
            return result
        self._failures += 1
        failure = replace(result, ok=False, reason="no answer")
        if self._failures == _FALL:
            self._rounds = self.agent.state.round.rounds
            self._profile.is_counting = True
        return failure


def _with_health(text: str) -> str:
    document = yaml.safe_load(text)
    document["health"] = _HEALTH
    for service in document["services"]:
        for number, backend in enumerate(service["backends"], 1):
            backend["address"] = f"192.0.2.{number}"
    return yaml.safe_dump(document)


def _run(profile: Profile, arguments: list[object], *, expected: int = 0) -> None:
    """Run a command of `xenoovs` in this process; raises RuntimeError for another exit status than `expected`."""
    output, status = StringIO(), None
    with patch.object(sys, "argv", ["xenoovs", *map(str, arguments)]), redirect_stdout(output), profile.installed():
        profile.is_counting = True
        try:
            run_module("xenoovs", run_name="__main__")
        except SystemExit as ended:
            status = ended.code
        finally:
            profile.is_counting = False
    if status != expected:
        raise RuntimeError(f"xenoovs {arguments[0]} ended with {status}:\n{output.getvalue()}")


def files_of(journey: str, checkout: Path) -> list[str]:
    """The files that run on a journey, in a process that imports `xenoovs` and `tests` from a checkout."""
    argv = [sys.executable, __file__, "--run", journey]
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    done = subprocess.run(argv, cwd=checkout, env=environment, stdout=subprocess.PIPE, check=True)
    found: list[str] = json.loads(done.stdout)
    return found


def _files_here(journey: str) -> list[str]:
    """The same in this process and for its working directory."""
    profile = Profile(Path.cwd() / "xenoovs")
    JOURNEYS[journey][1](profile)
    return sorted(str(Path(name).relative_to(Path.cwd())) for name in profile.files)


def main() -> None:
    """Print a table of the journeys."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--files", action="store_true", help="List the files too.")
    parser.add_argument("--package", type=Path, default=_ROOT, metavar="DIR", help="Count in another checkout.")
    parser.add_argument("--run", choices=JOURNEYS, help="Run one journey here and print its files as JSON.")
    options = parser.parse_args()
    if options.run is not None:
        print(json.dumps(_files_here(options.run)))
        return
    print(f"{'JOURNEY':<52}  FILES")
    for journey, (title, _) in JOURNEYS.items():
        files = files_of(journey, options.package.resolve())
        print(f"{title:<52}  {len(files):>5}", flush=True)
        for file in files if options.files else ():
            print(f"  {file}")


if __name__ == "__main__":
    main()
