"""Frames survive any split, and a new host skips what an earlier one has left in the stream."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xenoovs.lab.nic.frames import (
    FrameKind,
    FrameReader,
    GuestCommand,
    parse_command,
    render_command,
    render_frame,
)


@given(st.lists(st.tuples(st.sampled_from(FrameKind), st.binary(max_size=20)), max_size=8), st.integers(1, 7))
def test_frames_come_out_as_they_went_in_however_they_are_cut(frames: list[tuple[FrameKind, bytes]], size: int) -> None:
    stream = b"".join(render_frame(kind, payload) for kind, payload in frames)
    reader = FrameReader()
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert [frame for piece in pieces for frame in reader.feed(piece)] == frames


def test_what_is_no_frame_is_refused() -> None:
    with pytest.raises(ValueError, match="not a valid FrameKind"):
        list(FrameReader().feed(b"?????"))


def test_a_new_host_drops_what_came_before_its_token() -> None:
    start, reader = render_frame(FrameKind.BEGIN, b"T" * 16), FrameReader()
    left = render_frame(FrameKind.OUTPUT, b"of an earlier command")[3:]
    assert not reader.seek(left + start[:5], start)
    assert reader.seek(start[5:] + render_frame(FrameKind.EXIT, b"0"), start)
    assert list(reader.feed(b"")) == [(FrameKind.EXIT, b"0")]


@pytest.mark.parametrize("terminal", [None, (24, 80)])
def test_a_command_survives_the_way(terminal: tuple[int, int] | None) -> None:
    command = GuestCommand(("sh", "-c", "ä"), "/tmp", {"TERM": "xterm"}, {"/a": "b"}, terminal)
    assert parse_command(render_command(command)) == command
