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
from xenoovs.measure.next_hops import way_of
from xenoovs.model.load import load_config, parse_config
from xenoovs.model.templates import read_template

PATHS = """\
version: 1
unit: Mpps
resources:
  - {name: nic-cores, capacity: 100}
  - {name: pcie-switch, capacity: 60, duplex: true}
  - {name: arm-cores, capacity: 8}
paths:
  - name: wire-to-host
    backend: fips2
    kind: host
    latency_us: 9
    uses: [{resource: nic-cores}, {resource: pcie-switch, direction: in}]
  - {name: wire-to-wire, backend: fips3, kind: wire, capacity: 80, latency_us: 5, uses: [{resource: nic-cores}]}
  - {name: software, backend: fips4, kind: software, latency_us: 60, cpu: 1, uses: [{resource: arm-cores}]}
"""


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("dpu.yaml").write_text(PATHS)
    return Path("dpu.yaml")


def test_it_shows_ranking_split_headroom_and_bottlenecks(xenoovs: CommandLine, paths: Path) -> None:
    result = xenoovs("measure", "paths", paths)
    assert result.status == 0
    lines = [line.split() for line in result.out.splitlines()]
    assert ["1", "wire-to-wire", "80", "5", "-", "80", "80", "74.07%"] in lines
    assert ["2", "wire-to-host", "60", "9", "-", "100", "20", "18.52%"] in lines
    assert ["3", "software", "8", "60", "1", "108", "8", "7.41%"] in lines
    assert ["pcie-switch", "in", "60", "20", "40", "33.33%"] in lines
    assert "108 Mpps in all, 35% more than the best path alone" in result.out
    assert "limited by arm-cores, nic-cores\n" in result.out
    assert "Some load goes through Arm cores" in result.out


def test_a_demand_stays_on_the_first_paths(xenoovs: CommandLine, paths: Path) -> None:
    result = xenoovs("measure", "paths", paths, "--by", "latency", "--demand", "70")
    assert "weights: fips2 0, fips3 1, fips4 0" in result.out
    assert "no path or resource limits this load" in result.out
    result = xenoovs("measure", "paths", paths, "--demand", "500")
    assert "the demand of 500 Mpps is more than these paths carry" in result.out


def test_the_written_plan_gives_a_service_its_weights(xenoovs: CommandLine, paths: Path) -> None:
    assert xenoovs("measure", "paths", paths, "--weights", "paths.json").status == 0
    backends = "".join(f'      - {{name: fips{n}, mac: "02:00:5e:10:00:0{n}"}}\n' for n in (2, 3, 4))
    Path("my.yaml").write_text(
        "version: 1\nswitch: {bridge: ovsbr1, ingress: p0, egress: p1}\nservices:\n"
        f"  - name: dns\n    vip: 10.3.10.45\n    weights: {{from: paths.json}}\n    backends:\n{backends}"
    )
    assert [backend.weight for backend in load_config(Path("my.yaml")).services[0].backends] == [5, 20, 2]


def test_the_document_is_exact(xenoovs: CommandLine, paths: Path) -> None:
    document = json.loads(xenoovs("measure", "paths", paths, "-o", "json").out)
    assert (document["total"], document["weights"]) == ("108", {"fips2": 5, "fips3": 20, "fips4": 2})
    assert [limit["name"] for limit in document["limits"] if limit["bottleneck"]] == ["arm-cores", "nic-cores"]


_USE = "paths[0].uses[1]"
_NO_LIMIT = "paths[2]: nothing limits this path; add `capacity:`, or `uses:` of a resource"
_KEYS = "name, backend, kind, capacity, interval, latency_us, cpu, uses"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("pcie-switch, direction: in", "pcie", f"12:46: {_USE}.resource: 'pcie' is no resource; add it to `resources`"),
        (", direction: in", "", f"12:35: {_USE}: pcie-switch is duplex; add `direction: in`, out or both"),
        ("[{resource: arm-cores}]", "[]", f"14:5: {_NO_LIMIT}"),
        (
            "name: software",
            "name: wire-to-host",
            "14:12: paths[2].name: 'wire-to-host' is there already; name each once",
        ),
        ("kind: wire,", "kind: wir,", "13:48: paths[1].kind: 'wir' is not one of: wire, host, soc, software"),
        (
            "capacity: 80",
            "capacity: x",
            "13:64: paths[1].capacity: 'x' is not a number; write one from 0 to 1000000000",
        ),
        ("capacity: 80", "capacity: -1", "paths[1].capacity: -1 is below 0; write one from 0 to 1000000000"),
        ("capacity: 80", "speed: 80", f"13:54: paths[1].speed: unknown key; known keys: {_KEYS}"),
        (
            "arm-cores}]",
            "arm-cores, direction: out}]",
            "arm-cores is not duplex, so directions share it; remove the key",
        ),
        ("version: 1", "version: 2", "1:10: version: 2 is not a version this xenoovs reads; write 1"),
    ],
    ids=["resource", "direction", "limit", "name", "kind", "capacity", "negative", "key", "duplex", "version"],
)
def test_mistakes_have_their_line_and_column(
    xenoovs: CommandLine, paths: Path, old: str, new: str, message: str
) -> None:
    paths.write_text(PATHS.replace(old, new, 1))
    result = xenoovs("measure", "paths", paths)
    assert result.status == 1
    assert result.err.startswith("dpu.yaml:")
    assert message in result.err


@pytest.mark.parametrize("demand", ["x", "0", "-1", "nan", "1e99", "1e-99"])
def test_a_demand_that_is_no_load_is_wrong_usage(xenoovs: CommandLine, paths: Path, demand: str) -> None:
    result = xenoovs("measure", "paths", paths, f"--demand={demand}")
    assert result.status == 64
    assert f"{demand!r} is not a load: write a number above 0, such as 12.5." in result.err


def test_files_that_cannot_be_read_or_written_are_named(xenoovs: CommandLine, paths: Path) -> None:
    assert "error: nix: it cannot be read: No such file or directory" in xenoovs("measure", "paths", "nix").err
    result = xenoovs("measure", "paths", paths, "--weights", "no/such/paths.json")
    assert (
        result.err
        == "error: no/such/paths.json cannot be written: No such file or directory; name another file with --weights\n"
    )


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


def test_a_file_a_list_and_a_bed_exclude_each_other(xenoovs: CommandLine, paths: Path) -> None:
    result = xenoovs("measure", "paths")
    assert result.status == 64
    assert "Name a bed with --lab or --bed to measure, a FILE of paths to plan, or use --list." in result.err
    result = xenoovs("measure", "paths", paths, "--list")
    assert (result.status, "--list needs no FILE and no bed" in result.err) == (64, True)
    assert "--uplink and --db belong to --list." in xenoovs("measure", "paths", paths, "--uplink", "p0").err


@pytest.mark.parametrize(("verdict", "total"), [("apart", "140"), ("shared", "80"), ("undecided", "80")])
def test_only_a_pair_that_is_apart_may_have_both_rates(
    xenoovs: CommandLine, tmp_path: Path, verdict: str, total: str
) -> None:
    pair = f"  - {{paths: [a, b], rates: [30, 40], verdict: {verdict}}}\n"
    path = "  - {{name: {}, capacity: {}, interval: [1, 90]}}\n"
    text = f"version: 1\npaths:\n{path.format('a', 60)}{path.format('b', 80)}pairs:\n{pair}"
    (tmp_path / "dpu.yaml").write_text(text)
    assert json.loads(xenoovs("measure", "paths", tmp_path / "dpu.yaml", "-o", "json").out)["total"] == total


def test_a_run_is_planned_again_with_the_results_of_its_pairs(xenoovs: CommandLine, tmp_path: Path) -> None:
    (run,) = write(tmp_path, paths_run({"fips2": 300e3, "fips3": 200e3}, 1.2)).iterdir()
    result = xenoovs("measure", "paths", run)
    assert result.status == 0, result.err
    lines = [line.split() for line in result.out.splitlines()]
    assert ["fips2", "in", "300k", "300k", "to", "300k", "100us", "5us"] in lines
    assert ["fips2,", "fips3", "same", "120%", "120%", "to", "120%", "shared"] in lines
    assert ["fips2", "opposite", "120%", "120%", "to", "120%", "shared"] in lines
    assert "limited by fips2 with fips3" in result.out
    assert (run / "paths.yaml").exists()
    few = write(tmp_path / "few", paths_run({"fips2": 300e3, "fips3": 200e3}, 1.2, repeats=3))
    result = xenoovs("measure", "paths", next(few.iterdir()))
    assert "the plan counts an undecided pair as what it reached: more repeats would decide" in result.out
    (other,) = write(tmp_path / "other", rate_run()).iterdir()
    assert "is a run of `measure rate`: name one of `measure paths`" in xenoovs("measure", "paths", other).err


def test_a_run_that_lacks_samples_gives_no_weights(xenoovs: CommandLine, tmp_path: Path) -> None:
    whole = paths_run({"fips2": 300e3, "fips3": 200e3}, repeats=3)
    first = next(index for index, one in enumerate(whole.samples) if one.point["path"] == "fips3")
    (run,) = write(tmp_path / "r", replace(whole, samples=whole.samples[first : first + 1])).iterdir()
    out, planned = tmp_path / "paths.json", len(whole.samples)
    lacking = f"{planned - 1} of {planned} samples are missing, and no path to fips2 is measured"
    result = xenoovs("measure", "paths", run)
    assert (result.status, f"the plan is incomplete: {lacking}\n" in result.out) == (0, True), result.out
    assert f"# Incomplete: {lacking}.\n" in (run / "paths.yaml").read_text()
    result = xenoovs("measure", "paths", run, "--weights", out)
    assert result.status == 1
    assert result.err == (
        f"error: {out} is not written: in {run} {lacking}; the command that measured it goes on with --resume\n"
    )
    assert not out.exists()


BALANCER = parse_config(read_template("next-hops"), file="next-hops")


def test_each_way_has_its_name() -> None:
    assert {service.name: way_of(service, BALANCER) for service in BALANCER.services} == {
        "direct": "direct",
        "nat": "nat",
        "vxlan": "vxlan",
        "geneve": "geneve",
        "gre": "gre",
    }


def test_encrypted_tunnels_and_several_ways_are_named() -> None:
    text = read_template("next-hops")
    secret = text.replace("local: 192.168.77.1, key: 5001}", "local: 192.168.77.1, key: 5001, ipsec: {psk_file: /psk}}")
    mixed = secret.replace("{name: d2, mac: 02:00:00:00:0a:02, ", "{name: d2, mac: 02:00:00:00:0a:02, egress: gre0, ")
    mixed = mixed.replace("egress: gre0, weight: 50}", "egress: gre0, remote: 192.168.77.30, weight: 50}", 1)
    balancer = parse_config(mixed, file="mixed")
    assert [way_of(service, balancer) for service in balancer.services] == [
        "direct and gre+ipsec",
        "nat",
        "vxlan+ipsec",
        "geneve+ipsec",
        "gre+ipsec",
    ]


def test_bug_it_has_no_option_for_one_service(xenoovs: CommandLine) -> None:
    """The option had no effect: all services are compared."""
    result = xenoovs("measure", "next-hops", "--service", "web")
    assert (result.status, "No such option" in result.err) == (64, True)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ("64,big", "'64,big' is not a list of sizes such as 64,65536."),
        ("0", "0 is no size of a message: write 1 to 16777216."),
        ("16777217", "16777217 is no size of a message: write 1 to 16777216."),
    ],
)
def test_sizes_that_are_none(sizes: str, message: str, xenoovs: CommandLine) -> None:
    result = xenoovs("measure", "echo", "--lab", "none", "--sizes", sizes)
    assert (result.status, message in " ".join(result.err.split())) == (64, True), result.err
