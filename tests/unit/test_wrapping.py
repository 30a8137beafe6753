"""Text on a narrow terminal is broken where a person would break it."""

from __future__ import annotations

from xenoovs.show.terminal import wrapped

_MEGAFLOW = "recirc_id(0),in_port(p0),eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02),geneve({class=0x2,0x1/0xf}),p1"


def test_a_megaflow_is_broken_after_commas_and_a_number_is_not() -> None:
    assert wrapped(f"1,024 packets: {_MEGAFLOW}", 40, indent="  ") == [
        "1,024 packets: recirc_id(0),in_port(p0),",
        "  eth(src=02:00:00:00:00:01,",
        "  dst=02:00:00:00:00:02),",
        "  geneve({class=0x2,0x1/0xf}),p1",
    ]


def test_a_word_that_is_longer_than_a_line_sticks_out_of_a_sentence_and_not_of_a_cell() -> None:
    assert wrapped("a long-long-word", 6) == ["a", "long-long-word"]
    assert wrapped("a long-long-word", 6, breaks_words=True) == ["a long", "-long-", "word"]
