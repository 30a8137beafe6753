"""Experiments in a lab: counts are those of what was sent, a fault is one sentence, and nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.command_line import CommandLine, start
from tests.ovs.dummy import ofctl
from tests.ovs.lab_support import DNS_CLAIM, backend, balancer, lab_fixture, running_lab, service, set_flows
from tests.patience import eventually
from tests.processes import program_of
from xenoovs.errors import MeasureError
from xenoovs.lab.host import processes_in
from xenoovs.lab.lab import DIRECTORY_VARIABLE, Lab
from xenoovs.lab.place import Place
from xenoovs.measure import echo
from xenoovs.measure import run as measure_run
from xenoovs.measure.bed import Bed
from xenoovs.measure.bench import load_bench
from xenoovs.measure.echo import echo_experiment
from xenoovs.measure.frames import load_profile
from xenoovs.measure.machines_bed import open_lab_bed, open_machines_bed
from xenoovs.measure.samples import BedKind, Measurement, find_runs, read_recorded
from xenoovs.model.balancer import Balancer, OtherTraffic
from xenoovs.switch.process import run

DNS = service(
    "dns",
    DNS_CLAIM,
    backends=[backend("heavy", "02:00:5e:10:00:02", weight=3), backend("light", "02:00:5e:10:00:03")],
)
BALANCER: Balancer = balancer(DNS)


SHORT = ("--sizes", "64", "--trial", "200ms")
EXPERIMENTS = {
    "load rate": (*SHORT, "--repeats", "1"),
    "load loss": (*SHORT, "--repeats", "1"),
    "load latency": ("--splits", "1/1", "--trial", "200ms", "--repeats", "1"),
    "echo": (),
    "compare designs": (),
    "paths": ("--directions", "in"),
}


lab = lab_fixture("load", BALANCER)


@pytest.fixture
def config(lab: Lab, xenoovs: CommandLine) -> Path:
    path = lab.directory.parent / "my.yaml"
    assert xenoovs("apply", path, "--lab", lab.name, "--yes").status == 0
    return path


@pytest.fixture
def quick(lab: Lab, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[object]]:
    """The words of a quick run, which takes as long as it takes: the machine may have other work."""
    monkeypatch.setattr(measure_run, "_QUICK_S", 3600.0)
    out = ("--lab", lab.name, "--out", tmp_path, "--quick")
    return lambda experiment: ["measure", *experiment.split(), config, *out, *EXPERIMENTS[experiment]]


def left_over(lab: Lab) -> list[str]:
    """Return what a measurement has left: routes, settings of backends, generators."""
    found = []
    for machine in lab.topology.machines:
        routes = run(["ip", "-n", machine.namespace, "route", "show", "type", "blackhole"]).stdout
        check = run(["ip", "netns", "exec", machine.namespace, "cat", "/proc/sys/net/ipv4/conf/all/rp_filter"]).stdout
        found += [*routes.splitlines(), *(["rp_filter"] if check.strip() != "0" else [])]
    found += [f"process {pid}" for pid in processes_in(lab.topology.clients.namespace)]
    return found


def flows(lab: Lab) -> list[str]:
    return sorted(ofctl(lab.ovs, "-O", "OpenFlow14", "--no-stats", "dump-flows", lab.topology.bridge).splitlines()[1:])


def groups(lab: Lab) -> list[str]:
    return ofctl(lab.ovs, "-O", "OpenFlow15", "dump-groups", lab.topology.bridge).splitlines()[1:]


def is_free(lab: Lab, wanted: Balancer = BALANCER) -> bool:
    try:
        with open_lab_bed(lab.name, wanted):
            return True
    except MeasureError:
        return False


def stored(out: Path) -> int:
    return sum(len(path.read_bytes().splitlines()) for path in out.glob("*/samples.jsonl"))


def test_a_small_load_arrives_in_the_shares_of_the_blocks(lab: Lab, config: Path) -> None:
    with open_lab_bed(lab.name, BALANCER) as bed:
        profile = load_profile(
            bed.balancer, bed.service, source_mac=bed.generator.mac, gateway_mac=bed.gateway_mac, clients=1000
        )
        with load_bench(bed, profile) as bench:
            bench.learn(frame_bytes=64)
            trials = []

            def keeps_the_rate() -> bool:
                trials.append(bench.trial(frame_bytes=64, offered_pps=2000, seconds_s=1.0))
                return abs(trials[-1].frames.sent - 2000) <= 20

            # A busy machine stops the generator now and then.
            eventually(keeps_the_rate, "a load of the offered rate")
    found = trials[-1]
    assert abs(found.frames.switched - found.frames.sent) <= 20
    received = found.frames.received_by_backend
    assert abs(received["heavy"] / found.frames.received - 0.75) < 0.05
    assert found.frames.received <= found.frames.sent + 20
    assert left_over(lab) == []


def test_without_flows_the_error_says_what_to_do(
    lab: Lab, config: Path, tmp_path: Path, quick: Callable[[str], list[object]], xenoovs: CommandLine
) -> None:
    assert xenoovs("remove", config, "--lab", lab.name, "--yes").status == 0
    said = xenoovs(*quick("load rate"))
    assert said.status == 1
    assert "no frame reached a backend: are the flows of the config installed (`xenoovs apply`)" in said.err
    assert not [*tmp_path.iterdir()]
    assert left_over(lab) == []


def test_a_second_experiment_in_the_same_lab_is_refused(
    lab: Lab, quick: Callable[[str], list[object]], xenoovs: CommandLine
) -> None:
    with open_lab_bed(lab.name, BALANCER):
        said = xenoovs(*quick("load rate"))
        assert said.status == 1
        assert f"another `xenoovs measure` uses lab {lab.name} now, or what" in said.err
    assert is_free(lab)


def test_bed_check_finds_what_is_missing(lab: Lab, tmp_path: Path, xenoovs: CommandLine) -> None:
    bed, at = tmp_path / "bed.yaml", f"lab:{lab.name}"
    bed.write_text(
        f"version: 1\ngenerator: {{host: '{at}', interface: {lab.topology.clients.interface}}}\n"
        f"client: {{host: '{at}', interface: {lab.topology.clients.interface}, address: 198.19.0.1}}\n"
        f"dpu: {{host: '{at}', uplinks: [p0, p9]}}\n"
        f"backends:\n  heavy: {{host: '{at}', interface: eth0}}\n  light: {{host: 'netns:none', interface: eth0}}\n"
    )
    said = xenoovs("measure", "check", bed, "-o", "json")
    document = json.loads(said.out)
    assert (said.status, document["usable"]) == (2, False)
    problems = {(each["role"], each["problem"]) for each in document["findings"] if each["is_error"]}
    assert ("dpu", "there is no interface p9") in problems
    (light,) = (problem for role, problem in problems if role == "light")
    assert light.startswith("commands do not run in netns:none: Cannot open network namespace")
    assert {role for role, _ in problems} == {"dpu", "light"}, problems
    bed.write_text(bed.read_text().replace(", p9", "").replace("netns:none", at))
    said = xenoovs("measure", "check", bed)
    assert said.status == 0, said.out
    with open_machines_bed(bed, BALANCER) as opened:
        assert opened.kind is BedKind.LAB


def test_what_is_not_there_is_one_sentence(lab: Lab, config: Path, tmp_path: Path, xenoovs: CommandLine) -> None:
    nowhere = tmp_path / "nothing"
    for experiment, options, message in (
        ("load rate", ("--service", "dnz"), "the config has no service dnz, only dns. Did you mean dns?"),
        ("load rate", ("--resume",), "holds no run"),
        (
            "load rate",
            ("--resume", "--out", nowhere),
            f"{nowhere} does not exist, so it holds no run of experiment rate",
        ),
        ("echo", ("--offload", "both"), "has the datapath of Open vSwitch in user space, which offloads nothing"),
    ):
        said = xenoovs("measure", *experiment.split(), config, "--lab", lab.name, "--out", tmp_path, *options)
        assert (said.status, said.out, message in said.err) == (1, "", True), said.err


def test_echoes_come_back_where_answers_have_a_way_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))
    wanted = balancer(DNS, other=OtherTraffic.DROP)
    with running_lab("echo-own", wanted, tmp_path) as lab, open_lab_bed(lab.name, wanted) as bed:
        measured = two_messages(bed)
        assert isinstance(rtt_us := measured.values["rtt_us"], list)
        assert len(rtt_us) == 2


def test_a_message_that_does_not_come_back_is_an_error(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(echo, "_SOURCE", echo._SOURCE.replace("TIMEOUT_S = 20.0", "TIMEOUT_S = 0.5"))
    set_flows(lab)
    with open_lab_bed(lab.name, BALANCER) as bed, pytest.raises(MeasureError, match="no TCP echo of 16 bytes"):
        two_messages(bed)
    assert flows(lab) == []
    eventually(lambda: all(len(processes_in(each.namespace)) == 1 for each in lab.topology.machines), "servers end")
    assert left_over(lab) == []


def two_messages(bed: Bed) -> Measurement:
    made = echo_experiment(bed, offloads=["unchanged"], quick=False, sizes=[16], messages=2)
    return made.measure(made.points[0], {})


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
    experiment: str, lab: Lab, quick: Callable[[str], list[object]]
) -> None:
    before = flows(lab)
    process = start(*quick(experiment))
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


def test_flows_come_back_after_a_killed_experiment(lab: Lab, quick: Callable[[str], list[object]]) -> None:
    before = flows(lab)
    process = start(*quick("load latency"))
    eventually(lambda: flows(lab) != before or process.poll() is not None, "the split is on the bridge")
    assert process.poll() is None
    process.kill()
    process.communicate()
    eventually(lambda: flows(lab) == before, "the flows come back")
    eventually(lambda: not left_over(lab), "everything that was started has ended, and was undone")


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
    quick: Callable[[str], list[object]],
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
    said = xenoovs(*quick(experiment))
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
