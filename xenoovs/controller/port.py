"""A port of a bridge as OpenFlow describes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from xenoovs.openflow.action import LOCAL
from xenoovs.openflow.wire.codec import decode
from xenoovs.openflow.wire.multipart import PortDescReply
from xenoovs.openflow.wire.port import Port as Described
from xenoovs.openflow.wire.port import PortReason, PortStatus

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


class PortTable:
    """The ports of a bridge as it has told them so far, in OpenFlow 1.4. Frames that are none raise WireError."""

    def __init__(self) -> None:
        self._ports: dict[int, Port] = {}

    @property
    def ports(self) -> tuple[Port, ...]:
        return tuple(self._ports.values())

    def describe(self, frame: bytes) -> bool:
        """Whether the description of all ports is complete with this frame."""
        reply = decode(frame).message
        if not isinstance(reply, PortDescReply):
            return False
        for described in reply.ports:
            self._set(described)
        return not reply.more

    def change(self, frame: bytes) -> None:
        """A port has come, gone or changed."""
        status = decode(frame).message
        if isinstance(status, PortStatus):
            if status.reason is PortReason.DELETE:
                self._ports.pop(status.port.number, None)
            else:
                self._set(status.port)

    def _set(self, described: Described) -> None:
        self._ports[described.number] = Port(described.number, described.name, described.mac, described.is_up)


def port_of(described: Any) -> Port:
    """From the framework's description of a port, for the versions of OpenFlow that only tell who asks."""
    name = described.name if isinstance(described.name, bytes) else str(described.name).encode()
    return Port(
        number=described.port_no,
        name=name.rstrip(b"\0").decode("utf-8", "backslashreplace"),
        mac=int(described.hw_addr.replace(":", ""), 16),
        is_up=not (described.config | described.state) & _DOWN,
    )
