"""The ranking and the combination of paths, with known answers."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from xenoovs.errors import ConfigError
from xenoovs.measure.path_plan import (
    BridgePort,
    Criterion,
    DpuPath,
    MeasuredPair,
    PathKind,
    Resource,
    ResourceUse,
    advice,
    load_paths,
    maximise,
    paths_file,
    plan_paths,
    share_bottlenecks,
)


def _path(name: str, capacity: int | None = None, /, latency: int | None = None, **uses: Fraction | int) -> DpuPath:
    used = tuple(ResourceUse(resource.replace("_", " "), Fraction(cost)) for resource, cost in uses.items())
    return DpuPath(
        name,
        capacity=None if capacity is None else Fraction(capacity),
        latency_us=None if latency is None else Fraction(latency),
        uses=used,
    )


# Get(k) of a key/value store on BlueField-2, by the five alternatives of the study. Its slides show the ranking and the
# gain of the combination as pictures without figures; the costs here are made so that both come out, in operations per
# Get: A1 two READs of the host; A2 a request to the SoC, which reads the host; A3 a request to the SoC, then a READ;
# A4 a READ of the SoC, then one of the host; A5 one READ of the SoC's memory.
GET_RESOURCES = (Resource("NIC cores", Fraction(100)), Resource("SoC cores", Fraction(30)))
GET_PATHS = (
    _path("A1", NIC_cores=2),
    _path("A2", NIC_cores=1, SoC_cores=Fraction(3, 2)),
    _path("A3", NIC_cores=2, SoC_cores=1),
    _path("A4", NIC_cores=Fraction(8, 5)),
    _path("A5", 80, NIC_cores=1),
)


def test_the_alternatives_of_the_study_have_its_ranking_and_carry_more_together_than_the_best_alone() -> None:
    plan = plan_paths(GET_PATHS, GET_RESOURCES)
    assert [path.name for path in plan.split.paths] == ["A5", "A4", "A1", "A3", "A2"]
    assert plan.alone[0] == 80
    # In turn: A5 is full at 80; A4 adds what is left of the NIC cores, 20 at 8/5 each; A2 needs fewer of them.
    assert [step.total for step in plan.steps] == [80, Fraction(185, 2), Fraction(185, 2), Fraction(185, 2), 100]
    assert plan.gain == Fraction(1, 4)
    # SoC cores are full too.
    assert [usage.name for usage in plan.split.bottlenecks] == ["NIC cores"]
    assert [usage.name for usage in plan.split.usages if not usage.headroom] == ["NIC cores", "SoC cores", "path A5"]
    # Weights have the proportions of the loads.
    assert plan.weights() == {"A1": 0, "A2": 1, "A3": 0, "A4": 0, "A5": 4}


def test_paths_without_a_figure_are_ranked_last() -> None:
    paths = [_path("unknown", 100), _path("known", 10, latency=50)]
    plan = plan_paths(paths, criterion=Criterion.LATENCY)
    assert [path.name for path in plan.split.paths] == ["known", "unknown"]


def test_paths_to_one_backend_add_up_to_its_weight() -> None:
    paths = [replace(_path("a", 2), backend="fips2"), replace(_path("b", 1), backend="fips2"), _path("fips3", 6)]
    assert plan_paths(paths).weights() == {"fips2": 1, "fips3": 2}


def test_weights_fit_in_a_config_whatever_the_fractions() -> None:
    paths = [replace(_path("a"), capacity=Fraction(1, 10**9 + 7)), _path("b", 1)]
    assert plan_paths(paths).weights() == {"a": 1, "b": 10_000}


def test_pairs_that_share_all_some_and_nothing() -> None:
    paths = [_path("host", 40), _path("soc", 60), _path("wire", 100)]
    pairs = [
        MeasuredPair(("host", "soc"), (Fraction(20), Fraction(30))),
        MeasuredPair(("host", "wire"), (Fraction(40), Fraction(50))),
        MeasuredPair(("soc", "wire"), (Fraction(59), Fraction(99))),
    ]
    found, resources = share_bottlenecks(paths, pairs)
    assert [(resource.name, resource.capacity) for resource in resources] == [
        ("host with soc", 1),
        ("host with wire", Fraction(3, 2)),
    ]
    # host and soc share all: at most one of them in full. Beside all of wire there is half of host.
    assert plan_paths(found[:2], resources).split.total == 60
    assert plan_paths([found[0], found[2]], resources).split.total == 100 + 20


def test_only_paths_to_the_host_are_a_plain_nic() -> None:
    host = replace(_path("a", 1), kind=PathKind.HOST)
    assert "a plain NIC is faster" in " ".join(advice(plan_paths([host])))
    soc = replace(_path("b", 1), kind=PathKind.SOC)
    assert advice(plan_paths([host, soc])) == ()


def test_a_problem_that_cycles_without_blands_rule_ends() -> None:
    # Chvatal, chapter 3: the largest coefficient rule cycles here; the optimum is 1 at (1, 0, 1, 0).
    rows = [
        [Fraction(1, 2), Fraction(-11, 2), Fraction(-5, 2), Fraction(9)],
        [Fraction(1, 2), Fraction(-3, 2), Fraction(-1, 2), Fraction(1)],
        [Fraction(1), Fraction(0), Fraction(0), Fraction(0)],
    ]
    solved, _ = maximise([[*map(Fraction, (10, -57, -9, -24))]], rows, [Fraction(0), Fraction(0), Fraction(1)])
    assert solved == [1, 0, 1, 0]


def test_later_objectives_choose_among_the_best_of_earlier_ones() -> None:
    rows = [[Fraction(1), Fraction(1)], [Fraction(0), Fraction(1)]]
    both, second = [Fraction(1), Fraction(1)], [Fraction(0), Fraction(1)]
    assert maximise([both, second], rows, [Fraction(5), Fraction(2)])[0] == [3, 2]
    assert maximise([both, [Fraction(1), Fraction(0)]], rows, [Fraction(5), Fraction(2)])[0] == [5, 0]


def test_a_variable_without_a_limit_is_named() -> None:
    with pytest.raises(ValueError, match="variable 1 has no limit"):
        maximise([[Fraction(1), Fraction(1)]], [[Fraction(1), Fraction(0)]], [Fraction(1)])


DPU = (
    BridgePort("p0", PathKind.WIRE),
    BridgePort("p1", PathKind.WIRE),
    BridgePort("pf0hpf", PathKind.HOST),
    BridgePort("en3f0pf0sf0", PathKind.SOC),
)


def names(*ports: BridgePort) -> list[str]:
    return [line.split("name: ")[1].split(",")[0] for line in paths_file([ports]) if "kind:" in line]


def test_a_dpu_has_a_path_in_hardware_and_one_in_software_to_each_port_or_back_to_its_single_uplink() -> None:
    assert names(DPU[0]) == ["p0-p0", "p0-p0-software"]
    expected = [
        *("p0-en3f0pf0sf0", "p0-p1", "p0-pf0hpf"),
        *("p1-en3f0pf0sf0", "p1-p0", "p1-pf0hpf"),
    ]
    assert names(*DPU) == [each for name in expected for each in (name, f"{name}-software")]


def test_ports_without_a_nic_have_paths_in_software_alone_and_a_port_of_another_bridge_is_no_path() -> None:
    uplink = BridgePort("p0", PathKind.WIRE, is_offloadable=False)
    other = BridgePort("b1", PathKind.SOFTWARE, is_offloadable=False)
    assert names(uplink, other) == ["p0-b1"]
    assert not any("nic-cores" in line for line in paths_file([[uplink, other]]))
    # In a lab the ports of health checks are on a bridge of their own.
    both = [DPU[:2], (BridgePort("xo-up2", PathKind.SOFTWARE), BridgePort("xo-probing1", PathKind.SOFTWARE))]
    listed = [line.split("name: ")[1].split(",")[0] for line in paths_file(both) if "kind: wire" in line]
    assert listed == ["p0-p1", "p1-p0"]
    assert not any("xo-" in line for line in paths_file(both))


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
