"""Decisions about blocks, fed by recorded rounds."""

from collections import Counter
from dataclasses import replace

from tests.path_rounds import Sender, always
from xenoovs.agent.paths.decide import HOLD_S, MAX_RESTORE_S, RESTORE_S, MoveReason, Placement
from xenoovs.agent.paths.score import FAILED_AFTER, UNKNOWN_AFTER, Record
from xenoovs.show.paths import PathState

CLEAR, FULL = 400.0, 20_400.0


def test_one_congested_path_of_four_moves_exactly_its_16_blocks() -> None:
    sender = Sender().run(1.0, always(CLEAR, CLEAR, CLEAR, CLEAR)).run(1.0, always(CLEAR, FULL, CLEAR, CLEAR))
    assert sender.counts[1] == 0
    assert len(sender.shifts) == 16
    assert {shift.block for _, shift in sender.shifts} == {
        b for b, home in enumerate(sender.placement.home) if home == 1
    }


def test_half_of_the_blocks_leave_in_each_decision() -> None:
    sender = Sender().run(1.0, always(CLEAR, CLEAR, CLEAR, CLEAR)).run(1.0, always(CLEAR, FULL, CLEAR, CLEAR))
    by_decision = Counter(at_s for at_s, _ in sender.shifts)
    assert [by_decision[at_s] for at_s in sorted(by_decision)] == [8, 4, 2, 1, 1]


def test_a_dead_path_loses_all_its_blocks_in_one_decision() -> None:
    sender = Sender().run(1.0, always(CLEAR, CLEAR, CLEAR, CLEAR))
    sender.run(FAILED_AFTER * 0.01 + 0.02, always(None, None, None, None))
    assert not sender.shifts
    sender.record = Record.empty(4)
    sender.run(0.1, always(CLEAR, CLEAR, None, CLEAR))
    assert sender.verdict.paths[2].state is PathState.FAILED
    assert Counter(shift.reason for _, shift in sender.shifts) == {MoveReason.FAILED: 16}
    assert len({at_s for at_s, _ in sender.shifts}) == 1


def test_a_slow_way_back_moves_nothing() -> None:
    """All answers of a round share it, also while it varies by more than any margin."""
    sender = Sender().run(3.0, lambda now_s: [CLEAR + now_s * 20_000 % 28_000] * 4)
    assert not sender.shifts
    assert {path.state for path in sender.verdict.paths} == {PathState.GOOD}


def test_equally_bad_paths_move_nothing() -> None:
    sender = Sender().run(1.0, always(CLEAR, CLEAR, CLEAR, CLEAR)).run(2.0, always(FULL, FULL + 900, FULL, FULL + 400))
    assert not sender.shifts


def test_the_remote_is_unknown_after_16_rounds_without_answers_and_nothing_moves() -> None:
    sender = Sender().run(1.0, always(CLEAR, CLEAR, CLEAR, CLEAR))
    sender.run((UNKNOWN_AFTER - 1) * 0.01, always(None, None, None, None))
    sender.decide()
    assert {path.state for path in sender.verdict.paths} == {PathState.GOOD}
    sender.run(0.01, always(None, None, None, None))
    sender.decide()
    assert {path.state for path in sender.verdict.paths} == {PathState.UNKNOWN}
    sender.run(5.0, always(None, None, None, None))
    assert not sender.shifts


def test_four_lost_probes_of_nine_do_not_count() -> None:
    sender = Sender().run(1.0, always(CLEAR, CLEAR, CLEAR, CLEAR))
    sender.run(3.0, lambda now_s: (CLEAR, None if round(now_s * 100) % 9 < 4 else CLEAR, CLEAR, CLEAR))
    assert not sender.shifts


def test_blocks_come_home_after_the_path_was_good_for_a_second() -> None:
    sender = Sender().run(1.0, always(CLEAR, CLEAR, CLEAR, CLEAR)).run(1.0, always(CLEAR, FULL, CLEAR, CLEAR))
    left = len(sender.shifts)
    sender.run(RESTORE_S - 0.1, always(CLEAR, CLEAR, CLEAR, CLEAR))
    assert len(sender.shifts) == left
    sender.run(3.0, always(CLEAR, CLEAR, CLEAR, CLEAR))
    assert sender.placement.owners == sender.placement.home
    assert {shift.reason for _, shift in sender.shifts[left:]} == {MoveReason.RESTORED}
    assert len(sender.shifts) == 32


def test_the_wait_is_doubled_for_a_path_that_turns_bad_when_blocks_come_back() -> None:
    sender = Sender().run(1.0, always(CLEAR, CLEAR, CLEAR, CLEAR))
    waits = []
    for _ in range(8):
        # An elephant for which there is room only while we have no blocks there.
        sender.run(1.0, always(CLEAR, FULL, CLEAR, CLEAR))
        waits.append(sender.verdict.paths[1].restore_s)
        sender.run(waits[-1] + 1.0, always(CLEAR, CLEAR, CLEAR, CLEAR))
    assert waits == [RESTORE_S, 2.0, 4.0, 8.0, 16.0, 32.0, MAX_RESTORE_S, MAX_RESTORE_S]


def test_the_doubled_wait_is_reset_after_ten_good_seconds() -> None:
    sender = Sender().run(1.0, always(CLEAR, CLEAR, CLEAR, CLEAR))
    for pause_s in (2.0, 15.0):
        sender.run(1.0, always(CLEAR, FULL, CLEAR, CLEAR)).run(pause_s, always(CLEAR, CLEAR, CLEAR, CLEAR))
    sender.run(1.0, always(CLEAR, FULL, CLEAR, CLEAR))
    assert sender.verdict.paths[1].restore_s == RESTORE_S


def test_a_block_moves_once_in_the_hold_time() -> None:
    sender = Sender().run(1.0, always(CLEAR, CLEAR, CLEAR, CLEAR))
    sender.run(3.0, lambda now_s: [FULL if path == int(now_s * 10) % 4 else CLEAR for path in range(4)])
    last: dict[int, float] = {}
    for at_s, shift in sender.shifts:
        if shift.reason is not MoveReason.FAILED:
            assert at_s - last.get(shift.block, -1.0) >= HOLD_S - 1e-9
        last[shift.block] = at_s
    assert sender.shifts


def test_an_operators_path_keeps_all_blocks_also_if_it_is_bad() -> None:
    sender = Sender().run(1.0, always(CLEAR, CLEAR, CLEAR, CLEAR))
    placement = sender.placement
    sender.placement = Placement(placement.owners, placement.home, (False, True, False, False))
    sender.run(1.0, always(CLEAR, FULL, CLEAR, CLEAR))
    assert sender.counts == [0, 64, 0, 0]
    assert {shift.reason for _, shift in sender.shifts} == {MoveReason.OPERATOR}


def test_a_restart_moves_nothing_although_blocks_are_away_from_home() -> None:
    before = Sender().run(1.0, always(CLEAR, CLEAR, CLEAR, CLEAR)).run(1.0, always(CLEAR, FULL, CLEAR, CLEAR))
    restarted = Sender()
    restarted.placement = before.placement
    restarted.run(1.0, always(CLEAR, FULL, CLEAR, CLEAR))
    assert not restarted.shifts


def test_the_automatic_margin_follows_the_noise_of_calm_rounds() -> None:
    quiet = Sender(margin_us=None).run(2.0, always(CLEAR, CLEAR + 3, CLEAR + 1, CLEAR + 2))
    assert quiet.record.auto_margin_us == 20.0
    noisy = Sender(margin_us=None).run(
        2.0, lambda now_s: [CLEAR + (round(now_s * 100) * 7 + path * 5) % 11 * 20.0 for path in range(4)]
    )
    assert noisy.record.auto_margin_us > 200.0
    margin_us = noisy.record.auto_margin_us
    noisy.run(2.0, always(CLEAR, FULL, CLEAR, CLEAR))
    assert noisy.counts[1] == 0
    assert noisy.record.auto_margin_us <= margin_us
    assert replace(noisy.record, deviations=()).auto_margin_us == 20.0
