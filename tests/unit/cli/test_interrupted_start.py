"""Ctrl-C in the first moments of a command, while it still imports its modules."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from tests.patience import PATIENCE_S


def interrupted_while_importing(*arguments: str) -> tuple[int, list[str]]:
    """Send SIGINT when the first module of click has been imported. Return exit status and lines of stderr."""
    argv = [sys.executable, "-X", "importtime", "-m", "xenoovs", *arguments]
    # The command reads its standard input, which never ends.
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=subprocess.DEVNULL, stderr=pipe, text=True) as process:
        assert process.stderr is not None
        next(line for line in process.stderr if line.rpartition("|")[2].strip().startswith("click."))
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read().splitlines()
        process.wait(PATIENCE_S)
    return process.returncode, [line for line in rest if not line.startswith("import time:")]


def test_it_is_reported_without_a_traceback() -> None:
    assert interrupted_while_importing("validate", "-") == (130, ["interrupted"])


@pytest.mark.parametrize("spelling", ["-ojson", "--output=json"])
def test_it_is_reported_in_json(spelling: str) -> None:
    status, (line,) = interrupted_while_importing("validate", "-", spelling)
    assert status == 130
    assert json.loads(line)["error"]["code"] == "interrupted"
