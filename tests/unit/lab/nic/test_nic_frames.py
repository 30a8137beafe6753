"""Frames survive any cut, and a new host finds its place behind what an earlier one has left."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xenoovs.lab.nic.frames import (
    FrameReader,
    Kind,
    Request,
    parse_request,
    parse_size,
    render_frame,
    render_request,
    render_size,
)


@given(st.lists(st.tuples(st.sampled_from(Kind), st.binary(max_size=20)), max_size=8), st.integers(1, 7))
def test_frames_come_out_as_they_went_in_however_they_are_cut(frames: list[tuple[Kind, bytes]], size: int) -> None:
    stream = b"".join(render_frame(kind, payload) for kind, payload in frames)
    reader = FrameReader()
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert [frame for piece in pieces for frame in reader.feed(piece)] == frames


def test_what_is_no_frame_is_refused() -> None:
    with pytest.raises(ValueError, match="not a valid Kind"):
        list(FrameReader().feed(b"?????"))


def test_a_new_host_drops_what_came_before_its_token() -> None:
    start, reader = render_frame(Kind.BEGIN, b"T" * 16), FrameReader()
    left = render_frame(Kind.OUTPUT, b"of an earlier command")[3:]
    assert not reader.seek(left + start[:5], start)
    assert reader.seek(start[5:] + render_frame(Kind.EXIT, b"0"), start)
    assert list(reader.feed(b"")) == [(Kind.EXIT, b"0")]


@pytest.mark.parametrize("terminal", [None, (24, 80)])
def test_a_request_survives_the_way(terminal: tuple[int, int] | None) -> None:
    request = Request("00ff", ("sh", "-c", "ä"), "/tmp", {"TERM": "xterm"}, {"/a": "b"}, terminal)
    assert parse_request(render_request(request)) == request


def test_a_size_survives_the_way() -> None:
    assert parse_size(render_size(50, 213)) == (50, 213)
