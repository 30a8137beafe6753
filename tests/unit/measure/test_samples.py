"""The directory of a run: what is written is read again, strictly, and nothing is lost by a crash or a full disk."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xenoovs.errors import FileUnusable, MeasureError
from xenoovs.measure.samples import (
    SAMPLES_FILE,
    BedKind,
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


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    with new_run(tmp_path, RUN) as writer:
        writer.append(sample(64, 0))
        writer.set_basis({"throughput_pps": 9})
    (directory,) = find_runs(tmp_path)
    recorded = read_recorded(directory)
    assert recorded.run == replace(RUN, basis={"throughput_pps": 9})
    assert recorded.samples == (sample(64, 0),)
    assert recorded.samples[0].suspect == ("a reason",)
    assert not recorded.is_complete


def test_a_resumed_run_lacks_what_was_not_measured(tmp_path: Path) -> None:
    with new_run(tmp_path, RUN) as writer:
        writer.append(sample(64, 1))
        directory = writer.directory
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
        directory = writer.directory
    with (directory / SAMPLES_FILE).open("a") as file:
        file.write('{"experiment": "rate", "poi')
    assert read_recorded(directory).samples == (sample(64, 0),)
    with resumed_run(directory) as writer:
        writer.append(sample(64, 1))
    assert read_recorded(directory).samples == (sample(64, 0), sample(64, 1))


def test_a_disk_that_is_full_at_the_start_leaves_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(MeasureError, match=r"cannot be stored in .*: No space left on device; name another"):
        new_run(tmp_path, RUN).__enter__()
    assert not [*tmp_path.iterdir()]


def test_a_full_disk_loses_no_sample_that_was_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with new_run(tmp_path, RUN) as writer:
        writer.append(sample(64, 0))
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", full)
            with pytest.raises(MeasureError, match=r"No space left on device; 1 sample is stored: .*--resume"):
                writer.append(sample(64, 1))
        assert read_recorded(writer.directory).samples == (sample(64, 0),)
        writer.append(sample(128, 0))
    assert read_recorded(writer.directory).samples == (sample(64, 0), sample(128, 0))


def test_two_processes_do_not_add_to_one_run(tmp_path: Path) -> None:
    with (
        new_run(tmp_path, RUN) as writer,
        pytest.raises(MeasureError, match="another process adds samples"),
        resumed_run(writer.directory),
    ):
        pass


def test_two_runs_of_one_second_have_directories_of_their_own(tmp_path: Path) -> None:
    with new_run(tmp_path, RUN), new_run(tmp_path, RUN):
        pass
    assert [path.name for path in find_runs(tmp_path)] == ["rate-20261122T203000Z", "rate-20261122T203000Z-2"]


def test_a_directory_without_runs_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(MeasureError, match=f"{tmp_path} holds no run"):
        find_runs(tmp_path)
    with pytest.raises(MeasureError, match="No such file or directory"):
        find_runs(tmp_path / "missing")


GOOD = '{"experiment": "rate", "point": {}, "repeat": 0, "at": "", "values": {}, "suspect": []}\n'


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "line 2, column 2: Expecting property name"),
        ("[1]", "line 2, column 1: expected a mapping"),
        ('{"repeat": NaN}', "line 2, column 12: NaN is not a number"),
        (GOOD.strip().replace("0,", "true,"), "line 2, `repeat` must be an integer, found True"),
        (GOOD.strip().replace('"values": {}', '"values": {"rtt_us": [1, "x"]}'), "line 2, `values.rtt_us` must be"),
        (GOOD.strip().replace('"point": {}', '"point": {"a": []}'), "line 2, `point.a` must be a plain value"),
        (GOOD.strip().replace('"at"', '"when"'), "line 2, `when` must be absent"),
        (GOOD.strip().replace("rate", "loss"), "line 2: a sample of 'loss' in a run of 'rate'"),
        (GOOD.strip(), "repeat 0 of point {} is there twice"),
    ],
)
def test_wrong_samples_name_their_line(line: str, reason: str) -> None:
    with pytest.raises(FileUnusable) as caught:
        parse_samples(f"{GOOD}{line}\n", file="samples.jsonl", experiment="rate")
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ('"xenoovs_run": 1', '"xenoovs_run": 2', "another version"),
        ('"kind": "lab"', '"kind": "moon"', "`kind`"),
        ('"seed": 7', '"seed": "7"', "`seed` must be an integer, found '7'"),
        ('"seed": 7,', "", "`seed` must be an integer, found nothing"),
        ('"seed": 7', '"seed": 7, "sead": 7', "`sead` must be absent"),
    ],
)
def test_a_wrong_run_file_is_reported_with_its_mistake(before: str, after: str, reason: str) -> None:
    text = render_run(RUN)
    assert before in text
    with pytest.raises(FileUnusable) as caught:
        parse_run(text.replace(before, after), file="run.json")
    assert reason in str(caught.value)


@given(st.text() | st.binary().map(lambda data: data.decode("latin-1")))
def test_any_text_gives_samples_or_an_error(text: str) -> None:
    with suppress(FileUnusable):
        parse_samples(f"{text}\n", file="samples.jsonl", experiment="rate")
