"""Paths of a lab: counts that add up frame by frame, a shared bottleneck that the pairs find, and nothing left."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

import pytest

from tests.command_line import CommandLine, start
from tests.ovs.dummy import ofctl
from tests.ovs.lab_support import DNS_CLAIM, backend, balancer, lab_fixture, service
from tests.ovs.test_measure_load import flows, is_free, left_over, stored
from tests.patience import eventually
from xenoovs.lab.lab import Lab
from xenoovs.measure import bed_paths as experiment_of_paths
from xenoovs.measure import run as measure_run
from xenoovs.measure.bed import Bed
from xenoovs.measure.bed_paths import PathBench, PathLoad, path_bench, paths_experiment
from xenoovs.measure.machines_bed import open_lab_bed
from xenoovs.measure.path_plan import Direction, load_paths
from xenoovs.measure.samples import BedKind, find_runs, read_recorded
from xenoovs.model.load import load_config
from xenoovs.switch.process import run

pytestmark = pytest.mark.timeout(900)

BALANCER = balancer(
    service(
        "dns",
        DNS_CLAIM,
        backends=[
            backend("a", "02:00:5e:10:00:02"),
            backend("b", "02:00:5e:10:00:03"),
            backend("c", "02:00:5e:10:00:04", egress="pf0hpf"),
        ],
    )
)
CABLE_PPS, FRAME_BYTES = 200, 60
"""A rate that any machine sends and forwards, and what a frame of the load has without its checksum."""
OVERLOAD = 5.0


def _limit_cables(made: Lab) -> None:
    rate, waiting = f"{CABLE_PPS * FRAME_BYTES * 8}bit", f"{CABLE_PPS * FRAME_BYTES // 2}"
    for cable in ("p1", "pf0hpf"):
        # `a` and `b` are behind one cable, `c` is behind another. Frames for half a second wait for it, so that it goes
        # on at its rate while the senders and the switch get no processor.
        tbf = ["tbf", "rate", rate, "burst", "1600", "limit", waiting]
        run(["tc", "-n", made.topology.switch_namespace, "qdisc", "add", "dev", cable, "root", *tbf])


lab = lab_fixture("paths", BALANCER, _limit_cables)


@pytest.fixture(autouse=True)
def without_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a quick run take as long as it takes: the machine may have other work."""
    monkeypatch.setattr(measure_run, "_QUICK_S", 3600.0)


def dropped(lab: Lab, cable: str) -> int:
    said = run(["tc", "-s", "-n", lab.topology.switch_namespace, "qdisc", "show", "dev", cable, "root"]).stdout
    found = re.search(r"\(dropped (\d+),", said)
    assert found
    return int(found[1])


def transmitted(lab: Lab, cable: str) -> int:
    file = f"/sys/class/net/{cable}/statistics/tx_packets"
    argv = ["ip", "netns", "exec", lab.topology.switch_namespace, "cat", file]
    return int(run(argv).stdout)


def flow_packets(lab: Lab, match: str) -> int:
    text = ofctl(lab.ovs, "-O", "OpenFlow14", "--names", "dump-flows", lab.topology.bridge, match)
    return sum(map(int, re.findall(r"n_packets=(\d+)", text)))


@contextmanager
def learnt_bench(bed: Bed) -> Iterator[PathBench]:
    """Prepare a bed whose switches know both ends of each path."""
    directions = (Direction.IN, Direction.OUT)
    with path_bench(bed, directions, seed=0) as bench:
        warm_up = paths_experiment(bench, directions, quick=True).warm_up
        assert warm_up is not None
        warm_up()
        yield bench


def test_every_frame_that_was_sent_was_received_or_lost(lab: Lab) -> None:
    with open_lab_bed(lab.name, BALANCER) as bed, learnt_bench(bed) as bench:
        path = bench.path("a")
        match = f"udp,in_port=p0,nw_dst={path.inward}"
        run(["ovs-appctl", "revalidator/purge"], env=lab.ovs.env)
        before, drops, cable = flow_packets(lab, match), dropped(lab, "p1"), transmitted(lab, "p1")
        (trial,), _ = bench.run([PathLoad(path, Direction.IN, 2000.0)], seconds_s=0.5)
        # Counters of flows come from those of megaflows, when these are revalidated.
        run(["ovs-appctl", "revalidator/purge"], env=lab.ovs.env)
        switched, drops = flow_packets(lab, match) - before, dropped(lab, "p1") - drops
        cable = transmitted(lab, "p1") - cable
    assert trial["sent"] == trial["received"] + trial["lost"]
    # Counters that the measurement does not use: what is lost was lost before the flow, or before the cable.
    assert cable == trial["received"]
    assert trial["lost"] == (trial["sent"] - switched) + (switched - cable)
    assert trial["sent"] - switched >= 0
    assert switched - cable > 0
    assert drops > 0
    assert [*flows(lab), *left_over(lab)] == []


def test_bug_a_switch_that_waits_for_a_processor_was_a_cable_in_the_wrong_port(lab: Lab) -> None:
    with open_lab_bed(lab.name, BALANCER) as bed, path_bench(bed, (Direction.IN,), seed=0) as bench:
        vswitchd = lab.ovs.pids()[0]
        os.kill(vswitchd, signal.SIGSTOP)
        goes_on = Timer(3.0, os.kill, (vswitchd, signal.SIGCONT))
        goes_on.start()
        try:
            bench.learn([PathLoad(bench.path("a"), Direction.IN)])
        finally:
            goes_on.join()


def test_pairs_find_the_cable_that_two_paths_share(
    lab: Lab, tmp_path: Path, xenoovs: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    # More than one frame of many, and more than the cables carry also where the senders are slow.
    monkeypatch.setitem(experiment_of_paths._TRIAL_S, (BedKind.LAB, True), 1.0)
    monkeypatch.setattr(experiment_of_paths, "_OVERLOAD", OVERLOAD)
    options = ("--quick", "--directions", "in", "--out", tmp_path, "--weights", tmp_path / "paths.json", "-o", "json")
    config = lab.directory.parent / "my.yaml"
    said = xenoovs("measure", "paths", config, "--lab", lab.name, *options)
    assert said.status == 0, said.err
    document = json.loads(said.out)
    assert "in a lab on one machine" in document["datapath"]
    assert len(document["samples"]) == 6 * 5
    for sample in document["samples"]:
        for prefix in ("", "beside_") if "beside" in sample["point"] else ("",):
            values = {key: sample["values"][prefix + key] for key in ("sent", "received", "lost")}
            assert values["sent"] == values["received"] + values["lost"], sample
    pairs = {tuple(pair["paths"]): pair for pair in document["paths"]["pairs"]}
    assert pairs["a", "b"]["verdict"] == "shared"
    assert pairs["a", "b"]["reached"] < 1.4
    for apart in (("a", "c"), ("b", "c")):
        assert pairs[apart]["verdict"] != "shared", pairs[apart]
        assert pairs[apart]["reached"] > 1.6
    known, _, unit = load_paths(Path(document["paths"]["file"]))
    assert unit == "kpps"
    assert [path.name for path in known] == ["a", "b", "c"]
    assert all(path.latency_us and path.latency_us > 0 for path in known)
    plan = document["paths"]["plan"]
    assert "a with b" in {limit["name"] for limit in plan["limits"] if limit["bottleneck"]}
    # A service takes the weights.
    text = re.sub(r", weight: \d+", "", config.read_text())
    text = text.replace("  backends:", f"  weights: {{from: {tmp_path}/paths.json}}\n    backends:", 1)
    (tmp_path / "my.yaml").write_text(text)
    weights = {each.name: each.weight for each in load_config(tmp_path / "my.yaml").services[0].backends}
    assert weights == plan["weights"]
    # One cable for two of them, and one of the same rate for the third.
    assert 0.7 < (weights["a"] + weights["b"]) / weights["c"] < 1.4
    assert [*flows(lab), *left_over(lab)] == []


def test_a_killed_run_goes_on_and_leaves_nothing(lab: Lab, tmp_path: Path, xenoovs: CommandLine) -> None:
    config = lab.directory.parent / "my.yaml"
    quick = ("--quick", "--directions", "in", "--repeats", "2")
    argv = ("measure", "paths", config, "--lab", lab.name, *quick, "--out", tmp_path)
    process = start(*argv)

    eventually(lambda: stored(tmp_path) >= 2 or process.poll() is not None, "two samples are stored")
    assert process.poll() is None
    process.kill()
    process.communicate()
    eventually(lambda: is_free(lab, BALANCER), "everything that was started has ended, and was undone")
    assert [*flows(lab), *left_over(lab)] == []
    (directory,) = find_runs(tmp_path)
    before = read_recorded(directory).samples
    said = xenoovs(*argv, "--resume")
    assert said.status == 0, said.err
    recorded = read_recorded(directory)
    assert recorded.samples[: len(before)] == before
    assert recorded.is_complete
    assert (directory / "paths.yaml").exists()
    assert [*flows(lab), *left_over(lab)] == []
