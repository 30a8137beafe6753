"""`xenoovs measure paths`: the file of paths, and the split as weights that a config takes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.command_line import CommandLine
from tests.unit.measure.made import paths_run, rate_run, write
from xenoovs.datapath.database import BridgeState, Database, PortState
from xenoovs.datapath.fact import NOT_READ
from xenoovs.datapath.host import Device, HostFacts
from xenoovs.measure.designs import way_of
from xenoovs.model.load import parse_config
from xenoovs.model.templates import read_template


def _faked(monkeypatch: pytest.MonkeyPatch, *devices: Device) -> None:
    """Let the host have one bridge with these devices as ports."""
    ports = tuple(PortState(device.name) for device in devices)
    database = Database(bridges=(BridgeState("ovsbr1", (*ports, PortState("ovsbr1"))),))
    facts = HostFacts(True, database, NOT_READ, {device.name: device for device in devices})
    monkeypatch.setattr("xenoovs.measure.commands.paths.check_reachable", lambda _endpoint: None)
    monkeypatch.setattr("xenoovs.measure.commands.paths.gather", lambda _endpoint: facts)


def test_the_paths_of_a_dpu_are_listed(xenoovs: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    behind = {"p0": "p0", "pf0hpf": "c1pf0", "en3f0pf0sf0": "pf0sf0"}
    _faked(monkeypatch, *(Device(name, True, 1500, port_name=port_name) for name, port_name in behind.items()))
    result = xenoovs("measure", "paths", "--list")
    assert "  - {name: p0-en3f0pf0sf0, kind: soc, capacity: , uses: [{resource: nic-cores}, " in result.out
    assert "  - {name: p0-pf0hpf, kind: host, capacity: , uses: [{resource: nic-cores}, " in result.out
    assert "  - {name: p0-pf0hpf-software, kind: software, capacity: , uses: [{resource: arm-cores}]}" in result.out


def test_without_a_nic_the_uplink_is_named(xenoovs: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    _faked(monkeypatch, Device("p0", True, 1500), Device("b1", True, 1500))
    assert (
        "no port of a bridge is an uplink of a NIC; name one with --uplink: p0, b1"
        in xenoovs("measure", "paths", "--list").err
    )
    assert "name: p0-b1, kind: software" in xenoovs("measure", "paths", "--list", "--uplink", "p0").out
    assert "no bridge has a port p9; there are p0, b1" in xenoovs("measure", "paths", "--list", "--uplink", "p9").err


def test_a_list_in_json_can_be_filled_in(xenoovs: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _faked(monkeypatch, Device("p0", True, 1500, port_name="p0"), Device("pf0hpf", True, 1500, port_name="c1pf0"))
    document = json.loads(xenoovs("measure", "paths", "--list", "-o", "json").out)
    assert [resource["name"] for resource in document["resources"]] == ["nic-cores", "pcie-switch", "arm-cores"]
    for each in (*document["resources"], *document["paths"]):
        assert each["capacity"] is None
        each["capacity"] = 10
    (tmp_path / "dpu.json").write_text(json.dumps(document))
    assert json.loads(xenoovs("measure", "paths", tmp_path / "dpu.json", "-o", "json").out)["total"] == "20"


def test_a_run_is_planned_again_with_the_results_of_its_pairs(xenoovs: CommandLine, tmp_path: Path) -> None:
    (run,) = write(tmp_path, paths_run({"fips2": 300e3, "fips3": 200e3}, 1.2)).iterdir()
    result = xenoovs("measure", "paths", run)
    assert result.status == 0, result.err
    lines = [line.split() for line in result.out.splitlines()]
    assert ["fips2", "in", "300k", "300k", "to", "300k", "100us", "5us"] in lines
    assert ["fips2,", "fips3", "same", "120%", "120%", "to", "120%", "shared"] in lines
    assert ["fips2", "opposite", "120%", "120%", "to", "120%", "shared"] in lines
    assert "limited by fips2 with fips3" in result.out
    assert "# interval: 95 % confidence, of 5 repeats." in (run / "paths.yaml").read_text()
    (few,) = write(tmp_path / "few", paths_run({"fips2": 300e3, "fips3": 200e3}, 1.2, repeats=3)).iterdir()
    result = xenoovs("measure", "paths", few)
    assert "300k to 300k of 3" in result.out
    assert "of 3: from the least to the greatest of so many repeats; an interval needs 5" in result.out
    assert "# interval: the least and the greatest, of 3 repeats." in (few / "paths.yaml").read_text()
    assert "the plan counts an undecided pair as what it reached: more repeats would decide" in result.out
    (other,) = write(tmp_path / "other", rate_run()).iterdir()
    assert "is a run of experiment rate: name one of `measure paths`" in xenoovs("measure", "paths", other).err


def test_a_run_that_lacks_samples_gives_no_weights(xenoovs: CommandLine, tmp_path: Path) -> None:
    whole = paths_run({"fips2": 300e3, "fips3": 200e3}, repeats=3)
    first = next(index for index, one in enumerate(whole.samples) if one.point["path"] == "fips3")
    (run,) = write(tmp_path / "r", replace(whole, samples=whole.samples[first : first + 1])).iterdir()
    out, planned = tmp_path / "paths.json", len(whole.samples)
    lacking = f"{planned - 1} of {planned} samples are missing, and no path to fips2 is measured"
    result = xenoovs("measure", "paths", run)
    assert (result.status, f"no weights: {lacking}; --resume measures them\n" in result.out) == (0, True), result.out
    assert f"# Incomplete: {lacking}.\n" in (run / "paths.yaml").read_text()
    result = xenoovs("measure", "paths", run, "--weights", out)
    assert result.status == 1
    assert result.err == (
        f"error: {out} is not written: in {run} {lacking}; the command that measured it goes on with --resume\n"
    )
    assert not out.exists()


def test_each_way_has_its_name_and_encrypted_tunnels_and_several_ways_too() -> None:
    text = read_template("next-hops")
    secret = text.replace("local: 192.168.77.1, key: 5001}", "local: 192.168.77.1, key: 5001, ipsec: {psk_file: /psk}}")
    mixed = secret.replace("{name: d2, mac: 02:00:00:00:0a:02, ", "{name: d2, mac: 02:00:00:00:0a:02, egress: gre0, ")
    mixed = mixed.replace("egress: gre0, weight: 50}", "egress: gre0, remote: 192.168.77.30, weight: 50}", 1)
    for config, ways in (
        (text, ["direct", "nat", "vxlan", "geneve", "gre"]),
        (mixed, ["direct and gre+ipsec", "nat", "vxlan+ipsec", "geneve+ipsec", "gre+ipsec"]),
    ):
        balancer = parse_config(config, file="next-hops")
        assert [way_of(service, balancer) for service in balancer.services] == ways
