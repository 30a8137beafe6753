"""Features of a device by ethtool(8), -k."""

from __future__ import annotations

import re

from xenoovs.datapath.host import Feature
from xenoovs.errors import ParseError

HW_TC_OFFLOAD = "hw-tc-offload"

_FEATURE = re.compile(
    r"^\s*(?P<name>[a-z0-9_-]+): (?P<state>on|off)(?: \[(?P<note>fixed|requested on|requested off)\])?$"
)


def parse_feature(text: str, name: str) -> Feature | None:
    """One feature of the answer of `ethtool -k DEVICE`; None where that kernel does not know it.

    Raises ParseError for text that lists no features.
    """
    found = [match for line in text.splitlines() if (match := _FEATURE.match(line))]
    if not found:
        raise ParseError(text=text, offset=0, expected="the features of `ethtool -k`")
    row = next((match for match in found if match["name"] == name), None)
    return None if row is None else Feature(is_on=row["state"] == "on", is_fixed=row["note"] == "fixed")
