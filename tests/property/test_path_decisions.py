"""Laws of decisions about blocks, for any rounds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.path_rounds import Sender
from xenoovs.agent.paths.decide import HOLD_S, MoveReason
from xenoovs.show.paths import PathState

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


@given(st.lists(st.floats(100.0, 50_000.0), min_size=30, max_size=120), _SEED)
def test_paths_that_are_alike_move_nothing(answers: list[float], seed: int) -> None:
    assert not _played(Sender(seed=seed), [(answer,) * 4 for answer in answers]).shifts


@given(st.lists(st.tuples(*(st.sampled_from([None]),) * 4), min_size=10, max_size=60), _SEED)
def test_silence_moves_nothing(rounds: list[tuple[None, ...]], seed: int) -> None:
    assert not _played(Sender(seed=seed), list(rounds)).shifts


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
