"""The tutorial works: its commands are run as they stand, in one shell, and print what the page shows.

At the speed of a person: the commands that show what traffic has left behind come 15 s after it, when Open vSwitch
would have dropped idle megaflows (max-idle, 10 s; ovs-vswitchd.conf.db(5)). Pauses between the other steps would prove
nothing more.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.ovs.lab_support import lab_name
from tests.ovs.ways import free_port
from tests.patience import PATIENCE_S

NAME = lab_name("tutor")
TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"
_BLOCK = re.compile(r"^```(sh)?\n(.*?)^```", re.MULTILINE | re.DOTALL)
# What installs is what `make test` has done already.
_INSTALL = ("make setup", "export PATH")
_MAX_IDLE_S = 15.0
_LATE = ("xenoovs verify-offload",)
# Commands that only show something: a person who is too early repeats them.
_SHOWS = ("xenoovs status", "xenoovs lab status", "xenoovs logs", "xenoovs verify-offload")
_DONE = "--- status "
_NUMBER = re.compile(r"(?<!\S)-(?!\S)|(?<=config=)[0-9a-f]{12}|\d+[dhm](?: \d+[hms])?\b|\d[\d.:]*[kM]?%?(ms|s)?")


@dataclass(frozen=True, slots=True)
class Step:
    """Commands that are typed together, and what the page shows below them."""

    commands: tuple[str, ...]
    shown: tuple[str, ...]


def steps() -> Iterator[Step]:
    blocks = [(kind, tuple(text.splitlines())) for kind, text in _BLOCK.findall(TUTORIAL.read_text())]
    for at, (kind, lines) in enumerate(blocks):
        if kind:
            shown = blocks[at + 1][1] if at + 1 < len(blocks) and not blocks[at + 1][0] else ()
            yield Step(tuple(line for line in lines if not line.startswith(_INSTALL)), shown)


def form(line: str) -> str:
    """A line without its numbers and the widths of its columns."""
    return " ".join(_NUMBER.sub("#", line).split())


def missing(shown: tuple[str, ...], said: str) -> list[str]:
    """The lines that the page shows and the commands did not print."""
    forms = {form(line) for line in said.splitlines()}
    return [line for line in shown if form(line) not in forms]


class Shell:
    """One shell for all steps."""

    def __init__(self, directory: Path) -> None:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._port = str(free_port())
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            ["bash"],
            cwd=directory,
            env={**os.environ, "PATH": path},
            stdin=pipe,
            stdout=pipe,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, command: str) -> str:
        """Run a command line; its status is that of something that worked, or that found a difference."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        command = command.replace("tutorial", NAME).replace("8080", self._port)
        self.process.stdin.write(f"{command}\necho '{_DONE}'$?\n")
        self.process.stdin.flush()
        said = ""
        for line in self.process.stdout:
            if line.startswith(_DONE):
                assert line.removeprefix(_DONE).strip() in ("0", "2"), f"{command}\n{said}"
                return said.replace(NAME, "tutorial")
            said += line
        raise AssertionError(f"the shell has ended: {said}")


def play(step: Step, shell: Shell) -> None:
    if step.commands and step.commands[0].startswith(_LATE):
        time.sleep(_MAX_IDLE_S)
    said = "".join(map(shell.run, step.commands))
    end_s = time.monotonic() + PATIENCE_S
    while missing(step.shown, said) and step.commands[-1].startswith(_SHOWS) and time.monotonic() < end_s:
        time.sleep(0.5)
        said = shell.run(step.commands[-1])
    assert missing(step.shown, said) == [], said


def test_the_commands_print_what_the_page_shows(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    try:
        for step in steps():
            play(step, shell)
    finally:
        # What it has started in the background holds its pipes.
        os.killpg(shell.process.pid, signal.SIGKILL)
        shell.process.communicate()
        subprocess.run([Path(sys.executable).parent / "xenoovs", "lab", "down", "--lab", NAME], check=True)


def test_most_steps_show_what_they_print() -> None:
    found = list(steps())
    assert len(found) > 20
    assert sum(bool(step.shown) for step in found) > 18
