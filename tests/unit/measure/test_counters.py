"""Results from counters: loss by backend, and what makes a sample suspect."""

from __future__ import annotations

import pytest

from xenoovs.errors import MeasureError
from xenoovs.measure.counters import InterfaceCounts, counted_frames, parse_counts

STATISTICS = "rx_packets 10\ntx_packets 20\nrx_dropped 0\ntx_dropped 0\n"


def counts(**numbers: tuple[int, int]) -> dict[str, InterfaceCounts]:
    return {role: InterfaceCounts(rx, tx, is_physical=False) for role, (rx, tx) in numbers.items()}


BEFORE = counts(generator=(0, 100), dpu=(100, 0), a=(5, 0), b=(7, 0))


def test_loss_is_what_was_sent_and_reached_no_backend() -> None:
    after = counts(generator=(0, 1100), dpu=(1100, 0), a=(605, 0), b=(307, 0))
    found = counted_frames(BEFORE, after, backends=("a", "b"))
    assert (found.sent, found.switched, found.received) == (1000, 1000, 900)
    assert found.received_by_backend == {"a": 600, "b": 300}
    assert found.loss_share == pytest.approx(0.1)
    assert found.suspect == ()


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        (
            counts(generator=(0, 50), dpu=(1100, 0), a=(605, 0), b=(307, 0)),
            "the tx counter of generator went back from 100 to 50: it wrapped, or was reset",
        ),
        (
            counts(generator=(0, 1100), dpu=(1100, 0), a=(605, 0), b=(0, 0)),
            "the rx counter of b went back from 7 to 0: it wrapped, or was reset",
        ),
        (
            counts(generator=(0, 1100), dpu=(1100, 0), a=(1505, 0), b=(7, 0)),
            "the backends received 1500 frames and the generator sent 1000: other traffic reaches them",
        ),
        (
            counts(generator=(0, 1100), dpu=(2100, 0), a=(605, 0), b=(307, 0)),
            "the switch received 2000 frames and the generator sent 1000: others send to it too",
        ),
    ],
)
def test_counters_that_cannot_be_right_make_a_sample_suspect(after: dict[str, InterfaceCounts], reason: str) -> None:
    found = counted_frames(BEFORE, after, backends=("a", "b"))
    assert found.suspect == (reason,)
    assert found.loss_share >= 0


def test_frames_of_another_kind_are_no_reason() -> None:
    after = counts(generator=(0, 1100), dpu=(1105, 0), a=(605, 0), b=(419, 0))
    assert counted_frames(BEFORE, after, backends=("a", "b")).suspect == ()


def test_counters_at_the_wire_are_preferred() -> None:
    physical = "     rx_packets_phy: 11\n     tx_packets_phy: 22\n"
    found = parse_counts(f"== generator\n{STATISTICS}== a b\n{STATISTICS}{physical}")
    assert found == {
        "generator": InterfaceCounts(10, 20, is_physical=False),
        "a b": InterfaceCounts(11, 22, is_physical=True),
    }


def test_an_interface_without_counters_is_named() -> None:
    with pytest.raises(MeasureError, match="the interface of b shows no rx_packets"):
        parse_counts(f"== a\n{STATISTICS}== b\n")
