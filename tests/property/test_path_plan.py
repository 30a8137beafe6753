"""Laws of the combination of paths: never over a capacity, more paths never less, the order of the input no matter."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from xenoovs.paths.plan import Criterion, DpuPath, Resource, ResourceUse, plan_paths

# Thirds do not fit into floats. Fractions of integers are drawn much faster than by `st.fractions`.
_AMOUNTS = st.integers(1, 24).map(lambda number: Fraction(number, 3))
_COSTS = st.integers(0, 12).map(lambda number: Fraction(number, 3))
_NAMES = ("NIC cores", "PCIe switch")
_RESOURCES = st.tuples(*(st.builds(Resource, st.just(name), _AMOUNTS, st.booleans()) for name in _NAMES))
_USES = st.tuples(*(st.builds(ResourceUse, st.just(name), _COSTS, _COSTS) for name in _NAMES))


@st.composite
def _paths(draw: st.DrawFn, fewest: int = 1) -> list[DpuPath]:
    count = draw(st.integers(fewest, 4))
    return [
        DpuPath(f"A{index}", draw(_AMOUNTS), draw(st.none() | _AMOUNTS), draw(st.none() | _AMOUNTS), draw(_USES))
        for index in range(count)
    ]


@given(_paths(), _RESOURCES, st.sampled_from(Criterion), st.none() | _AMOUNTS)
def test_no_limit_is_exceeded_and_no_load_is_negative(
    paths: list[DpuPath], resources: tuple[Resource, ...], criterion: Criterion, demand: Fraction | None
) -> None:
    plan = plan_paths(paths, resources, criterion=criterion, demand=demand)
    for step in plan.steps:
        assert all(load >= 0 for load in step.loads)
        # Not by the plan's own sums.
        for resource in resources:
            inward = outward = Fraction(0)
            for path, load in zip(step.paths, step.loads, strict=True):
                use = next(use for use in path.uses if use.resource == resource.name)
                inward, outward = inward + load * use.inward, outward + load * use.outward
            assert max(inward, outward) <= resource.capacity
            assert resource.is_duplex or inward + outward <= resource.capacity
        assert all(load <= (path.capacity or 0) for path, load in zip(step.paths, step.loads, strict=True))
        assert demand is None or step.total <= demand


@given(_paths(), _RESOURCES, st.sampled_from(Criterion))
def test_each_path_in_turn_adds_something_or_nothing(
    paths: list[DpuPath], resources: tuple[Resource, ...], criterion: Criterion
) -> None:
    totals = [step.total for step in plan_paths(paths, resources, criterion=criterion).steps]
    assert totals == sorted(totals)


@given(_paths(fewest=2), _RESOURCES)
def test_a_path_more_never_lowers_the_sum(paths: list[DpuPath], resources: tuple[Resource, ...]) -> None:
    assert plan_paths(paths[:-1], resources).split.total <= plan_paths(paths, resources).split.total


@given(_paths(), _RESOURCES, st.sampled_from(Criterion), st.none() | _AMOUNTS, st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(
    paths: list[DpuPath], resources: tuple[Resource, ...], criterion: Criterion, demand: Fraction | None, random: object
) -> None:
    mixed, others = list(paths), list(resources)
    random.shuffle(mixed)  # type: ignore[attr-defined]  # random.Random by hypothesis
    random.shuffle(others)  # type: ignore[attr-defined]
    assert plan_paths(mixed, others, criterion=criterion, demand=demand) == plan_paths(
        paths, resources, criterion=criterion, demand=demand
    )


@given(_paths(), _RESOURCES)
def test_something_is_saturated_without_a_demand(paths: list[DpuPath], resources: tuple[Resource, ...]) -> None:
    split = plan_paths(paths, resources).split
    # Every path that could carry more meets a saturated limit.
    saturated = {usage.name for usage in split.usages if usage.is_saturated}
    for path in split.paths:
        own = {f"path {path.name}"}
        for use in path.uses:
            own |= {f"{use.resource} in"} if use.inward else set()
            own |= {f"{use.resource} out"} if use.outward else set()
            own |= {use.resource} if use.inward or use.outward else set()
        assert own & saturated


@given(_paths(), _RESOURCES)
def test_prices_of_the_bottlenecks_account_for_the_whole_sum(
    paths: list[DpuPath], resources: tuple[Resource, ...]
) -> None:
    # Strong duality of linear programs: no other split can be better.
    split = plan_paths(paths, resources).split
    assert sum(usage.price * usage.capacity for usage in split.usages) == split.total
    assert all(usage.is_saturated for usage in split.bottlenecks)


@given(_paths(fewest=2).map(lambda paths: paths[:2]), _RESOURCES)
def test_the_sum_of_two_paths_is_the_best_corner(paths: list[DpuPath], resources: tuple[Resource, ...]) -> None:
    limits = [
        (Fraction(1), Fraction(0), paths[0].capacity or Fraction(0)),
        (Fraction(0), Fraction(1), paths[1].capacity or Fraction(0)),
    ]
    for resource in resources:
        first, second = (next(use for use in path.uses if use.resource == resource.name) for path in paths)
        if resource.is_duplex:
            limits += [
                (first.inward, second.inward, resource.capacity),
                (first.outward, second.outward, resource.capacity),
            ]
        else:
            limits.append((first.inward + first.outward, second.inward + second.outward, resource.capacity))
    lines = [*limits, (Fraction(1), Fraction(0), Fraction(0)), (Fraction(0), Fraction(1), Fraction(0))]
    corners = []
    for a, b, c in lines:
        for d, e, f in lines:
            if (determinant := a * e - b * d) != 0:
                x, y = (c * e - b * f) / determinant, (a * f - c * d) / determinant
                if x >= 0 and y >= 0 and all(p * x + q * y <= most for p, q, most in limits):
                    corners.append(x + y)
    assert plan_paths(paths, resources).split.total == max(corners)
