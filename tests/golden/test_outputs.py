"""What commands, the API and the metrics show is as recorded in tests/golden/outputs; `--update-golden` records it.

A folder is a world, and a file has the outputs of one command, each below its `$` line. Text is recorded as a pipe gets
it, and for terminals of 80 and 120 columns where that differs.
"""

from __future__ import annotations

import json
import re
import socket
import sys
from collections import defaultdict
from http.client import HTTPConnection
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
import pytest

from tests.golden.worlds import StillClock, running_agent, served
from tests.unit.agent.test_metrics import fed
from xenoovs import __version__
from xenoovs.cli.main import run
from xenoovs.show.agent import TABLES, BlockView, LazySnapshot, parse_snapshot
from xenoovs.show.codec import parse
from xenoovs.show.metrics import exposition

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
    return f"{text}[exit status {status}]\n"


class Recording:
    """The outputs of a world, by the name of their file."""

    def __init__(self) -> None:
        self._sections: dict[str, list[str]] = defaultdict(list)

    def add(self, file: str, title: str, text: str) -> None:
        self._sections[file].append(f"$ {title}\n{text}")

    def command(self, line: str, *more: str, formats: str = "text json") -> None:
        """Record a command line, with further words that its title leaves out."""
        words, name = [*line.split(), *more], line.split()[0]
        if "text" in formats:
            piped = printed(words)
            self.add(name, line, piped)
            for columns in (80, 120):
                if (text := printed(words, columns=columns)) != piped:
                    self.add(name, f"{line}  # {columns} columns", text)
        if "json" in formats:
            self.add(name, f"{line} -o json", printed([*words, "-o", "json"]))

    def compare(self, world: str, *, update: bool) -> None:
        folder = HERE / world
        for name, sections in self._sections.items():
            path, text = folder / f"{name}.txt", "\n".join(sections)
            if update:
                folder.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            assert text == path.read_text(encoding="utf-8"), path.name
        assert {path.stem for path in folder.iterdir()} == {*self._sections}


@pytest.fixture
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recording:
    """In an empty working directory, so that no output has a path of this machine."""
    monkeypatch.chdir(tmp_path)
    return Recording()


# Agents.


READS = ("events", "paths", "paths/plan", "blocks?service=web", "blocks?service=web&after=7", "blocks?x=1")
CHANGES = """\
drain web/web1 --for 1h
drain web1
weight web web3
weight web web3 2.5
drain 198.51.100.2
undrain dns1
maintenance web web2 --for 30m
pause
undrain web1
resume
reset web/web3
resume
weight nothing web1 2
drain nobody
paths pin rack7/b p1
paths pause
paths resume
paths discover
confirm
"""


def test_an_agent(recording: Recording, monkeypatch: pytest.MonkeyPatch, *, update_golden: bool) -> None:
    """One backend is down, and an operator drains others, changes weights and pauses."""
    with running_agent(monkeypatch):
        for line in ("describe web1", "describe web/web2", "describe dns/dns2", "status"):
            recording.command(line, *AGENT)
        recording.command("top --once", *AGENT)
        for line in CHANGES.splitlines():
            recording.add("changes", line, printed([*line.split(), *AGENT]))
            recording.add("changes", f"{line} -o json", printed([*line.split(), *AGENT, "-o", "json"]))
        for line in ("status", "describe web1", "logs", "paths list", "paths plan"):
            recording.command(line, *AGENT)
        recording.command("top --once", *AGENT, formats="text")
        for name in READS:
            recording.add("api", f"GET /v1/{name}", indented(fetched(f"/v1/{name}")))
        recording.add("api", "GET /ready", indented(fetched("/ready")))
        recording.add("metrics", "GET /metrics", without_times(fetched("/metrics")))
    recording.compare("agent", update=update_golden)


@pytest.mark.parametrize("world", ["busy", "trouble", "paths"])
def test_a_recorded_agent(
    world: str, recording: Recording, monkeypatch: pytest.MonkeyPatch, *, update_golden: bool
) -> None:
    """Its answers are in tests/golden/worlds."""
    StillClock(monkeypatch)
    with served(world) as answers:
        snapshot = answers["/v1/status"]["snapshot"]
        recording.command("status", *AGENT)
        for line in ("paths list", "paths plan", "paths why rack7/b") if snapshot["remotes"] else ():
            recording.command(line, *AGENT)
        if snapshot["services"]:
            recording.command("top --once", *AGENT, formats="text")
        for name in dict.fromkeys(
            backend["name"] for service in snapshot["services"] for backend in service["backends"]
        ):
            recording.command(f"describe {name}", *AGENT)
        lazy = LazySnapshot(lambda: parse_snapshot(snapshot), lambda service: blocks_of(answers, service))
        text = (exposition(TABLES, lazy) + fed().text()).decode()
        recording.add("metrics", "GET /metrics  # samples", re.sub("^#.*\n", "", without_times(text), flags=re.M))
    recording.compare(world, update=update_golden)


def blocks_of(answers: dict[str, object], service: str) -> tuple[BlockView, ...]:
    found: Any = answers[f"/v1/blocks?service={service}"]
    return tuple(parse(BlockView, block, "a block") for block in found["blocks"])


def fetched(path: str) -> str:
    """Return the body of an answer of the agent."""
    connection = HTTPConnection("localhost")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect("agent.sock")
    connection.request("GET", path)
    text = connection.getresponse().read().decode()
    connection.close()
    return text.replace(__version__, "VERSION")


def indented(document: str) -> str:
    return json.dumps(json.loads(document), indent=1) + "\n"


def without_times(metrics: str) -> str:
    """Return an exposition without samples of durations, which differ from run to run."""
    lines = metrics.replace(__version__, "VERSION").splitlines(keepends=True)
    return "".join(line for line in lines if line.startswith("#") or "_duration_seconds" not in line)
