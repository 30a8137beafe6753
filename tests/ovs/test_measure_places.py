"""Commands on machines: here, and by a real sshd in a namespace; what was started ends, also after kill -9."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.ovs.sshd import new_keys
from tests.patience import eventually
from xenoovs.errors import CommandFailed, CommandMissing, CommandTimeout, MeasureError
from xenoovs.lab.place import Place, machine_by_ssh, this_machine
from xenoovs.switch.process import run

NAMESPACE = f"t{os.getpid()}-sshd"


@pytest.fixture(scope="module")
def ssh_options(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Return options of ssh that reach a real sshd in a namespace of its own, with a key of its own."""
    keys = new_keys(tmp_path_factory.mktemp("sshd"))
    run(["ip", "netns", "add", NAMESPACE])
    try:
        yield keys.options(keys.command(NAMESPACE))
    finally:
        run(["ip", "netns", "del", NAMESPACE])


@pytest.fixture(params=["here", "ssh"])
def opened(request: pytest.FixtureRequest) -> Callable[[], Place]:
    if request.param == "here":
        return this_machine
    options = request.getfixturevalue("ssh_options")
    return lambda: machine_by_ssh("ssh://dpu", target="dpu", port=None, options=options)


def test_commands_are_started_fed_read_and_ended(opened: Callable[[], Place]) -> None:
    with opened() as place:
        assert place.is_root
        assert place.run(["sh", "-c", "cat; echo $A"], stdin="x\n", env={"A": "b c"}).stdout == "x\nb c\n"
        command = place.start(["cat"], stdin="one\n")
        assert next(command.lines(30)) == "one"
        command.feed("two\n")
        assert next(command.lines(30)) == "two"
        other = place.start(["sh", "-c", "echo beside; exit 3"])
        assert (other.wait(30).stdout, other.exit_code) == ("beside\n", 3)
        assert command.end().exit_code == -signal.SIGTERM
        stubborn = place.start(["sh", "-c", "trap '' TERM; echo up; while :; do sleep 1; done"])
        assert next(stubborn.lines(30)) == "up"
        assert stubborn.end().exit_code == -signal.SIGKILL


def test_a_process_with_a_thousand_descriptors_can_open_a_place() -> None:
    """select(2) refuses descriptors of 1024 and more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    lowest_above = fcntl.fcntl(0, fcntl.F_DUPFD, 1024)
    opened = [os.dup(0) for _ in range(lowest_above)]
    try:
        with this_machine() as place:
            assert place.run(["echo", "here"]).stdout == "here\n"
    finally:
        for descriptor in (lowest_above, *opened):
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_failures_name_the_command(opened: Callable[[], Place]) -> None:
    with opened() as place:
        with pytest.raises(CommandMissing, match="apt-get install tcpreplayy"):
            place.run(["tcpreplayy"])
        with pytest.raises(CommandFailed, match="no such thing"):
            place.run(["sh", "-c", "echo no such thing >&2; exit 1"])
        with pytest.raises(CommandTimeout):
            place.run(["sleep", "100"], timeout_s=0.2)
        assert place.run(["echo", "still there"]).stdout == "still there\n"


def test_large_input_and_output_pass(opened: Callable[[], Place]) -> None:
    text = "0123456789abcde\n" * 100_000
    with opened() as place:
        assert place.run(["cat"], stdin=text, timeout_s=90).stdout == text


_KILLED = """\
import os, sys, time
from xenoovs.lab.place import machine_by_ssh, this_machine
options, marker = sys.argv[2:], sys.argv[1]
place = machine_by_ssh("dpu", target="dpu", port=None, options=options) if options else this_machine()
command = place.start(["sh", "-c", f"echo $$ > {marker}.pid; exec sleep 1000"])
with place.undone_at_end(["touch", f"{marker}.undone"]):
    while not (os.path.exists(f"{marker}.pid") and os.path.getsize(f"{marker}.pid")):
        place.pump(0.1)
    open(f"{marker}.ready", "w")
    time.sleep(1000)
"""


@pytest.mark.parametrize("way", ["here", "ssh"])
def test_what_was_started_ends_and_is_undone_after_a_kill(way: str, tmp_path: Path, ssh_options: list[str]) -> None:
    marker = tmp_path / "marker"
    options = ssh_options if way == "ssh" else []
    process = subprocess.Popen([sys.executable, "-c", _KILLED, str(marker), *options])
    try:
        eventually(marker.with_suffix(".ready").exists, "the command runs")
        pid = int(marker.with_suffix(".pid").read_text())
        assert Path(f"/proc/{pid}").exists()
    finally:
        process.kill()
        process.wait()
    eventually(lambda: not Path(f"/proc/{pid}").exists(), "the command ended")
    eventually(marker.with_suffix(".undone").exists, "the change is undone")


def test_a_machine_that_cannot_be_reached_says_what_has_to_work(ssh_options: list[str], tmp_path: Path) -> None:
    wrong = [option.replace("/user", "/missing") if option.endswith("/user") else option for option in ssh_options]
    with pytest.raises(MeasureError, match="ssh -o BatchMode=yes dpu python3 -V` must work without a question") as no:
        machine_by_ssh("ssh://dpu", target="dpu", port=None, options=[*wrong, "-o", "IdentitiesOnly=yes"])
    assert "Permission denied" in str(no.value)


def test_a_connection_that_breaks_is_an_error_and_no_wait(ssh_options: list[str]) -> None:
    with machine_by_ssh("ssh://dpu", target="dpu", port=None, options=ssh_options) as place:
        parent = int(place.run(["sh", "-c", "echo $PPID"]).stdout)
        os.kill(parent, signal.SIGKILL)
        with pytest.raises(MeasureError, match="ssh://dpu"):
            place.run(["sleep", "100"], timeout_s=60)


def test_a_lock_is_held_until_all_is_undone(opened: Callable[[], Place], tmp_path: Path) -> None:
    name = f"{tmp_path} {opened}"
    with opened() as place, opened() as other:
        assert place.lock(name)
        assert place.lock(f"{name} of another interface")
        assert not other.lock(name)
        assert not place.lock(name)
    with opened() as place:
        assert place.lock(name)
