"""Options of `measure echo`."""

from __future__ import annotations

import pytest

from tests.command_line import CommandLine


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ("64,big", "'64,big' is not a list of sizes such as 64,65536."),
        ("0", "0 is no size of a message: write 1 to 16777216."),
        ("16777217", "16777217 is no size of a message: write 1 to 16777216."),
    ],
)
def test_sizes_that_are_none(sizes: str, message: str, xenoovs: CommandLine) -> None:
    result = xenoovs("measure", "echo", "--lab", "none", "--sizes", sizes)
    assert (result.status, message in " ".join(result.err.split())) == (64, True), result.err
