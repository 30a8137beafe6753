"""Loads in a lab: what is counted is what was sent, shares are those of the blocks, and nothing is left behind."""

from __future__ import annotations

import json
from ipaddress import ip_address
from pathlib import Path

import pytest

from tests.command_line import CommandLine, start
from tests.ovs.dummy import ofctl
from tests.ovs.lab_support import backend, balancer, lab_fixture, lab_name, service
from tests.patience import eventually
from xenoovs.lab.host import processes_in
from xenoovs.lab.lab import Lab
from xenoovs.measure.commands import run as measure_run
from xenoovs.measure.frames import load_profile
from xenoovs.measure.load import load_bench
from xenoovs.measure.machines_bed import open_lab_bed
from xenoovs.measure.samples import find_runs, read_recorded
from xenoovs.model.address import Family
from xenoovs.model.balancer import Balancer, Claim, PortRange, Protocol
from xenoovs.switch.process import run

DNS = service(
    "dns",
    Claim(frozenset({Family.IPV4}), (ip_address("10.3.10.45"),), Protocol.UDP, (PortRange(53, 53),)),
    backends=[backend("heavy", "02:00:5e:10:00:02", weight=3), backend("light", "02:00:5e:10:00:03")],
)
BALANCER: Balancer = balancer(DNS)
RATES = ("--sizes", "64", "--trial", "300ms", "--repeats", "1", "-o", "json")


lab = lab_fixture("load", BALANCER)


@pytest.fixture
def config(lab: Lab, xenoovs: CommandLine) -> Path:
    path = lab.directory.parent / "my.yaml"
    assert xenoovs("apply", path, "--lab", lab.name, "--yes").status == 0
    return path


@pytest.fixture(autouse=True)
def without_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a quick run take as long as it takes: the machine may have other work."""
    monkeypatch.setattr(measure_run, "_QUICK_S", 3600.0)


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


def test_a_small_load_arrives_in_the_shares_of_the_blocks(lab: Lab, config: Path) -> None:
    with open_lab_bed(lab.name, BALANCER) as bed:
        profile = load_profile(
            bed.balancer, bed.service, source_mac=bed.generator.mac, gateway_mac=bed.gateway_mac, clients=1000
        )
        with load_bench(bed, profile) as bench:
            bench.learn(frame_bytes=64)
            found = bench.trial(frame_bytes=64, offered_pps=2000, seconds_s=1.0)
    assert abs(found.frames.sent - 2000) <= 20
    assert abs(found.frames.switched - found.frames.sent) <= 20
    received = found.frames.received_by_backend
    assert abs(received["heavy"] / found.frames.received - 0.75) < 0.05
    assert found.frames.received <= found.frames.sent + 20
    assert left_over(lab) == []


def test_rate_and_loss_store_samples_whose_counts_agree(
    lab: Lab, config: Path, tmp_path: Path, xenoovs: CommandLine
) -> None:
    for command, points in (("rate", 1), ("loss", 6)):
        said = xenoovs("measure", "load", command, config, "--lab", lab.name, "--quick", "--out", tmp_path, *RATES)
        assert said.status == 0, said.err
        document = json.loads(said.out)
        assert len(document["samples"]) == points
        assert document["kind"] == "lab"
        assert "in a lab on one machine" in document["datapath"]
        for sample in document["samples"]:
            values = sample["values"]
            assert sum(values["received_by_backend"].values()) == values["received"]
            assert values["loss_share"] == pytest.approx(max(0.0, 1 - values["received"] / values["sent"]))
    assert [read_recorded(path).run.experiment for path in find_runs(tmp_path)] == ["loss", "rate"]
    assert left_over(lab) == []


def test_latency_splits_the_load_and_restores_the_flows(
    lab: Lab, config: Path, tmp_path: Path, xenoovs: CommandLine
) -> None:
    before = flows(lab)
    options = ("--splits", "0/100,50/50", "--trial", "300ms", "--repeats", "1", "--quick", "-o", "json")
    said = xenoovs("measure", "load", "latency", config, "--lab", lab.name, "--out", tmp_path, *options)
    assert said.status == 0, said.err
    samples = json.loads(said.out)["samples"]
    assert len(samples) == 6
    for sample in samples:
        values = sample["values"]
        assert values["timestamps"] == "kernel"
        assert 0 < len(values["rtt_us"]) == values["received"] <= values["sent"]
        assert min(values["rtt_us"]) > 0
        if sample["point"] == {"split": "0/100", "base_load": 0.5}:
            assert values["base_received_by_backend"]["heavy"] <= 20 < values["base_received_by_backend"]["light"]
    assert flows(lab) == before
    assert left_over(lab) == []


def test_flows_come_back_after_a_killed_experiment(lab: Lab, config: Path, tmp_path: Path) -> None:
    before = flows(lab)
    process = start(
        "measure",
        "load",
        "latency",
        config,
        "--lab",
        lab.name,
        "--splits",
        "1/0",
        "--quick",
        "--trial",
        "300ms",
        "--out",
        tmp_path,
    )
    eventually(lambda: flows(lab) != before or process.poll() is not None, "the split is on the bridge")
    assert process.poll() is None
    process.kill()
    process.communicate()
    eventually(lambda: flows(lab) == before, "the flows come back")
    eventually(lambda: not left_over(lab), "everything that was started has ended, and was undone")


def test_without_flows_the_error_says_what_to_do(lab: Lab, config: Path, tmp_path: Path, xenoovs: CommandLine) -> None:
    assert xenoovs("remove", config, "--lab", lab.name, "--yes").status == 0
    said = xenoovs("measure", "load", "rate", config, "--lab", lab.name, "--quick", "--out", tmp_path, *RATES)
    assert said.status == 1
    assert "no frame reached a backend: are the flows of the config installed (`xenoovs apply`)" in said.err
    assert not [*tmp_path.iterdir()]
    assert left_over(lab) == []


def test_a_second_experiment_in_the_same_lab_is_refused(
    lab: Lab, config: Path, tmp_path: Path, xenoovs: CommandLine
) -> None:
    with open_lab_bed(lab.name, BALANCER):
        said = xenoovs("measure", "load", "rate", config, "--lab", lab.name, "--out", tmp_path)
        assert said.status == 1
        assert f"another `xenoovs measure` uses lab {lab.name} now, or what" in said.err
    with open_lab_bed(lab.name, BALANCER):
        pass  # The lock has ended with the experiment.


def test_wrong_options_are_one_sentence(lab: Lab, config: Path, tmp_path: Path, xenoovs: CommandLine) -> None:
    at = ("--lab", lab.name, "--out", tmp_path)
    assert (
        "no size of frames, with FCS: write 64 to 1518." in xenoovs("measure", "load", "rate", *at, "--sizes", "63").err
    )
    assert "of loss 64]" in xenoovs("measure", "load", "--help").out
    assert "'x' is not a list of sizes" in xenoovs("measure", "load", "rate", *at, "--sizes", "x").err
    assert "Name one bed: a lab with --lab" in xenoovs("measure", "load", "rate", config).err
    assert "the config has no service dnz, only dns. Did you mean dns?" in (
        xenoovs("measure", "load", "rate", config, *at, "--service", "dnz").err
    )
    assert "holds no run" in xenoovs("measure", "load", "rate", config, *at, "--resume").err
    nowhere = ("--lab", lab.name, "--out", tmp_path / "nothing")
    assert f"{tmp_path}/nothing does not exist, so it holds no run of experiment rate" in (
        xenoovs("measure", "load", "rate", config, *nowhere, "--resume").err
    )
    for split in ("x/1", "0/0", "1/2/3", "-1/2", ""):
        said = xenoovs("measure", "load", "latency", *at, "--splits", split)
        assert (said.status, f"{split!r} is not a split such as 70/30 or 1/3" in said.err) == (64, True)
    said = xenoovs("measure", "load", "rate", *at, "--trial", "0s")
    assert (said.status, "'0s' is no time at all: it has to be above 0" in said.err) == (64, True)
    assert (
        f"there is no lab {lab_name('none')}"
        in xenoovs("measure", "load", "rate", config, "--lab", lab_name("none")).err
    )
