"""The line that describes a drain."""

from __future__ import annotations

import pytest

from xenoovs.cli.plan import drain_line
from xenoovs.compile.drains import Draining


@pytest.mark.parametrize(
    ("ways", "line"),
    [
        (
            (("one", "six"), ("two", "six")),
            "open connections of 3 blocks stay with one, two for at most 15s; new ones go to six in 2s",
        ),
        (
            (("one", "six"), ("six", "two")),
            "open connections of 3 blocks stay with their backends for at most 15s; new ones go to others in 2s "
            "(one -> six, six -> two)",
        ),
        (
            (("six", "six"), ("one", "two")),
            "open connections of 3 blocks stay with one for at most 15s; new ones go to two in 2s",
        ),
        (
            (("six", "six"),),
            "3 blocks back with six; connections opened elsewhere meanwhile stay there for at most 15s",
        ),
    ],
    ids=["some", "in both directions", "some back", "back"],
)
def test_no_backend_keeps_connections_that_it_just_gets(ways: tuple[tuple[str, str], ...], line: str) -> None:
    """A slow start during a drain was shown as `stay with six; new ones go to six`."""
    drain = Draining("web", ways, blocks=3, left_s=15.0, is_settling=True, settles_s=1.4)
    assert drain_line(drain) == f"service web: {line}"
