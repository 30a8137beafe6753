"""`xenoovs measure paths`: the file of paths, and the split as weights that a config takes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.command_line import CommandLine
from tests.judged import assert_recorded
from tests.unit.measure.made import paths_run, rate_run, write
from xenoovs.datapath.database import BridgeState, Database, PortState
from xenoovs.datapath.fact import NOT_READ
from xenoovs.datapath.host import Device, HostFacts
from xenoovs.measure.compare import way_of
from xenoovs.model.load import parse_config
from xenoovs.model.templates import read_template

PATHS = ("measure", "paths")
DPU = {"p0": "p0", "pf0hpf": "c1pf0", "en3f0pf0sf0": "pf0sf0"}
RATES = {"fips2": 300e3, "fips3": 200e3}
RUN = "paths-20260101T000000Z"


def _faked(monkeypatch: pytest.MonkeyPatch, devices: Mapping[str, str | None]) -> None:
    """Let the host have one bridge with these devices as ports, each with the port of a NIC behind it."""
    ports = tuple(map(PortState, devices))
    database = Database(bridges=(BridgeState("ovsbr1", (*ports, PortState("ovsbr1"))),))
    known = {name: Device(name, True, 1500, port_name=behind) for name, behind in devices.items()}
    facts = HostFacts(True, database, NOT_READ, known)
    monkeypatch.setattr("xenoovs.measure.paths.check_reachable", lambda _endpoint: None)
    monkeypatch.setattr("xenoovs.measure.paths.gather", lambda _endpoint: facts)


def test_paths_are_listed_and_planned(
    xenoovs: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, update_golden: bool
) -> None:
    said = dict[str, str]()

    def ask(title: str, *words: str) -> None:
        result = xenoovs(*PATHS, *words)
        said[title] = f"{result.out}{result.err}[exit status {result.status}]"

    monkeypatch.chdir(tmp_path)
    _faked(monkeypatch, DPU)
    ask("the paths of a DPU are listed", "--list")
    _faked(monkeypatch, {"p0": None, "b1": None})
    ask("without a NIC the uplink has to be named", "--list")
    ask("and then it is used", "--list", "--uplink", "p0")
    ask("an uplink that is not there", "--list", "--uplink", "p9")
    part = paths_run(RATES, repeats=3)
    first = next(index for index, one in enumerate(part.samples) if one.point["path"] == "fips3")
    write(Path("whole"), paths_run(RATES, 1.2))
    write(Path("few"), paths_run(RATES, 1.2, repeats=3))
    write(Path("other"), rate_run())
    write(Path("part"), replace(part, samples=part.samples[first : first + 1]))
    for directory, title in (
        ("whole", "a run is planned again with the results of its pairs"),
        ("few", "few repeats have no interval, and undecided pairs count as what they reached"),
        ("part", "a run that lacks samples gives no weights"),
    ):
        ask(title, f"{directory}/{RUN}")
        said[f"{title}: paths.yaml"] = Path(directory, RUN, "paths.yaml").read_text()
    ask("nor a file of them", f"part/{RUN}", "--weights", "weights.json")
    assert not Path("weights.json").exists()
    ask("a run of another experiment", "other/rate-20260101T000000Z")
    assert_recorded("measure/paths.txt", said, update=update_golden)


def test_a_list_in_json_can_be_filled_in(xenoovs: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _faked(monkeypatch, {"p0": "p0", "pf0hpf": "c1pf0"})
    document = json.loads(xenoovs(*PATHS, "--list", "-o", "json").out)
    assert [resource["name"] for resource in document["resources"]] == ["nic-cores", "pcie-switch", "arm-cores"]
    for each in (*document["resources"], *document["paths"]):
        assert each["capacity"] is None
        each["capacity"] = 10
    (tmp_path / "dpu.json").write_text(json.dumps(document))
    assert json.loads(xenoovs(*PATHS, tmp_path / "dpu.json", "-o", "json").out)["total"] == "20"


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
