"""The directory of a run: what is written is read again, strictly, in order whatever a clock shows; nothing is lost."""

from __future__ import annotations

import errno
import itertools
import os
import socket
import struct
import time as real_time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.judged import assert_recorded
from tests.patience import eventually
from xenoovs.errors import FileUnusable, MeasureError
from xenoovs.measure import packet_program
from xenoovs.measure.run import Basis, Experiment, carry_out, order_of
from xenoovs.measure.samples import (
    SAMPLES_FILE,
    BedKind,
    Measurement,
    Point,
    Run,
    Sample,
    Value,
    find_runs,
    new_run,
    parse_run,
    parse_samples,
    read_recorded,
    render_run,
    resumed_run,
)

RUN = Run(
    experiment="rate",
    config="version: 1\n",
    bed={"lab": "default"},
    kind=BedKind.LAB,
    datapath="Open vSwitch 3.1.0, userspace datapath, in a lab on one machine",
    versions={"xenoovs": "1"},
    command=("xenoovs", "measure", "rate"),
    seed=7,
    quick=False,
    repeats=2,
    points=({"frame_bytes": 64}, {"frame_bytes": 128}),
    started="2026-11-22T20:30:00.000Z",
)


def sample(frame_bytes: int, repeat: int) -> Sample:
    values: dict[str, Value] = {"sent": 3, "received_by_backend": {"a": 1, "b": 2}, "trial_sent_pps": [1.5, 2]}
    return Sample("rate", {"frame_bytes": frame_bytes}, repeat, "2026-11-22T20:30:01.000Z", values, ("a reason",))


def test_a_run_is_read_as_it_was_written_and_resumed_with_what_it_lacks(tmp_path: Path) -> None:
    with new_run(tmp_path, RUN) as writer:
        writer.append(sample(64, 1))
        writer.set_basis({"throughput_pps": 9})
    (directory,) = find_runs(tmp_path)
    recorded = read_recorded(directory)
    assert recorded.run == replace(RUN, basis={"throughput_pps": 9})
    assert recorded.samples == (sample(64, 1),)
    assert not recorded.is_complete
    with resumed_run(directory) as writer:
        assert writer.run.missing(writer.samples) == {
            ('{"frame_bytes": 64}', 0),
            ('{"frame_bytes": 128}', 0),
            ('{"frame_bytes": 128}', 1),
        }
        for frame_bytes, repeat in ((64, 0), (128, 0), (128, 1)):
            writer.append(sample(frame_bytes, repeat))
    assert read_recorded(directory).is_complete


def test_half_a_line_of_a_crash_is_dropped_and_the_rest_stays(tmp_path: Path) -> None:
    with new_run(tmp_path, RUN) as writer:
        writer.append(sample(64, 0))
    with (writer.directory / SAMPLES_FILE).open("a") as file:
        file.write('{"experiment": "rate", "poi')
    assert read_recorded(writer.directory).samples == (sample(64, 0),)
    with resumed_run(writer.directory) as writer:
        writer.append(sample(64, 1))
    assert read_recorded(writer.directory).samples == (sample(64, 0), sample(64, 1))


def _full(_descriptor: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_loses_no_sample_that_was_stored_and_leaves_no_empty_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", _full)
        with pytest.raises(MeasureError, match=r"cannot be stored in .*: No space left on device; name another"):
            new_run(tmp_path, RUN).__enter__()
    assert not [*tmp_path.iterdir()]
    with new_run(tmp_path, RUN) as writer:
        writer.append(sample(64, 0))
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", _full)
            with pytest.raises(MeasureError, match=r"No space left on device; 1 sample is stored: .*--resume"):
                writer.append(sample(64, 1))
        assert read_recorded(writer.directory).samples == (sample(64, 0),)
        writer.append(sample(128, 0))
    assert read_recorded(writer.directory).samples == (sample(64, 0), sample(128, 0))


def test_two_runs_of_one_second_have_directories_of_their_own_and_one_writer_each(tmp_path: Path) -> None:
    with new_run(tmp_path, RUN) as writer, new_run(tmp_path, RUN):
        with pytest.raises(MeasureError, match="another process adds samples"), resumed_run(writer.directory):
            pass
        assert [path.name for path in find_runs(tmp_path)] == ["rate-20261122T203000Z", "rate-20261122T203000Z-2"]


def test_a_directory_without_runs_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(MeasureError, match=f"{tmp_path} holds no run"):
        find_runs(tmp_path)
    with pytest.raises(MeasureError, match="No such file or directory"):
        find_runs(tmp_path / "missing")


GOOD = '{"experiment": "rate", "point": {}, "repeat": 0, "at": "", "values": {}, "suspect": []}'
RUN_TEXT = render_run(RUN)


def but(text: str, before: str, after: str) -> str:
    assert before in text
    return text.replace(before, after, 1)


LINES = {
    "half an object": "{",
    "a list": "[1]",
    "no number of a repeat": but(GOOD, "0,", "NaN,"),
    "a list with a text": but(GOOD, '"values": {}', '"values": {"rtt_us": [1, "x"]}'),
    "a value that is no number": but(GOOD, '"values": {}', '"values": {"rtt_us": NaN}'),
    "a value above all numbers": but(GOOD, '"values": {}', f'"values": {{"sent": 1{"0" * 400}}}'),
    "a list in a point": but(GOOD, '"point": {}', '"point": {"a": []}'),
    "half a character": but(GOOD, '"at": ""', r'"at": "\ud800"'),
    "another experiment": but(GOOD, "rate", "loss"),
    "a sample twice": GOOD,
}
RUNS = {
    "another version": but(RUN_TEXT, '"xenoovs_run": 1', '"xenoovs_run": 99, "later": []'),
    "more repeats than there may be": but(RUN_TEXT, '"repeats": 2', '"repeats": 99999999999999999999'),
    "no repeats": but(RUN_TEXT, '"repeats": 2', '"repeats": 0'),
    "a version that is no text": but(RUN_TEXT, '"xenoovs": "1"', '"xenoovs": {}'),
    "an option that is a list": but(RUN_TEXT, '"options": {}', '"options": {"a": []}'),
    "a point above all numbers": but(RUN_TEXT, '"frame_bytes": 64', '"frame_bytes": 1e400'),
    "a seed above all numbers": but(RUN_TEXT, '"seed": 7', f'"seed": {"1" * 5000}'),
    "a bed of another kind": but(RUN_TEXT, '"kind": "lab"', '"kind": "moon"'),
    "half a character in a run": but(RUN_TEXT, "userspace", "\\ud800"),
    "a command that is no text": but(RUN_TEXT, '"measure"', "7"),
}


def test_values_that_no_run_has_are_named_with_their_line(*, update_golden: bool) -> None:
    said = dict[str, str]()
    for title, line in LINES.items():
        with pytest.raises(FileUnusable) as caught:
            parse_samples(f"{GOOD}\n{line}\n", file="samples.jsonl", experiment="rate")
        said[title] = str(caught.value)
    for title, text in RUNS.items():
        with pytest.raises(FileUnusable) as caught:
            parse_run(text, file="run.json")
        said[title] = str(caught.value)
    assert_recorded("measure/files.txt", said, update=update_golden)


@given(st.text() | st.binary().map(lambda data: data.decode("latin-1")))
def test_any_text_gives_samples_or_an_error(text: str) -> None:
    with suppress(FileUnusable):
        parse_samples(f"{text}\n", file="samples.jsonl", experiment="rate")


POINTS: Sequence[Point] = tuple({"frame_bytes": size} for size in (64, 128, 256, 512))


class Counting:
    """An experiment that is interrupted at one of its measurements."""

    def __init__(self, *, interrupted_at: int | None = None) -> None:
        self.interrupted_at, self.measured, self.prepared = interrupted_at, 0, 0

    @property
    def made(self) -> Experiment:
        return Experiment("rate", POINTS, 3, 1.0, self.measure, prepare=self.prepare, warm_up=lambda: None)

    def prepare(self) -> Basis:
        self.prepared += 1
        return {"throughput_pps": 7}

    def measure(self, point: Point, basis: Basis) -> Measurement:
        assert basis == {"throughput_pps": 7}
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


def session(directory: Path, run: Run, *, within_s: float | None = None) -> Sequence[Sample]:
    """Begin or resume the run of a directory, and return the samples that it has then."""
    with resumed_run(next(directory.iterdir())) if [*directory.iterdir()] else new_run(directory, run) as writer:
        carry_out(Counting().made, writer, progress=lambda *_: None, within_s=within_s)
        return tuple(writer.samples)


def test_a_session_without_time_still_measures_one_point(tmp_path: Path) -> None:
    assert [len(session(tmp_path, RUN_OF_FOUR, within_s=0.0)) for _ in range(2)] == [1, 2]
    assert len(session(tmp_path, RUN_OF_FOUR)) == 12


def test_open_vswitch_is_restarted_once_for_each_change_of_offload() -> None:
    points = [{"bytes": size, "offload": offload} for offload in ("on", "off") for size in (16, 64, 256)]
    order = order_of(replace(RUN_OF_FOUR, points=tuple(points)))
    offloads = [point["offload"] for point, _ in order]
    assert sum(one != other for one, other in itertools.pairwise(offloads)) == 3
    assert len({str(order[start : start + 6]) for start in (0, 6, 12)}) == 3


def test_a_short_run_has_the_same_points_with_each_setting_of_offload(tmp_path: Path) -> None:
    points = tuple({"bytes": size, "offload": offload} for offload in ("on", "off") for size in (16, 64, 256))
    for sizes in (1, 2, 3):
        samples = session(tmp_path, replace(RUN_OF_FOUR, points=points, repeats=1), within_s=0.0)
        on, off = ([s.point["bytes"] for s in samples if s.point["offload"] == offload] for offload in ("on", "off"))
        assert on == off
        assert len(on) == sizes
    assert read_recorded(next(tmp_path.iterdir())).is_complete


@pytest.mark.parametrize("at", [0, 1, 4, 11])
def test_an_interrupted_and_resumed_run_has_the_points_of_an_uninterrupted_one(tmp_path: Path, at: int) -> None:
    shown: list[tuple[Point, int, int, float]] = []
    with new_run(tmp_path, RUN_OF_FOUR) as writer:
        directory = writer.directory
        with pytest.raises(KeyboardInterrupt):
            carry_out(Counting(interrupted_at=at).made, writer, progress=lambda *each: shown.append(each))
    assert len(read_recorded(directory).samples) == at
    later = Counting()
    with resumed_run(directory) as writer:
        carry_out(later.made, writer, progress=lambda *each: shown.append(each))
    recorded = read_recorded(directory)
    assert recorded.is_complete
    assert [sample.key for sample in recorded.samples] == [
        (str(point).replace("'", '"'), repeat) for point, repeat in order_of(RUN_OF_FOUR)
    ]
    assert (later.measured, later.prepared) == (12 - at, 0)
    assert shown[-1][1:3] == (11, 12)


SOURCE, DESTINATION = bytes([198, 18, 0, 1]), bytes([203, 0, 113, 1])
FRAME = bytes(12) + b"\x08\x00" + bytes(12) + SOURCE + DESTINATION + bytes(40)


class Clock(SimpleNamespace):
    """The module `time`, whose clock of the day is set by `jump_s` when a frame is sent."""

    def __init__(self, jump_s: float) -> None:
        super().__init__(monotonic=real_time.monotonic, sleep=lambda _s: None)
        self.jump_s, self.offset_s = jump_s, 0.0

    def time(self) -> float:
        return real_time.time() + self.offset_s

    def time_ns(self) -> int:
        return real_time.time_ns() + round(self.offset_s * 1e9)


class Wire:
    """A packet socket at which a frame arrives a millisecond after it was sent, stamped by the clock of the day."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.sent = clock, b""

    def send(self, data: bytes) -> None:
        self.sent = data
        self.clock.offset_s += self.clock.jump_s
        real_time.sleep(0.001)

    def settimeout(self, _seconds: float) -> None:
        pass

    def recvmsg(self, _size: int, _ancillary: int) -> tuple[object, ...]:
        seconds, nanoseconds = divmod(self.clock.time_ns(), 10**9)
        stamp = struct.pack("@ll", seconds, nanoseconds)
        return self.sent, [(socket.SOL_SOCKET, 35, stamp)], 0, ("eth0", 0, 0)


def wired(clock: Clock) -> socket.socket:
    return cast(socket.socket, Wire(clock))


@pytest.mark.parametrize("jump_s", [0.0, 3600.0, -3600.0, 0.5, -0.5])
def test_a_clock_that_is_set_meanwhile_changes_no_time(jump_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a round trip is left out, and a first packet took no longer than it may."""
    wire = wired(clock := Clock(jump_s))
    monkeypatch.setattr(packet_program, "time", clock)
    monkeypatch.setattr(packet_program, "select", SimpleNamespace(select=lambda each, *_: (each,)))
    found = packet_program.round_trip_us(wire, DESTINATION, FRAME, 7)
    assert (found is None) == bool(jump_s)
    assert found is None or found >= 1000

    def is_as_long_as_it_took() -> bool:
        found = packet_program.arrival_us(FRAME, wire, [wire])
        return found is not None and 1000 <= found < 0.4e6

    # A moment without a processor is part of the time.
    eventually(is_as_long_as_it_took, "the time of a packet, without the jump of the clock")


def test_samples_of_a_session_are_in_order_whatever_the_wall_clock_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(0.0)

    class Setting(Counting):
        def measure(self, *arguments: object) -> Measurement:
            clock.offset_s -= 3600
            real_time.sleep(0.002)
            return super().measure(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("xenoovs.measure.run.time", clock)
    with new_run(tmp_path, RUN_OF_FOUR) as writer:
        carry_out(Setting().made, writer, progress=lambda *_: None)
        times = [sample.at for sample in writer.samples]
    assert times == sorted(times)
    assert len(set(times)) == 12
