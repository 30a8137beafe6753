"""Every kind of mistake in a config, with its exact message.

Run this file as a program to rewrite the messages after a change of wording; then read the difference.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from xenoovs.errors import ConfigError
from xenoovs.model.load import parse_config

CASES = Path(__file__).parent / "config_errors"
NAMES = sorted(path.stem for path in CASES.glob("*.yaml"))


def messages(name: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_config((CASES / f"{name}.yaml").read_bytes(), file=f"{name}.yaml")
    return f"{caught.value}\n"


def test_cases_and_messages_belong_together() -> None:
    assert NAMES
    assert sorted(path.stem for path in CASES.glob("*.txt")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_messages(name: str) -> None:
    assert messages(name) == (CASES / f"{name}.txt").read_text(encoding="utf-8")


if __name__ == "__main__":
    for case in NAMES:
        (CASES / f"{case}.txt").write_text(messages(case), encoding="utf-8")
