"""Every kind of mistake in a config, with its exact message; `--update-golden` rewrites the messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.test_flows import compare
from xenoovs.errors import ConfigError
from xenoovs.model.load import parse_config

CASES = Path(__file__).parent / "config_errors"
NAMES = sorted(path.stem for path in CASES.glob("*.yaml"))


def test_cases_and_messages_belong_together() -> None:
    assert NAMES
    assert sorted(path.stem for path in CASES.glob("*.txt")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_messages(name: str, *, update_golden: bool) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config((CASES / f"{name}.yaml").read_bytes(), file=f"{name}.yaml")
    compare(CASES / f"{name}.txt", f"{caught.value}\n", update=update_golden)
