"""`--watch` goes on where ovs-vswitchd is restarted: whoever watches wants to see the end of it."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command_line import SMALL_CONFIG, CommandLine, finish, start
from tests.ovs.dummy import DummyOvs
from xenoovs.lab.private_ovs import Datapath, start_vswitchd, stop_process

pytestmark = pytest.mark.ovs

REPORT = "no conclusion: "


@pytest.fixture
def watching(own_ovs: DummyOvs, tmp_path: Path, xenoovs: CommandLine) -> Iterator[subprocess.Popen[str]]:
    """A watch that has shown its first report."""
    config = tmp_path / "small.yaml"
    config.write_text(SMALL_CONFIG)
    with own_ovs.bridge():
        assert xenoovs("apply", config, "--yes", "--db", own_ovs.ovs.db).status == 0
        process = start("verify-offload", config, "--watch", "--db", own_ovs.ovs.db)
        try:
            _read_until(process.stdout, REPORT)
            yield process
        finally:
            process.kill()
            process.communicate()


def _read_until(lines: object, text: str) -> None:
    assert any(text in line for line in lines)  # type: ignore[attr-defined]


def test_it_says_that_there_is_none_and_shows_the_new_one(watching: subprocess.Popen[str], own_ovs: DummyOvs) -> None:
    stop_process(own_ovs.ovs.pids()[0])
    _read_until(watching.stderr, "cannot check now; retrying: ")
    start_vswitchd(own_ovs.ovs, datapath=Datapath.DUMMY)
    for _ in range(2):  # One may have been written before.
        _read_until(watching.stdout, REPORT)
    watching.send_signal(signal.SIGINT)
    said = finish(watching)
    assert (said.status, "Traceback" in said.err) == (130, False)
