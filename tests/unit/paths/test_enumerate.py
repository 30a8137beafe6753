"""The file of the paths of a host, which the planner reads when the capacities are filled in."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from xenoovs.errors import ConfigError
from xenoovs.measure.paths_file import load_paths
from xenoovs.paths.enumerate import BridgePort, listed_paths, paths_file
from xenoovs.paths.plan import PathKind, Resource, plan_paths

DPU = (
    BridgePort("p0", PathKind.WIRE),
    BridgePort("p1", PathKind.WIRE),
    BridgePort("pf0hpf", PathKind.HOST),
    BridgePort("en3f0pf0sf0", PathKind.SOC),
)


def names(*ports: BridgePort) -> list[str]:
    return [line.split("name: ")[1].split(",")[0] for line in paths_file([ports]) if "kind:" in line]


def test_a_dpu_has_a_path_in_hardware_and_one_in_software_to_each_port() -> None:
    expected = [
        *("p0-en3f0pf0sf0", "p0-p1", "p0-pf0hpf"),
        *("p1-en3f0pf0sf0", "p1-p0", "p1-pf0hpf"),
    ]
    assert names(*DPU) == [each for name in expected for each in (name, f"{name}-software")]


def test_a_single_uplink_has_a_path_back_to_itself() -> None:
    assert names(DPU[0]) == ["p0-p0", "p0-p0-software"]


def test_ports_without_a_nic_have_paths_in_software_alone() -> None:
    uplink = BridgePort("p0", PathKind.WIRE, is_offloadable=False)
    other = BridgePort("b1", PathKind.SOFTWARE, is_offloadable=False)
    assert names(uplink, other) == ["p0-b1"]
    assert not any("nic-cores" in line for line in paths_file([[uplink, other]]))


def test_a_port_of_another_bridge_is_no_path() -> None:
    # In a lab the ports of health checks are on a bridge of their own.
    fabric = (BridgePort("xo-up2", PathKind.SOFTWARE), BridgePort("xo-probing1", PathKind.SOFTWARE))
    assert [path.name for path in listed_paths([DPU[:2], fabric]) if path.kind is not PathKind.SOFTWARE] == [
        "p0-p1",
        "p1-p0",
    ]
    assert not any("xo-" in line for line in paths_file([DPU[:2], fabric]))


def test_what_is_to_be_measured_is_named_with_its_line_and_then_read(tmp_path: Path) -> None:
    file = tmp_path / "dpu.yaml"
    text = "\n".join(paths_file([DPU]))
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"dpu.yaml:6:\d+: resources\[0\].capacity: an empty value is not a number"):
        load_paths(file)
    file.write_text(text.replace("capacity: ", "capacity: 10"))
    paths, resources, unit = load_paths(file)
    assert (len(paths), len(resources), unit) == (12, 3, "Mpps")
    assert plan_paths(paths, resources).split.total == 20


def test_measured_pairs_make_shared_bottlenecks(tmp_path: Path) -> None:
    file = tmp_path / "dpu.yaml"
    file.write_text(
        "version: 1\npaths:\n  - {name: a, capacity: 40}\n  - {name: b, capacity: 60}\n"
        "pairs:\n  - {paths: [a, b], rates: [20, 30]}\n"
    )
    paths, resources, _ = load_paths(file)
    assert resources == (Resource("a with b", Fraction(1)),)
    assert plan_paths(paths, resources).split.total == 60


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("{paths: [a, x], rates: [1, 2]}", "5:17: pairs[0].paths[1]: 'x' is no path; add it to `paths`"),
        ("{paths: [a, a], rates: [1, 2]}", "5:13: pairs[0].paths: 'a' is both paths; write two"),
        ("{paths: [a], rates: [1, 2]}", "5:13: pairs[0].paths: a list of 1 item; write at least 2"),
    ],
)
def test_wrong_pairs_have_their_line(tmp_path: Path, pair: str, message: str) -> None:
    (tmp_path / "dpu.yaml").write_text(f"version: 1\npaths:\n  - {{name: a, capacity: 40}}\npairs:\n  - {pair}\n")
    with pytest.raises(ConfigError) as caught:
        load_paths(tmp_path / "dpu.yaml")
    assert message in str(caught.value)
