"""Laws of paths: decisions about blocks for any rounds, and the combination of paths."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from hypothesis import assume, given
from hypothesis import strategies as st

from tests.path_rounds import Sender
from tests.strategies import share
from tests.unit.measure.made import paths_run
from xenoovs.agent.paths.decide import HOLD_S
from xenoovs.measure.path_figures import judge_pair, measured_file, measured_paths
from xenoovs.measure.path_plan import (
    TOLERANCE,
    Criterion,
    Direction,
    DpuPath,
    PairVerdict,
    Resource,
    ResourceUse,
    load_paths,
    plan_paths,
)
from xenoovs.measure.statistics import FEWEST_REPEATS
from xenoovs.show.paths import MoveReason, PathState

_ANSWER = st.none() | st.floats(min_value=100.0, max_value=50_000.0)
_SEED = st.integers(0, 1 << 16)


@st.composite
def _rounds(draw: st.DrawFn, paths: int = 4) -> list[tuple[float | None, ...]]:
    """Rounds in stretches, so that scores have time to change."""
    kinds = draw(st.lists(st.tuples(st.tuples(*(_ANSWER,) * paths), st.integers(1, 30)), min_size=1, max_size=8))
    return [answers for answers, times in kinds for _ in range(times)]


def _played(sender: Sender, rounds: list[tuple[float | None, ...]]) -> Sender:
    return sender.run(len(rounds) * 0.01, lambda now_s: rounds[min(len(rounds), round(now_s * 100)) - 1])


@given(_rounds(), _SEED)
def test_blocks_only_go_to_good_paths(rounds: list[tuple[float | None, ...]], seed: int) -> None:
    sender = Sender(seed=seed)
    for start in range(0, len(rounds), 5):
        part = rounds[start : start + 5]
        for answers in part:
            sender.now_s += 0.01
            sender.record = sender.record.after(answers, is_calm=sender.verdict.is_calm)
        for shift in sender.decide():
            assert sender.verdict.paths[shift.new].state is PathState.GOOD
            assert shift.old != shift.new


@given(st.lists(_ANSWER, min_size=10, max_size=120), _SEED)
def test_paths_that_are_alike_or_silent_move_nothing(answers: list[float | None], seed: int) -> None:
    assert not _played(Sender(seed=seed), [(answer,) * 4 for answer in answers]).shifts


@given(st.floats(100.0, 2_000.0), st.floats(15_100.0, 50_000.0), st.integers(0, 3), _SEED)
def test_one_bad_path_moves_its_blocks_and_no_others(clear: float, more: float, bad: int, seed: int) -> None:
    good, slow = (clear,) * 4, tuple(clear + more if path == bad else clear for path in range(4))
    sender = _played(Sender(seed=seed), [good] * 50 + [slow] * 100)
    assert len(sender.shifts) == 16
    assert {shift.old for _, shift in sender.shifts} == {bad}
    assert sender.counts[bad] == 0
    # Two random choices: no path gets far more than its part of 16.
    assert max(sender.counts) <= 26


@given(_rounds(), _SEED)
def test_no_block_moves_twice_within_the_hold_unless_its_path_is_dead(
    rounds: list[tuple[float | None, ...]], seed: int
) -> None:
    last: dict[int, float] = {}
    for at_s, shift in _played(Sender(seed=seed), rounds).shifts:
        if shift.block in last and shift.reason is not MoveReason.FAILED:
            assert at_s - last[shift.block] >= HOLD_S - 1e-9
        last[shift.block] = at_s


@share(0.2)
@given(_rounds(), _SEED)
def test_no_block_is_lost_and_all_blocks_return_home_on_calm_paths(
    rounds: list[tuple[float | None, ...]], seed: int
) -> None:
    sender = _played(Sender(seed=seed), rounds)
    assert sum(sender.counts) == 64
    sender.run(75.0, lambda _now_s: (400.0,) * 4)
    assert sender.counts == [16, 16, 16, 16]
    before = len(sender.shifts)
    sender.run(5.0, lambda _now_s: (400.0,) * 4)
    assert len(sender.shifts) == before


# Thirds do not fit into floats. Fractions of integers are drawn much faster than by `st.fractions`.
_AMOUNTS = st.integers(1, 24).map(lambda number: Fraction(number, 3))
_COSTS = st.integers(0, 12).map(lambda number: Fraction(number, 3))
_NAMES = ("NIC cores", "PCIe switch")
_RESOURCES = st.tuples(*(st.builds(Resource, st.just(name), _AMOUNTS, st.booleans()) for name in _NAMES))
_WAYS = (Direction.IN, Direction.OUT)
_USES = st.tuples(*(st.builds(ResourceUse, st.just(name), _COSTS, st.just(way)) for name in _NAMES for way in _WAYS))


@st.composite
def _paths(draw: st.DrawFn, fewest: int = 1) -> list[DpuPath]:
    count = draw(st.integers(fewest, 4))
    return [
        DpuPath(
            f"A{index}",
            capacity=draw(_AMOUNTS),
            latency_us=draw(st.none() | _AMOUNTS),
            cpu=draw(st.none() | _AMOUNTS),
            uses=draw(_USES),
        )
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
                costs = {use.direction: use.cost for use in path.uses if use.resource == resource.name}
                inward, outward = inward + load * costs[Direction.IN], outward + load * costs[Direction.OUT]
            assert max(inward, outward) <= resource.capacity
            assert resource.is_duplex or inward + outward <= resource.capacity
        assert all(load <= (path.capacity or 0) for path, load in zip(step.paths, step.loads, strict=True))
        assert demand is None or step.total <= demand


@given(_paths(), _RESOURCES, st.sampled_from(Criterion), st.none() | _AMOUNTS, st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(
    paths: list[DpuPath], resources: tuple[Resource, ...], criterion: Criterion, demand: Fraction | None, random: Random
) -> None:
    mixed, others = list(paths), list(resources)
    random.shuffle(mixed)
    random.shuffle(others)
    assert plan_paths(mixed, others, criterion=criterion, demand=demand) == plan_paths(
        paths, resources, criterion=criterion, demand=demand
    )


@given(_paths(), _RESOURCES)
def test_prices_of_the_bottlenecks_prove_that_no_split_is_better(
    paths: list[DpuPath], resources: tuple[Resource, ...]
) -> None:
    """Strong duality of linear programs: they account for the whole sum, and no path is worth more than it uses."""
    split = plan_paths(paths, resources).split
    assert sum(usage.price * usage.capacity for usage in split.usages) == split.total
    assert not any(usage.headroom for usage in split.bottlenecks)
    assert all(usage.price >= 0 for usage in split.usages)
    for path in paths:
        for_one = plan_paths([path], resources).split
        cost = {usage.name: usage.used / for_one.total for usage in for_one.usages} if for_one.total else {}
        assert not cost or sum(usage.price * cost.get(usage.name, 0) for usage in split.usages) >= 1


_LEAST = 2 * (1 - float(TOLERANCE))
_SUMS = st.floats(0.1, 2.2)
_REPEATS = st.lists(_SUMS, min_size=FEWEST_REPEATS, max_size=8)
_RATES = st.integers(100, 10**8).map(float)


def _enough(count: int) -> list[float]:
    return [2.0] * count


@given(_REPEATS)
def test_a_verdict_needs_the_repeats_on_one_side(reached: list[float]) -> None:
    verdict, reason = judge_pair(reached, _enough(len(reached)))
    # A percentile interval lies within the values.
    if min(reached) >= _LEAST:
        assert verdict is PairVerdict.APART
    if max(reached) < _LEAST:
        assert verdict is PairVerdict.SHARED
    mean = sum(reached) / len(reached)
    assert not (verdict is PairVerdict.APART and mean < _LEAST - 1e-9)
    assert not (verdict is PairVerdict.SHARED and mean >= _LEAST + 1e-9)
    assert bool(reason) == (verdict is PairVerdict.UNDECIDED)


@given(st.lists(_SUMS, max_size=FEWEST_REPEATS - 1))
def test_fewer_repeats_decide_nothing(reached: list[float]) -> None:
    assert judge_pair(reached, _enough(len(reached)))[0] is PairVerdict.UNDECIDED


@given(st.floats(0.2, 1.8), st.integers(FEWEST_REPEATS, 8))
def test_all_that_was_sent_arrived_so_nothing_is_known_to_be_shared(sent: float, count: int) -> None:
    # The generators were too slow for both.
    verdict, reason = judge_pair([sent] * count, [sent] * count)
    assert verdict is PairVerdict.UNDECIDED
    assert "the generators sent only" in reason


@given(_REPEATS, st.randoms(use_true_random=False))
def test_noise_around_the_limit_stays_undecided(reached: list[float], random: Random) -> None:
    # As many repeats far above as below: no interval of their mean is on one side.
    mixed = [value for value in reached for value in (_LEAST + value, _LEAST - value)]
    random.shuffle(mixed)
    assert judge_pair(mixed, _enough(len(mixed)))[0] is PairVerdict.UNDECIDED


@share(0.25)
@given(st.dictionaries(st.sampled_from(["a", "b-1", "on", "7"]), _RATES, min_size=2), st.floats(0.5, 2.0))
def test_the_file_has_what_was_measured_and_the_plan_promises_no_more(alone: dict[str, float], together: float) -> None:
    recorded = paths_run(alone, together, sent=2.5)
    with TemporaryDirectory() as directory:
        file = Path(directory) / "paths.yaml"
        file.write_text(measured_file(recorded))
        paths, resources, unit = load_paths(file)
    scale = {"Mpps": 1e6, "kpps": 1e3}[unit]
    assert {path.name for path in paths} == set(alone)
    assert all(abs(float(path.capacity or 0) * scale - alone[path.name]) <= 1 for path in paths)
    plan = plan_paths(paths, resources)
    if together < _LEAST * 0.999:
        verdicts = {pair.verdict for pair in measured_paths(recorded).pairs}
        assert verdicts == {PairVerdict.SHARED}
        assert len(resources) == len(alone) * (len(alone) - 1) / 2
        assert plan.split.total < sum(path.capacity or 0 for path in paths)
    if together >= _LEAST * 1.001:
        assert not resources
        assert plan.split.total == sum(path.capacity or 0 for path in paths)
        assert {pair.verdict for pair in measured_paths(recorded).pairs} == {PairVerdict.APART}


@given(_RATES, st.floats(0.5, 2.0))
def test_the_unit_and_the_order_of_two_paths_do_not_matter(rate: float, together: float) -> None:
    # Exactly between two verdicts, the last digit of a float decides.
    assume(abs(together - _LEAST) > 1e-6)
    one = measured_paths(paths_run({"a": rate, "b": 3 * rate}, together)).pairs[0]
    other = measured_paths(paths_run({"b": 3e3 * rate, "a": 1e3 * rate}, together)).pairs[0]
    assert (one.verdict, round(one.reached.estimate, 9)) == (other.verdict, round(other.reached.estimate, 9))
