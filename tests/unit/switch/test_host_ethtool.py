"""Features as ethtool 6.1 prints them (recorded)."""

from __future__ import annotations

import pytest

from xenoovs.datapath.host import Feature
from xenoovs.errors import ParseError
from xenoovs.switch.devices import parse_feature

TEXT = """Features for p0:
rx-checksumming: off [fixed]
tx-checksumming: off
\ttx-checksum-ipv4: off [fixed]
generic-segmentation-offload: off [requested on]
l2-fwd-offload: off [fixed]
{}
esp-hw-offload: off [fixed]
"""


@pytest.mark.parametrize(
    ("line", "feature"),
    [
        ("hw-tc-offload: on", Feature(is_on=True)),
        ("hw-tc-offload: off", Feature(is_on=False)),
        ("hw-tc-offload: off [fixed]", Feature(is_on=False, is_fixed=True)),
        ("hw-tc-offload: off [requested on]", Feature(is_on=False)),
        ("", None),
    ],
)
def test_hw_tc_offload(line: str, feature: Feature | None) -> None:
    assert parse_feature(TEXT.format(line), "hw-tc-offload") == feature


@pytest.mark.parametrize("text", ["", "Features for p0:\n", "netlink error: No such device\n"])
def test_text_without_features_is_refused(text: str) -> None:
    with pytest.raises(ParseError):
        parse_feature(text, "hw-tc-offload")
