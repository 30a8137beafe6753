from __future__ import annotations

from xenoovs.lab.client import Window


def test_it_fills_and_an_answer_makes_room() -> None:
    window = Window(2, 1.0, 0.1)
    window.add(0, now_s=0)
    window.add(1, now_s=0)
    assert window.is_full
    window.answered(0)
    assert not window.is_full


def test_whoever_is_not_answered_in_time_is_given_up_oldest_first() -> None:
    window = Window(3, 1.0, 0.1)
    for key, now_s in enumerate((0.0, 0.5, 0.9)):
        window.add(key, now_s=now_s)
    assert window.rest_s(now_s=0.75) == 0.25
    assert window.give_up(now_s=1.5) == [0, 1]
    assert window.lost == 2
    assert list(window.under_way) == [2]
    window.answered(0)
    assert list(window.under_way) == [2]


def test_after_two_windows_of_losses_patience_is_short() -> None:
    window = Window(1, 1.0, 0.1)
    for key in range(3):
        assert window.current_patience_s == 1.0
        window.add(key, now_s=key)
        assert window.give_up(now_s=key + 1) == [key]
    assert window.current_patience_s == 0.1
    assert Window(1, 1.0, 0.1, lost=3).current_patience_s == 0.1


def test_nothing_under_way_leaves_nothing_to_wait_for() -> None:
    assert Window(1, 1.0, 0.1).rest_s(now_s=5) == 0
