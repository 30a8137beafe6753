"""Commands of the how-to pages work: marked blocks are run as they stand, in a lab, with an answer to each question.

A mark is the line before the block: `<!-- run -->`. It may go on with `with an agent`, with the exit statuses that its
commands may have (`, exit 0 2`), and with commands that are left out (`, without logs confirm`).

The tutorial works: its commands are run as they stand, in one shell, and print what the page shows. At the speed of a
person: commands that show what traffic has left behind come 15 s after it, when Open vSwitch would have dropped idle
megaflows (max-idle, 10 s; ovs-vswitchd.conf.db(5)). Pauses between the other steps would prove nothing more.
"""

from __future__ import annotations

import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.command_line import XENOOVS, finish, running, start
from tests.ovs.cuts import applied
from tests.ovs.lab_support import lab_name
from tests.ovs.ways import free_port
from tests.patience import PATIENCE_S, eventually
from xenoovs.lab.lab import Lab

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(
    r"^<!-- run(?P<agent> with an agent)?(?:, exit (?P<exit>[0-9 ]+))?(?:, without (?P<without>[a-z -]+?))? -->\n"
    r"```sh\n(?P<block>.*?)^```",
    re.MULTILINE | re.DOTALL,
)
_MARK = re.compile(r"^<!-- run\b", re.MULTILINE)
PAGES = sorted(page for page in ROOT.glob("docs/**/*.md") if _MARK.search(page.read_text(encoding="utf-8")))

CONFIG = """\
version: 1
switch: {bridge: ovsbr1, ingress: [p0], egress: p1, other_traffic: passthrough}
services:
  - name: web
    vip: 192.0.2.80
    protocol: tcp
    ports: [80]
    vip_mac: 02:00:5e:10:00:01
    backends:
      - {name: web1, mac: 02:00:5e:10:00:11, weight: 2}
      - {name: web2, mac: 02:00:5e:10:00:12, weight: 1}
      - {name: web3, mac: 02:00:5e:10:00:13, weight: 1}
  - name: dns
    vip: 192.0.2.53
    protocol: udp
    ports: [53]
    vip_mac: 02:00:5e:10:00:02
    backends:
      - {name: fips2, mac: 02:00:5e:10:00:21, weight: 1}
      - {name: fips3, mac: 02:00:5e:10:00:22, weight: 1}
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab whose name and directory are in the environment."""
    directory, name = tmp_path_factory.mktemp("labs"), lab_name("docs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XENOOVS_LAB_DIRECTORY", str(directory))
        patch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        with applied(tmp_path_factory.mktemp("config") / "my.yaml", CONFIG, name) as made:
            patch.setenv("XENOOVS_LAB", name)
            patch.setenv("OVS_RUNDIR", str(made.ovs.directory))
            yield made


@pytest.fixture
def here(lab: Lab, tmp_path: Path) -> Path:
    """A directory with the files that the pages name; the config is applied, and clients have sent packets."""
    (tmp_path / "my.yaml").write_text(CONFIG)
    assert finish(start("apply", tmp_path / "my.yaml", "--yes")).status == 0
    assert finish(start("lab", "traffic", "--packets", "500")).status == 0
    (tmp_path / "new.yaml").write_text(CONFIG.replace("weight: 2", "weight: 3"))
    by_hand = "table=9,ip,nw_dst=192.0.2.90,nw_src=0.0.0.0/0.0.0.1,actions=mod_dl_dst:02:00:5e:10:00:31,output:p1"
    subprocess.check_call(["ovs-ofctl", "add-flow", "ovsbr1", by_hand])
    (tmp_path / "access.log").write_text("198.51.100.7 GET /\n198.51.100.8 GET /\n")
    shutil.copy(lab.ovs.directory / "ovs-vswitchd.log", tmp_path)
    for name, command in (("dump", "ovs-appctl dpctl/dump-flows -m"), ("flows", "ovs-ofctl --names dump-flows ovsbr1")):
        (tmp_path / f"{name}.txt").write_text(subprocess.check_output(command.split(), text=True))
    return tmp_path


@contextmanager
def _agent(here: Path) -> Iterator[None]:
    with running("agent", here / "my.yaml"):
        eventually(lambda: finish(start("status", "-o", "json")).out.startswith('{\n  "from": "agent"'), "the agent")
        yield


def _run(line: str, here: Path) -> tuple[int, str]:
    """Run a line in a shell, with a terminal at which the user answers y."""
    ours, theirs = pty.openpty()
    try:
        os.write(ours, b"y\n" * 8)
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", line],
            cwd=here,
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    return done.returncode, done.stdout


def test_every_mark_is_understood() -> None:
    assert len(PAGES) > 8
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert len(_MARK.findall(text)) == len(_BLOCK.findall(text)), page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_page_run(page: Path, here: Path) -> None:
    for block in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        allowed = {int(status) for status in (block["exit"] or "0").split()}
        left_out = set((block["without"] or "").split())
        lines = [line for line in block["block"].replace("\\\n", " ").splitlines() if line.strip()]
        with _agent(here) if block["agent"] else nullcontext():
            for line in lines:
                if left_out.isdisjoint(line.removeprefix("xenoovs ").split()[:1]):
                    status, said = _run(line, here)
                    assert status in allowed, f"{line}\n{said}"
                    assert "Traceback" not in said


NAME = lab_name("tutor")
_STEP = re.compile(r"^```(sh)?\n(.*?)^```", re.MULTILINE | re.DOTALL)
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
    blocks = [(kind, tuple(text.splitlines())) for kind, text in _STEP.findall((ROOT / "docs/tutorial.md").read_text())]
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
        # Not the lab of the other pages.
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("XENOOVS_", "OVS_"))}
        self.env = {**plain, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        self._port = str(free_port())
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            ["bash"],
            cwd=directory,
            env=self.env,
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


def test_the_commands_of_the_tutorial_print_what_the_page_shows(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    try:
        for step in steps():
            play(step, shell)
    finally:
        # What it has started in the background holds its pipes.
        os.killpg(shell.process.pid, signal.SIGKILL)
        shell.process.communicate()
        subprocess.run([XENOOVS, "lab", "down", "--lab", NAME], env=shell.env, check=True)


def test_most_steps_of_the_tutorial_show_what_they_print() -> None:
    found = list(steps())
    assert len(found) > 20
    assert sum(bool(step.shown) for step in found) > 18
