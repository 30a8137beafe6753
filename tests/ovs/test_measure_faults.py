"""What goes wrong while a lab is measured: one sentence, no sample lost, and the bed as it was before."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.command_line import CommandLine, start
from tests.ovs.dummy import ofctl
from tests.ovs.lab_support import lab_fixture
from tests.ovs.test_measure_load import BALANCER, flows, left_over
from tests.patience import eventually
from tests.processes import program_of
from xenoovs.errors import MeasureError
from xenoovs.lab.host import processes_in
from xenoovs.lab.lab import Lab
from xenoovs.lab.place import Place
from xenoovs.measure.commands import run as measure_run
from xenoovs.measure.machines_bed import open_lab_bed
from xenoovs.measure.samples import find_runs, read_recorded
from xenoovs.switch.process import run

SHORT = ("--sizes", "64", "--trial", "200ms")
EXPERIMENTS = {
    "load rate": (*SHORT, "--repeats", "1"),
    "load loss": (*SHORT, "--repeats", "1"),
    "load latency": ("--splits", "1/1", "--trial", "200ms", "--repeats", "1"),
    "echo": (),
    "compare designs": (),
    "paths": ("--directions", "in"),
}


lab = lab_fixture("faults", BALANCER)


@pytest.fixture
def config(lab: Lab, xenoovs: CommandLine) -> Path:
    path = lab.directory.parent / "my.yaml"
    assert xenoovs("apply", path, "--lab", lab.name, "--yes").status == 0
    return path


def is_free(lab: Lab) -> bool:
    try:
        with open_lab_bed(lab.name, BALANCER):
            return True
    except MeasureError:
        return False


def groups(lab: Lab) -> list[str]:
    return ofctl(lab.ovs, "-O", "OpenFlow15", "dump-groups", lab.topology.bridge).splitlines()[1:]


def stored(out: Path) -> int:
    return sum(len(path.read_bytes().splitlines()) for path in out.glob("*/samples.jsonl"))


def kill_generators(lab: Lab) -> int:
    """Kill those that run now, and return how many; one that ends by itself meanwhile does not count."""
    killed = 0
    for pid in processes_in(lab.topology.clients.namespace):
        if program_of(pid) == "tcpreplay":
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed += 1
    return killed


@pytest.mark.parametrize(
    "experiment",
    [
        "load rate",
        "paths",
        pytest.param("load latency", marks=pytest.mark.long),
        pytest.param("compare designs", marks=pytest.mark.long),
    ],
)
def test_a_generator_that_dies_ends_the_run_with_a_sentence(
    experiment: str, lab: Lab, config: Path, tmp_path: Path
) -> None:
    before = flows(lab)
    out = ("--lab", lab.name, "--out", tmp_path, "--quick")
    process = start("measure", *experiment.split(), config, *out, *EXPERIMENTS[experiment])
    killed = 0

    def kill() -> bool:
        # Where other loads count, such as those that teach the switch, it may take some.
        nonlocal killed
        killed += kill_generators(lab)
        return process.poll() is not None

    try:
        eventually(kill, "the run ends")
    finally:
        process.kill()
    _, errors = process.communicate()
    assert killed
    assert process.returncode == 1
    sentences = [line for line in errors.splitlines() if line.startswith("error: ")]
    assert len(sentences) == 1, errors
    assert "the generator ended with status -9" in sentences[0] or "no frame" in sentences[0], errors
    assert "Traceback" not in errors
    assert (flows(lab), groups(lab), left_over(lab)) == (before, [], [])


_SHORT = (("load rate", 4), ("load latency", 1), ("compare designs", 12))
_POINTS = [
    pytest.param(experiment, at, marks=() if (experiment, at) in _SHORT else pytest.mark.long)
    for experiment in EXPERIMENTS
    for at in (1, 4, 12, 30, 60)
]


@pytest.mark.parametrize(("experiment", "at"), _POINTS)
def test_ctrl_c_at_any_point_leaves_the_bed_as_it_was(
    experiment: str,
    at: int,
    lab: Lab,
    config: Path,
    tmp_path: Path,
    xenoovs: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Interrupt just before the order to a machine with number `at`."""
    before, orders = flows(lab), [0]
    send = Place.send

    def interrupted(self: Place, order: dict[str, object]) -> None:
        orders[0] += 1
        if orders[0] == at:
            raise KeyboardInterrupt
        send(self, order)

    monkeypatch.setattr(Place, "send", interrupted)
    monkeypatch.setattr(measure_run, "_QUICK_S", 3600.0)
    out = ("--lab", lab.name, "--out", tmp_path, "--quick")
    said = xenoovs("measure", *experiment.split(), config, *out, *EXPERIMENTS[experiment])
    assert said.status == 130, said.err
    assert "Traceback" not in said.err
    assert all(read_recorded(path).samples for path in (find_runs(tmp_path) if [*tmp_path.iterdir()] else ()))
    eventually(lambda: is_free(lab), "everything is undone")
    assert (flows(lab), groups(lab), left_over(lab)) == (before, [], [])


def test_a_disk_that_gets_full_loses_nothing_and_the_run_goes_on_later(
    lab: Lab, config: Path, tmp_path: Path, xenoovs: CommandLine
) -> None:
    small = tmp_path / "small"
    small.mkdir()
    run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)])
    try:
        out = ("--lab", lab.name, "--out", small / "results")
        argv = ("measure", "load", "loss", config, *out, *SHORT, "--repeats", "1")
        process = start(*argv)
        eventually(lambda: stored(small / "results") >= 2 or process.poll() is not None, "two samples are stored")
        assert process.poll() is None
        subprocess.run(["dd", "if=/dev/zero", f"of={small}/filler", "bs=1k"], stderr=subprocess.DEVNULL, check=False)
        _, errors = process.communicate()
        assert process.returncode == 1
        assert "cannot be written: No space left on device" in errors
        assert "free space there and go on with --resume" in errors
        assert "Traceback" not in errors
        (directory,) = find_runs(small / "results")
        before = read_recorded(directory).samples
        assert 2 <= len(before) < 15
        assert left_over(lab) == []
        # Without a place for a report, that of before stays.
        said = xenoovs("measure", "report", directory)
        assert (said.status, "the report cannot be written to" in said.err) == (1, True), said.err
        assert "name another directory with --out" in said.err
        assert [path.name for path in directory.iterdir() if path.name.startswith(".")] == []
        (small / "filler").unlink()
        said = xenoovs(*argv, "--resume")
        assert said.status == 0, said.err
        recorded = read_recorded(directory)
        assert recorded.is_complete
        assert recorded.samples[: len(before)] == before
    finally:
        run(["umount", str(small)])
