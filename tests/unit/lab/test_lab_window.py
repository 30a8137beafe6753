from __future__ import annotations

from xenoovs.lab.client import SendWindow


def test_it_fills_and_an_answer_makes_room() -> None:
    window = SendWindow(2, 1.0, 0.1)
    window.add(0, now_s=0)
    window.add(1, now_s=0)
    assert window.is_full
    window.remove(0)
    assert not window.is_full


def test_packets_without_an_answer_expire_oldest_first() -> None:
    window = SendWindow(3, 1.0, 0.1)
    for key, now_s in enumerate((0.0, 0.5, 0.9)):
        window.add(key, now_s=now_s)
    assert window.wait_s(now_s=0.75) == 0.25
    assert window.expire(now_s=1.5) == [0, 1]
    assert window.lost == 2
    assert list(window.under_way) == [2]
    window.remove(0)
    assert list(window.under_way) == [2]


def test_after_two_windows_of_losses_the_timeout_is_short() -> None:
    window = SendWindow(1, 1.0, 0.1)
    for key in range(3):
        assert window.current_timeout_s == 1.0
        window.add(key, now_s=key)
        assert window.expire(now_s=key + 1) == [key]
    assert window.current_timeout_s == 0.1
    assert SendWindow(1, 1.0, 0.1, lost=3).current_timeout_s == 0.1


def test_nothing_under_way_leaves_nothing_to_wait_for() -> None:
    assert SendWindow(1, 1.0, 0.1).wait_s(now_s=5) == 0
