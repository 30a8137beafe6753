"""What commands, the API and the metrics show is as recorded in tests/golden/outputs; `--update-golden` records it.

A folder is a world, and a file has the outputs of one command, each below its `$` line. Text is recorded as a pipe gets
it, and for terminals of 80 and 120 columns where that differs.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
import pytest

from tests.golden.test_flows import compare
from tests.golden.worlds import (
    WORLDS,
    StillClock,
    in_directory_of_files,
    in_memory_fleet,
    in_memory_switch,
    running_agent,
    served,
)
from tests.unit.agent.test_shown import fed
from tests.unix_http import ask
from xenoovs import __version__
from xenoovs.agent.telemetry import exposition
from xenoovs.agent.web.page import agent_json
from xenoovs.cli.main import run
from xenoovs.show.codec import parse
from xenoovs.show.snapshot import BLOCKS, TABLES, BlockView, LazySnapshot, parse_snapshot

HERE = Path(__file__).parent / "outputs"
AGENT = ("--control", "agent.sock")


class Stream(StringIO):
    """Standard output or error: a terminal, or a pipe."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


def printed(words: list[str], *, columns: int | None = None) -> str:
    """Return what a command prints, then its errors and its exit status. `columns`: of the terminal; None: a pipe."""
    out, err = (Stream(is_terminal=columns is not None) for _ in range(2))
    with patch.object(sys, "stdout", out), patch.object(sys, "stderr", err), pytest.MonkeyPatch.context() as patched:
        patched.setenv("COLUMNS", str(columns or 80))
        status = run(words)
    text = click.unstyle(out.getvalue() + err.getvalue()).replace(__version__, "VERSION")
    text = re.sub(
        r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?([+-]\d\d:\d\d)?", lambda found: re.sub(r"\d", "0", found[0]), text
    )
    return f"{text}[exit status {status}]\n"


class Recording:
    """The outputs of a world, by the name of their file."""

    def __init__(self) -> None:
        self._sections: dict[str, list[str]] = defaultdict(list)

    def add(self, file: str, title: str, text: str) -> None:
        self._sections[file].append(f"$ {title}\n{text}")

    def play(self, world: str, *more: str) -> None:
        """Record the commands of a file of tests/golden/worlds. `more`: words that are added to each.

        A `!` marks commands that run once, as a pipe gets them.
        """
        for line in (WORLDS / f"{world}.commands").read_text().splitlines():
            shown = line.removeprefix("!")
            words = shown.split()
            group = words[0] in ("fleet", "paths", "measure")
            name = "changes" if line.startswith("!") else "-".join(words[: 1 + group])
            piped = printed([*words, *more])
            self.add(name, shown, piped)
            for columns in () if line.startswith("!") else (80, 120):
                if (text := printed([*words, *more], columns=columns)) != piped:
                    self.add(name, f"{shown}  # {columns} columns", text)
            if not line.startswith("!") and "--once" not in words:
                self.add(name, f"{shown} -o json", printed([*words, *more, "-o", "json"]))

    def compare(self, world: str, *, update: bool) -> None:
        folder = HERE / world
        for name, sections in self._sections.items():
            compare(folder / f"{name}.txt", "\n".join(sections), update=update)
        assert {path.stem for path in folder.iterdir()} == {*self._sections}


@pytest.fixture
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recording:
    """In an empty working directory, so that no output has a path of this machine."""
    monkeypatch.chdir(tmp_path)
    return Recording()


READS = ("events", "paths", "paths/plan", "blocks?service=web", "blocks?service=web&after=7", "blocks?x=1")


def test_an_agent(recording: Recording, monkeypatch: pytest.MonkeyPatch, *, update_golden: bool) -> None:
    """One backend is down, and an operator drains others, changes weights and pauses."""
    with running_agent(monkeypatch):
        recording.play("agent", *AGENT)
        for name in READS:
            recording.add("api", f"GET /v1/{name}", indented(fetched(f"/v1/{name}")))
        recording.add("api", "GET /ready", indented(fetched("/ready")))
        recording.add("metrics", "GET /metrics", without_times(fetched("/metrics")))
        once, status = (printed([*words, *AGENT, "-o", "json"]) for words in (("top", "--once"), ("status",)))
        assert once == status
    recording.compare("agent", update=update_golden)


@pytest.mark.parametrize("world", ["busy", "trouble", "paths"])
def test_a_recorded_agent(
    world: str, recording: Recording, monkeypatch: pytest.MonkeyPatch, *, update_golden: bool
) -> None:
    """Its answers are in tests/golden/worlds."""
    StillClock(monkeypatch)
    with served(world) as answers:
        recording.play(world, *AGENT)
        snapshot = answers["/v1/status"]["snapshot"]
        lazy = LazySnapshot(lambda: parse_snapshot(snapshot), lambda service: blocks_of(answers, service))
        by_service = ((each["name"], blocks_of(answers, each["name"])) for each in snapshot["services"])
        text = (exposition(TABLES, lazy.snapshot()) + exposition([BLOCKS], by_service) + fed().text()).decode()
        recording.add("page", "GET /now", indented(agent_json(lazy)))
        recording.add("metrics", "GET /metrics  # samples", re.sub("^#.*\n", "", without_times(text), flags=re.M))
    recording.compare(world, update=update_golden)


def test_a_switch(recording: Recording, monkeypatch: pytest.MonkeyPatch, *, update_golden: bool) -> None:
    """Without an agent: plans, changes, the history, and proof."""
    in_memory_switch(monkeypatch)
    recording.play("switch")
    recording.compare("switch", update=update_golden)


def test_a_fleet(recording: Recording, monkeypatch: pytest.MonkeyPatch, *, update_golden: bool) -> None:
    """With a controller in the same process: three DPUs, of which one fails."""
    in_memory_fleet(monkeypatch)
    recording.play("fleet")
    recording.compare("fleet", update=update_golden)


def test_files(recording: Recording, monkeypatch: pytest.MonkeyPatch, *, update_golden: bool) -> None:
    """Configs, recorded dumps and measured runs, without a switch."""
    in_directory_of_files(monkeypatch)
    recording.play("files")
    recording.compare("files", update=update_golden)


def blocks_of(answers: dict[str, object], service: str) -> tuple[BlockView, ...]:
    found: Any = answers[f"/v1/blocks?service={service}"]
    return tuple(parse(BlockView, block, "a block") for block in found["blocks"])


def fetched(path: str) -> str:
    """Return the body of an answer of the agent."""
    return ask("agent.sock", path).body.decode().replace(__version__, "VERSION")


def indented(document: str) -> str:
    return json.dumps(json.loads(document), indent=1) + "\n"


def without_times(metrics: str) -> str:
    """Return an exposition without samples of durations, which differ from run to run."""
    lines = metrics.replace(__version__, "VERSION").splitlines(keepends=True)
    return "".join(line for line in lines if line.startswith("#") or "_duration_seconds" not in line)
