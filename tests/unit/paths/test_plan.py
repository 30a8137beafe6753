"""The ranking and the combination of paths, with known answers."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from xenoovs.paths.plan import (
    Criterion,
    DpuPath,
    MeasuredPair,
    PathKind,
    Resource,
    ResourceUse,
    advice,
    plan_paths,
    share_bottlenecks,
)


def _path(name: str, capacity: int | None = None, /, latency: int | None = None, **uses: Fraction | int) -> DpuPath:
    used = tuple(ResourceUse(resource.replace("_", " "), Fraction(cost)) for resource, cost in uses.items())
    return DpuPath(
        name,
        None if capacity is None else Fraction(capacity),
        None if latency is None else Fraction(latency),
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


def test_the_alternatives_of_the_study_have_its_ranking() -> None:
    plan = plan_paths(GET_PATHS, GET_RESOURCES)
    assert [ranked.path.name for ranked in plan.ranking] == ["A5", "A4", "A1", "A3", "A2"]


def test_alternatives_together_carry_more_than_the_best_alone() -> None:
    plan = plan_paths(GET_PATHS, GET_RESOURCES)
    assert plan.ranking[0].alone == 80
    # In turn: A5 is full at 80; A4 adds what is left of the NIC cores, 20 at 8/5 each; A2 needs fewer of them.
    assert [step.total for step in plan.steps] == [80, Fraction(185, 2), Fraction(185, 2), Fraction(185, 2), 100]
    assert plan.gain == Fraction(1, 4)
    # SoC cores are full too.
    assert [usage.name for usage in plan.split.bottlenecks] == ["NIC cores"]
    assert [usage.name for usage in plan.split.usages if usage.is_saturated] == ["NIC cores", "SoC cores", "path A5"]


def test_weights_have_the_proportions_of_the_loads() -> None:
    plan = plan_paths(GET_PATHS, GET_RESOURCES)
    assert plan.weights() == {"A1": 0, "A2": 1, "A3": 0, "A4": 0, "A5": 4}


def test_opposite_directions_of_a_duplex_resource_do_not_compete() -> None:
    switch = Resource("PCIe switch", Fraction(100), is_duplex=True)
    read = DpuPath("read", uses=(ResourceUse("PCIe switch", outward=Fraction(1)),))
    write = DpuPath("write", uses=(ResourceUse("PCIe switch", inward=Fraction(1)),))
    assert plan_paths([read, write], [switch]).split.total == 200
    assert plan_paths([read, replace(read, name="read too")], [switch]).split.total == 100
    shared = replace(switch, is_duplex=False)
    assert plan_paths([read, write], [shared]).split.total == 100


def test_a_demand_goes_to_the_first_of_the_ranking() -> None:
    paths = [_path("slow", 100, latency=9), _path("fast", 30, latency=2)]
    plan = plan_paths(paths, criterion=Criterion.LATENCY, demand=Fraction(50))
    assert dict(zip([path.name for path in plan.split.paths], plan.split.loads, strict=True)) == {
        "fast": 30,
        "slow": 20,
    }
    assert next(usage.headroom for usage in plan.split.usages if usage.name == "path slow") == 80


def test_paths_without_a_figure_are_ranked_last() -> None:
    paths = [_path("unknown", 100), _path("known", 10, latency=50)]
    plan = plan_paths(paths, criterion=Criterion.LATENCY)
    assert [ranked.path.name for ranked in plan.ranking] == ["known", "unknown"]


def test_paths_to_one_backend_add_up_to_its_weight() -> None:
    paths = [replace(_path("a", 2), backend="fips2"), replace(_path("b", 1), backend="fips2"), _path("fips3", 6)]
    assert plan_paths(paths).weights() == {"fips2": 1, "fips3": 2}


def test_weights_fit_in_a_config_whatever_the_fractions() -> None:
    paths = [replace(_path("a"), capacity=Fraction(1, 10**9 + 7)), _path("b", 1)]
    assert plan_paths(paths).weights() == {"a": 1, "b": 10_000}


def test_a_path_without_a_limit_is_an_error_that_names_it() -> None:
    with pytest.raises(ValueError, match="nothing limits path b; give it a capacity"):
        plan_paths([_path("a", 1), _path("b")])


def test_an_unknown_resource_and_a_name_twice_are_errors() -> None:
    with pytest.raises(ValueError, match="path a uses NIC cores, which is no resource"):
        plan_paths([_path("a", 1, NIC_cores=1)])
    with pytest.raises(ValueError, match="two paths are called a"):
        plan_paths([_path("a", 1), _path("a", 2)])


def test_pairs_that_share_all_some_and_nothing() -> None:
    paths = [_path("host", 40), _path("soc", 60), _path("wire", 100)]
    pairs = [
        MeasuredPair("host", "soc", Fraction(20), Fraction(30)),
        MeasuredPair("host", "wire", Fraction(40), Fraction(50)),
        MeasuredPair("soc", "wire", Fraction(59), Fraction(99)),
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
