"""A port of a bridge as OpenFlow describes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from xenoovs.openflow.action import LOCAL

_LOCAL_NUMBERS = (0xFFFFFFFE, 0xFFFE)
"""OFPP_LOCAL (OpenFlow 1.4.0, 7.2.1; 1.0.0, 5.2.1)."""

_DOWN = 1
"""OFPPC_PORT_DOWN of the config and OFPPS_LINK_DOWN of the state have the same bit (1.4.0, 7.2.1)."""


@dataclass(frozen=True, slots=True)
class Port:
    """`is_up`: neither switched off nor without link. `mac`: as a number of 48 bits."""

    number: int
    name: str
    mac: int
    is_up: bool

    @property
    def is_local(self) -> bool:
        """Whether it is the bridge's own port, whose name is that of the bridge."""
        return self.number in _LOCAL_NUMBERS

    @property
    def flow_name(self) -> str:
        """What a flow calls it."""
        return LOCAL if self.is_local else self.name


def port_of(described: Any) -> Port:
    """From the framework's description of a port."""
    name = described.name if isinstance(described.name, bytes) else str(described.name).encode()
    return Port(
        number=described.port_no,
        name=name.rstrip(b"\0").decode("utf-8", "backslashreplace"),
        mac=int(described.hw_addr.replace(":", ""), 16),
        is_up=not (described.config | described.state) & _DOWN,
    )
