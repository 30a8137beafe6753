"""switch.datapath_id: 16 hexadecimal digits as text, because YAML takes some of them for numbers."""

from __future__ import annotations

import pytest

from tests.command_line import SMALL_CONFIG
from xenoovs.errors import ConfigError
from xenoovs.model.balancer import Uplinks
from xenoovs.model.load import parse_config


def _uplinks(datapath_id: str) -> Uplinks:
    text = SMALL_CONFIG.replace("bridge: ovsbr1", f"bridge: ovsbr1, datapath_id: {datapath_id}")
    return parse_config(text, file="c.yaml").uplinks


@pytest.mark.parametrize(
    ("written", "number"), [('"0000c470bda056ac"', 0xC470BDA056AC), ("fFfFfFfFfFfFfFfF", 2**64 - 1)]
)
def test_valid_ids(written: str, number: int) -> None:
    assert _uplinks(written).datapath_id == number
    assert _uplinks(written).label == f"ovsbr1@{number:016x}"


@pytest.mark.parametrize(
    ("written", "message"),
    [
        # As YAML reads them: a decimal number, and one with an exponent.
        ("0000000000000012", "12 is a number to YAML; write the 16 digits in quotes"),
        ("00009e6012345678", "is a number to YAML; write the 16 digits in quotes"),
        ("c470bda056ac", "'c470bda056ac' is not a datapath id; write 16 hexadecimal digits"),
        ('"0000000000000000"', "is not a datapath id"),
        ("[]", "is not a datapath id"),
        ("true", "is not a datapath id"),
    ],
)
def test_invalid_ids(written: str, message: str) -> None:
    with pytest.raises(ConfigError, match=r"switch\.datapath_id") as caught:
        _uplinks(written)
    assert message in str(caught.value)


def test_without_one_the_name_is_enough() -> None:
    assert parse_config(SMALL_CONFIG, file="c.yaml").uplinks.label == "ovsbr1"
