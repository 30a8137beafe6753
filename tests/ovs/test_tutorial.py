"""The tutorial works: its commands are run as they stand, in one shell, on a real Open vSwitch."""

from __future__ import annotations

import re
import subprocess
import sys
from os import environ
from pathlib import Path

import pytest

pytestmark = pytest.mark.ovs

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"
_SHELL_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
# What installs is what `make test` has done already.
_INSTALL = ("make setup", "export PATH")


def commands() -> list[str]:
    lines = [line for block in _SHELL_BLOCK.findall(TUTORIAL.read_text()) for line in block.splitlines()]
    run = [line for line in lines if not line.startswith(_INSTALL)]
    # A reader is faster than ten seconds, after which Open vSwitch forgets idle megaflows; a loaded machine may not be.
    look = next(i for i, line in enumerate(run) if line.startswith("xenoovs verify-offload"))
    traffic = next(line for line in run if line.startswith("xenoovs lab traffic"))
    return [*run[:look], traffic, *run[look:]]


@pytest.fixture
def said(tmp_path: Path) -> str:
    script = "\n".join(["set -eux", *commands()]).replace("tutorial", "tutorial-test")
    path = f"{Path(sys.executable).parent}:{environ['PATH']}"
    try:
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=tmp_path,
            env={**environ, "PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
    finally:
        subprocess.run(["xenoovs", "lab", "down", "--name", "tutorial-test"], env={**environ, "PATH": path}, check=True)
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_the_commands_do_what_the_page_says(said: str) -> None:
    assert "valid, 11 flows" in said
    assert "done: 11 flow-mods in one bundle" in said
    assert "20000 answered, 0 lost" in said
    assert "ofproto/trace gives the same" in said
    assert "not every block that has had traffic is forwarded by the NIC" in said
    assert re.search(r"service dns \(changed\): 12\.5% of its clients move \(least possible: 12\.5%\)", said)
    assert "lab tutorial-test removed" in said


def test_the_page_shows_what_validate_prints(said: str) -> None:
    shown = re.search(r"^```\n(SERVICE.*?)\n\n", TUTORIAL.read_text(), re.MULTILINE | re.DOTALL)
    assert shown is not None
    assert shown[1] in said
