"""Port numbers and names. Sources: OpenFlow 1.4.0, 7.2.1 (enum ofp_port_no); ovs-ofctl(8), "--names"."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from xenoovs.errors import NotEncodable
from xenoovs.openflow.action import LOCAL
from xenoovs.openflow.text import name_of_number, number_of_name

IN_PORT = 0xFFFFFFF8
TABLE = 0xFFFFFFF9
NORMAL = 0xFFFFFFFA
FLOOD = 0xFFFFFFFB
ALL = 0xFFFFFFFC
CONTROLLER = 0xFFFFFFFD
LOCAL_NUMBER = 0xFFFFFFFE
ANY = 0xFFFFFFFF

RESERVED: Mapping[int, str] = MappingProxyType(
    {
        IN_PORT: "IN_PORT",
        TABLE: "TABLE",
        NORMAL: "NORMAL",
        FLOOD: "FLOOD",
        ALL: "ALL",
        CONTROLLER: "CONTROLLER",
        LOCAL_NUMBER: LOCAL,
        ANY: "ANY",
    }
)
"""What ovs-ofctl(8) calls the reserved ports."""

_BY_NAME = {name: number for number, name in RESERVED.items()}
_FIRST_RESERVED_16, _WIDER = 0xFF00, 0xFFFF0000

NO_NAMES: Mapping[int, str] = MappingProxyType({})
NO_NUMBERS: Mapping[str, int] = MappingProxyType({})


def port_number(name: str, ofports: Mapping[str, int]) -> int:
    """The number of a port, 32 bits, also of one called by its number (text.py). Raises NotEncodable."""
    if (number := ofports.get(name)) is not None:
        # Tables of Open vSwitch hold 16 bits: 65534 is OFPP_LOCAL (ofputil_port_to_ofp11() in lib/ofp-port.c).
        return number | _WIDER if _FIRST_RESERVED_16 <= number <= 0xFFFF else number
    if (number := _BY_NAME.get(name)) is not None:
        return number
    if (number := number_of_name(name)) is not None and number <= ANY:
        return number
    raise NotEncodable(part=f"port {name}", reason="the bridge has no port of this name")


def port_name(number: int, names: Mapping[int, str]) -> str:
    """The name of a port; for a number without a name what `parse_name` calls it."""
    return RESERVED.get(number) or names.get(number) or name_of_number(number)
