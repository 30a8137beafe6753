"""Every experiment on machines that only ssh reaches: a real sshd in each namespace of a lab."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command_line import XENOOVS, CommandLine
from tests.ovs.dummy import ofctl
from tests.ovs.lab_support import lab_fixture
from tests.ovs.sshd import new_keys
from tests.ovs.test_measure_load import BALANCER, flows
from tests.patience import eventually
from xenoovs.lab.host import processes_in
from xenoovs.lab.lab import DIRECTORY_VARIABLE, Lab
from xenoovs.measure import run as measure_run
from xenoovs.measure.machines_bed import open_machines_bed
from xenoovs.switch.process import run

lab = lab_fixture("ssh", BALANCER)


@pytest.fixture(scope="module")
def config(lab: Lab) -> Path:
    return lab.directory.parent / "my.yaml"


@pytest.fixture(scope="module")
def bed(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The file of a bed, whose machines are the namespaces of the lab."""
    keys, topology = new_keys(tmp_path_factory.mktemp("sshd")), lab.topology
    client = f"interface: {topology.clients.interface}"
    namespaces = {"clients": topology.clients.namespace, **{m.names[0]: m.namespace for m in topology.machines}}
    commands = {name: keys.command(namespace) for name, namespace in namespaces.items()}
    commands["dpu"] = keys.command(topology.switch_namespace, env=lab.ovs.env)
    with_xenoovs = {
        **lab.ovs.env,
        "PATH": f"{keys.directory}/dpu-bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    }
    commands["dpu-with-xenoovs"] = keys.command(topology.switch_namespace, env=with_xenoovs)
    backends = "".join(
        f"  {m.names[0]}: {{host: 'ssh://{m.names[0]}', interface: eth0, address: {m.own_addresses[0]}}}\n"
        for m in topology.machines
    )
    path = keys.directory / "bed.yaml"
    path.write_text(
        f"version: 1\ngenerator: {{host: 'ssh://clients', {client}}}\n"
        f"client: {{host: 'ssh://clients', {client}, address: 198.19.0.1}}\n"
        f"dpu: {{host: 'ssh://dpu', uplinks: [p0], mac: '{topology.clients.gateway_mac}'}}\nbackends:\n{backends}"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{keys.program(commands)}:{os.environ['PATH']}")
        yield path


@pytest.fixture(autouse=True)
def restored(lab: Lab, config: Path, xenoovs: CommandLine, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(measure_run, "_QUICK_S", 3600.0)
    assert xenoovs("apply", config, "--lab", lab.name, "--yes").status == 0
    before = flows(lab)
    yield
    assert flows(lab) == before
    eventually(lambda: not processes_in(lab.topology.clients.namespace), "the programs end")


@pytest.mark.parametrize(
    ("experiment", "options", "points"),
    [
        ("load rate", ("--sizes", "64,1518", "--trial", "300ms", "--repeats", "1"), 2),
        pytest.param("load loss", ("--trial", "300ms", "--repeats", "1"), 6, marks=pytest.mark.long),
        ("load latency", ("--splits", "0/100,1/1", "--trial", "300ms"), 6),
        ("echo", (), 11),
        ("paths", ("--repeats", "1"), 8),
    ],
)
def test_a_whole_run(
    experiment: str,
    options: tuple[str, ...],
    points: int,
    bed: Path,
    config: Path,
    tmp_path: Path,
    xenoovs: CommandLine,
) -> None:
    at = ("--bed", bed, "--out", tmp_path, "--quick", "-o", "json")
    said = xenoovs("measure", *experiment.split(), config, *at, *options)
    assert said.status == 0, said.err
    document = json.loads(said.out)
    assert (document["kind"], len(document["samples"])) == ("machines", points)
    for sample in document["samples"]:
        values, point = sample["values"], sample["point"]
        for prefix in ("", "beside_") if "beside" in point else ("",) if experiment == "paths" else ():
            assert values[f"{prefix}sent"] == values[f"{prefix}received"] + values[f"{prefix}lost"]
        if "matched" in values:
            assert values["matched"] > 0
            assert values["offloaded_packets"] == 0
        if "received_by_backend" in values:
            assert sum(values["received_by_backend"].values()) == values["received"]
            assert values["loss_share"] == pytest.approx(max(0.0, 1 - values["received"] / values["sent"]))
        if experiment in ("load latency", "echo"):
            assert min(values["rtt_us"]) > 0
        if experiment == "load latency":
            assert values["timestamps"] == "kernel"
            assert len(values["rtt_us"]) == values["received"] <= values["sent"]
        if point.get("split") == "0/100" and point["base_load"] == 0.5:
            assert values["base_received_by_backend"]["heavy"] <= 20 < values["base_received_by_backend"]["light"]


def test_offload_is_refused_where_the_dpu_has_no_xenoovs(
    bed: Path, config: Path, tmp_path: Path, xenoovs: CommandLine
) -> None:
    at = ("--bed", bed, "--out", tmp_path, "--quick", "--yes")
    said = xenoovs("measure", "echo", config, *at, "--offload", "both")
    assert said.status == 1
    assert said.err == (
        "error: --offload restarts Open vSwitch by `xenoovs doctor`, and ssh://dpu has no xenoovs: install it there\n"
    )
    assert not [*tmp_path.iterdir()]


DPU_ADDRESS, DPU_DEVICE, REPRESENTOR = "10.3.10.46", "enp3s0f0s0", "en3f0pf0sf0"


@pytest.fixture
def dpu_application(lab: Lab, bed: Path, tmp_path: Path) -> Iterator[Path]:
    """The same bed, where the dpu has an address that clients reach, and a xenoovs.

    As on a DPU, the address is that of a device whose representor is a port of the bridge. The Open vSwitch of a lab is
    no service of systemd: that xenoovs restarts the lab's.
    """
    bridge, inside = lab.topology.bridge, ("ip", "netns", "exec", lab.topology.switch_namespace)
    clients = lab.topology.clients
    ends = (end for link in lab.topology.links for end in (link.near, link.far))
    client_mac = next(end.mac for end in ends if end.interface == clients.interface)
    run([*inside, "ip", "link", "add", DPU_DEVICE, "type", "veth", "peer", "name", REPRESENTOR])
    for name in (DPU_DEVICE, REPRESENTOR):
        run([*inside, "ip", "link", "set", "dev", name, "up"])
    run([*inside, "ip", "address", "add", f"{DPU_ADDRESS}/32", "dev", DPU_DEVICE])
    run([*inside, "ip", "route", "add", "198.18.0.0/15", "dev", DPU_DEVICE])
    run([*inside, "ip", "neigh", "replace", "198.19.0.1", "lladdr", str(client_mac), "dev", DPU_DEVICE])
    # A veth leaves checksums to a NIC that is not there, and the datapath in user space passes them on.
    run([*inside, "ethtool", "-K", DPU_DEVICE, "tx", "off"])
    mac = run([*inside, "cat", f"/sys/class/net/{DPU_DEVICE}/address"]).stdout.strip()
    lab.ovs.vsctl("add-port", bridge, REPRESENTOR)
    added = (
        f"priority=50000,ip,in_port=p0,ip_dst={DPU_ADDRESS},actions=mod_dl_dst:{mac},output:{REPRESENTOR}\n"
        f"priority=50000,ip,in_port={REPRESENTOR},actions=output:p0\n"
    )
    ofctl(lab.ovs, "-O", "OpenFlow14", "--names", "add-flows", bridge, "-", stdin=added)
    program = bed.parent / "dpu-bin" / "xenoovs"
    program.parent.mkdir(exist_ok=True)
    program.write_text(
        f'#!/bin/sh\n[ "$1" = doctor ] || exit 9\nshift\n'
        f"export {DIRECTORY_VARIABLE}={lab.directory.parent} PYTHONPATH={Path(__file__).parents[2]}\n"
        f'echo "$@" >> {tmp_path}/restarts\n'
        f'exec {XENOOVS} doctor --lab {lab.name} "$@"\n'
    )
    program.chmod(0o755)
    text = bed.read_text().replace("'ssh://dpu', uplinks", f"'ssh://dpu-with-xenoovs', address: {DPU_ADDRESS}, uplinks")
    path = tmp_path / "bed.yaml"
    path.write_text(text)
    yield path
    for match in (f"ip,in_port=p0,ip_dst={DPU_ADDRESS}", f"ip,in_port={REPRESENTOR}"):
        remove = ("--names", "--strict", "del-flows", bridge, f"priority=50000,{match}")
        ofctl(lab.ovs, "-O", "OpenFlow14", *remove)
    lab.ovs.vsctl("del-port", bridge, REPRESENTOR)
    run([*inside, "ip", "link", "del", DPU_DEVICE])


def test_offload_on_and_off_to_a_backend_and_to_a_program_on_the_dpu(
    dpu_application: Path, config: Path, lab: Lab, tmp_path: Path, xenoovs: CommandLine
) -> None:
    before = flows(lab)
    at = ("--bed", dpu_application, "--out", tmp_path / "results", "--quick", "--yes", "-o", "json")
    said = xenoovs("measure", "echo", config, *at, "--offload", "both")
    assert said.status == 0, said.err
    samples = json.loads(said.out)["samples"]
    sizes = {4**power for power in range(2, 13)}
    measured = {(s["point"]["target"], s["point"]["offload"], s["point"]["bytes"]) for s in samples}
    assert measured == {
        (target, offload, size) for target in ("backend", "dpu") for offload in ("on", "off") for size in sizes
    }
    assert all(min(sample["values"]["rtt_us"]) > 0 for sample in samples)
    # Off is what was set before, so that one change each suffices.
    restarts = (tmp_path / "restarts").read_text().splitlines()
    assert sorted(restarts) == ["--set offload=off --yes", "--set offload=on --yes"]
    assert flows(lab) == before


def test_a_second_experiment_is_refused_whoever_began_the_first(
    bed: Path, config: Path, lab: Lab, tmp_path: Path, xenoovs: CommandLine
) -> None:
    with open_machines_bed(bed, BALANCER):
        said = xenoovs("measure", "load", "rate", config, "--bed", bed, "--out", tmp_path)
        assert said.status == 1
        assert f"another `xenoovs measure` uses the dpu of {bed} now" in said.err
