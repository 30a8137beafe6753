"""Laws of the verdict on a pair of paths, and of the file of what was measured."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.unit.measure.made import paths_run
from xenoovs.measure.path_figures import judge_pair, measured_file, measured_paths
from xenoovs.measure.paths_file import load_paths
from xenoovs.measure.statistics import FEWEST_REPEATS
from xenoovs.paths.plan import TOLERANCE, PairVerdict, plan_paths

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
def test_noise_around_the_limit_stays_undecided(reached: list[float], random: object) -> None:
    # As many repeats far above as below: no interval of their mean is on one side.
    mixed = [value for value in reached for value in (_LEAST + value, _LEAST - value)]
    random.shuffle(mixed)  # type: ignore[attr-defined]  # random.Random by hypothesis
    assert judge_pair(mixed, _enough(len(mixed)))[0] is PairVerdict.UNDECIDED


@settings(max_examples=25)
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
