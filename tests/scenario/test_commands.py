"""Runs every file of commands/: what commands print about files, and their exit status. No switch is there.

`#` begins a case; what stands before the first one is done in each. `file NAME` writes the lines below that begin with
`|`, and those of another file behind `add`. `edit NAME` goes on with a file: the text behind `-` becomes that behind
`+`, and `cut` drops lines with a text. `env NAME VALUE` sets a variable. `lab NAME` lets there be a lab that is not
up; the config of the service is service.yaml. `link NAME TARGET` makes a link. `$` runs a command of xenoovs, once for
each choice of `{this,that}`; `< NAME` is its standard input, and `> NAME` writes what it prints. Below it, of its
output: `exit` (0, if it is missing), `out` and `err` (each has the text, whatever its blanks; after 1 and 64 `out` is
empty without such a line), `no` (neither has it), `last` (the end of the last line), `lines` (their number in `out`),
`missing` (a path that is not there), and `json PATH VALUE`, where `[]` in a path is each item of a list; `error PATH
VALUE` is for the last line of the errors, which is JSON.
"""

from __future__ import annotations

import io
import json
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import CommandLine, CommandResult
from tests.unit.balancer import balancer
from xenoovs.lab.lab import LabState, write_state
from xenoovs.lab.topology import plan_topology
from xenoovs.terminal import defaults

HERE, ROOT = Path(__file__).parent / "commands", Path(__file__).parents[2]
LINKED = ("templates", "flows", "tests/golden/verify", "tests/golden/why")


@dataclass
class Story:
    """The lines of a case, each as its first word and the rest."""

    title: str
    lines: list[tuple[str, str]] = field(default_factory=list)


def stories() -> Iterator[object]:
    """Each case of each file, after what stands before the first one."""
    for path in sorted(HERE.glob("*.txt")):
        made = [Story("")]
        for line in path.read_text().splitlines():
            word, _, rest = line.partition(" ")
            if word == "#":
                made.append(Story(rest, [*made[0].lines]))
            elif line:
                made[-1].lines.append((word, rest))
        assert len({each.title for each in made}) == len(made), path
        yield from (pytest.param(each, id=f"{path.stem}: {each.title}") for each in made[1:])


def choices(text: str) -> list[str]:
    """The texts that `{this,that}` stands for."""
    found = re.search(r"\{([^{}]*,[^{}]*)\}", text)
    if found is None:
        return [text]
    parts = (f"{text[: found.start()]}{part}{text[found.end() :]}" for part in found[1].split(","))
    return [each for part in parts for each in choices(part)]


def item_of(document: Any, path: str) -> Any:
    """The item at a path such as `services[0].backends[].name`."""
    for key, index, _ in re.findall(r"([^.\[\]]+)|\[(-?\d*)\](\.?)", path):
        if key:
            document = document[key]
        elif index:
            document = document[int(index)]
        else:
            rest = path.partition("[]")[2].removeprefix(".")
            return [item_of(each, rest) for each in document]
    return document


def plain(text: str) -> str:
    return " ".join(text.split())


def check(command: str, result: CommandResult, checks: list[tuple[str, str]]) -> None:
    """Compare what a command printed with the lines below it."""
    words = {word for word, _ in checks}
    assert result.status == int(dict(checks).get("exit", "0")), (command, result)
    assert result.status not in (1, 64) or words & {"out", "last", "json"} or result.out == "", command
    for word, text in checks:
        match word:
            case "out":
                assert plain(text) in plain(result.out), command
            case "err":
                assert plain(text) in plain(result.err), command
            case "no":
                assert plain(text) not in plain(result.out + result.err), command
            case "lines":
                assert len(result.out.splitlines()) == int(text), command
            case "missing":
                assert not Path(text).exists(), command
            case "last":
                assert result.out.splitlines()[-1].endswith(text)
            case "json":
                path, _, value = text.partition(" ")
                assert item_of(json.loads(result.out), path) == json.loads(value), command
            case "error":
                path, _, value = text.partition(" ")
                *notes, last = map(json.loads, result.err.splitlines())
                assert item_of(last["error"], path) == json.loads(value), command
                assert all([*note] == ["note"] for note in notes)
            case _:
                assert word == "exit", word


@pytest.mark.parametrize("story", [*stories()])
def test_commands(story: Story, xenoovs: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in LINKED:
        Path(Path(name).name).symlink_to(ROOT / name)
    monkeypatch.setenv("XENOOVS_LAB_DIRECTORY", "labs")
    monkeypatch.setattr(defaults, "SERVICE_CONFIG", Path("service.yaml"))
    file, old, lines = Path(), "", [*story.lines, ("$", "")]
    commands, checks = list[str](), list[tuple[str, str]]()
    for word, rest in lines:
        if word in ("file", "edit", "env", "lab", "link", "$"):  # The lines of the last command are read.
            for each in commands:
                argv, _, written = each.partition(" > ")
                argv, _, given = argv.partition(" < ")
                given_bytes = io.BytesIO(Path(given).read_bytes() if given else b"")
                monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(given_bytes))
                result = xenoovs(*shlex.split(argv))
                check(each, result, checks)
                if written:
                    Path(written).write_text(result.out)
            commands, checks = [], []
        match word:
            case "file":
                file = Path(rest)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text("")
            case "|":
                file.write_text(f"{file.read_text()}{rest}\n")
            case "edit":
                file = Path(rest)
            case "add":
                file.write_text(file.read_text() + Path(rest).read_text())
            case "cut":
                left = [line for line in file.read_text().splitlines(keepends=True) if rest not in line]
                file.write_text("".join(left))
            case "-":
                old = rest
            case "+":
                assert old in file.read_text()
                file.write_text(file.read_text().replace(old, rest))
            case "env":
                name, _, value = rest.partition(" ")
                monkeypatch.setenv(name, value)
            case "lab":
                (folder := Path("labs", rest)).mkdir(parents=True)
                write_state(folder, LabState(complete=True, topology=plan_topology(rest, balancer())))
            case "link":
                name, _, target = rest.partition(" ")
                Path(name).symlink_to(Path(target).absolute())
            case "$":
                commands = choices(rest)
            case _:
                checks.append((word, rest))
