"""The order of a run, and what an interruption leaves."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from tests.unit.measure.test_samples import RUN
from xenoovs.measure.bed import Bed
from xenoovs.measure.samples import Plain, Point, Value, new_run, read_recorded, resumed_run
from xenoovs.measure.schedule import Measurement, RunProgress, carry_out, order_of

BED = cast(Bed, None)
POINTS: Sequence[Point] = tuple({"frame_bytes": size} for size in (64, 128, 256, 512))


class Counting:
    """An experiment that is interrupted at one of its measurements."""

    name = "rate"
    repeats = 3
    points: Sequence[Point] = POINTS
    options: Mapping[str, Plain] = {}
    point_s = 1.0

    def __init__(self, *, interrupted_at: int | None = None) -> None:
        self.interrupted_at, self.measured, self.prepared = interrupted_at, 0, 0

    def prepare(self, bed: Bed) -> Mapping[str, Value]:
        self.prepared += 1
        return {"throughput_pps": 7}

    def warm_up(self, bed: Bed, basis: Mapping[str, Value]) -> None:
        assert basis == {"throughput_pps": 7}

    def measure(self, bed: Bed, point: Point, basis: Mapping[str, Value]) -> Measurement:
        if self.measured == self.interrupted_at:
            raise KeyboardInterrupt
        self.measured += 1
        return Measurement({"sent": self.measured})


RUN_OF_FOUR = replace(RUN, points=tuple(POINTS), repeats=3)


def test_every_repeat_has_all_points_in_an_order_of_its_own() -> None:
    order = order_of(RUN_OF_FOUR)
    rounds = [order[start : start + 4] for start in (0, 4, 8)]
    for number, one in enumerate(rounds):
        assert sorted(int(point["frame_bytes"]) for point, _ in one) == [64, 128, 256, 512]
        assert {repeat for _, repeat in one} == {number}
    assert order == order_of(RUN_OF_FOUR)
    assert len({str(order_of(replace(RUN_OF_FOUR, seed=seed))) for seed in range(5)}) == 5


def test_a_session_without_time_still_measures_one_point(tmp_path: Path) -> None:
    for stored in (1, 2):
        with new_run(tmp_path, RUN_OF_FOUR) if stored == 1 else resumed_run(next(tmp_path.iterdir())) as writer:
            carry_out(Counting(), BED, writer, progress=lambda _: None, within_s=0.0)
            assert len(writer.samples) == stored
    with resumed_run(next(tmp_path.iterdir())) as writer:
        carry_out(Counting(), BED, writer, progress=lambda _: None)
        assert len(writer.samples) == 12


def test_open_vswitch_is_restarted_once_for_each_change_of_offload() -> None:
    points = [{"bytes": size, "offload": offload} for offload in ("on", "off") for size in (16, 64, 256)]
    order = order_of(replace(RUN_OF_FOUR, points=tuple(points)))
    offloads = [point["offload"] for point, _ in order]
    assert sum(one != other for one, other in itertools.pairwise(offloads)) == 3
    assert len({str(order[start : start + 6]) for start in (0, 6, 12)}) == 3


def test_a_short_run_has_the_same_points_with_each_setting_of_offload(tmp_path: Path) -> None:
    points = tuple({"bytes": size, "offload": offload} for offload in ("on", "off") for size in (16, 64, 256))
    run = replace(RUN_OF_FOUR, points=points, repeats=1)
    for sessions, sizes in ((1, 1), (2, 2), (3, 3)):
        with new_run(tmp_path, run) if sessions == 1 else resumed_run(next(tmp_path.iterdir())) as writer:
            carry_out(Counting(), BED, writer, progress=lambda _: None, within_s=0.0)
            measured = {
                offload: [s.point["bytes"] for s in writer.samples if s.point["offload"] == offload]
                for offload in ("on", "off")
            }
        assert measured["on"] == measured["off"]
        assert len(measured["on"]) == sizes
    assert read_recorded(next(tmp_path.iterdir())).is_complete


@pytest.mark.parametrize("at", range(12))
def test_an_interrupted_and_resumed_run_has_the_points_of_an_uninterrupted_one(tmp_path: Path, at: int) -> None:
    shown: list[RunProgress] = []
    with new_run(tmp_path, RUN_OF_FOUR) as writer:
        directory = writer.directory
        with pytest.raises(KeyboardInterrupt):
            carry_out(Counting(interrupted_at=at), BED, writer, progress=shown.append)
    assert len(read_recorded(directory).samples) == at
    later = Counting()
    with resumed_run(directory) as writer:
        carry_out(later, BED, writer, progress=shown.append)
    recorded = read_recorded(directory)
    assert recorded.is_complete
    assert [sample.key for sample in recorded.samples] == [
        (str(point).replace("'", '"'), repeat) for point, repeat in order_of(RUN_OF_FOUR)
    ]
    assert (later.measured, later.prepared) == (12 - at, 0)
    assert shown[-1].done == 11
    assert shown[-1].total == 12
