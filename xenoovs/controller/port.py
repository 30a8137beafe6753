"""The ports of a bridge as it describes them."""

from __future__ import annotations

from typing import Any

from xenoovs.openflow.wire.codec import decode
from xenoovs.openflow.wire.multipart import PortDescReply
from xenoovs.openflow.wire.port import Port, PortReason, PortStatus
from xenoovs.openflow.wire.ports import LOCAL_NUMBER

_LOCAL_NUMBER_16 = 0xFFFE
"""OFPP_LOCAL of OpenFlow 1.0.0, 5.2.1."""


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
        self._ports.update((port.number, port) for port in reply.ports)
        return not reply.more

    def change(self, frame: bytes) -> None:
        """A port has come, gone or changed."""
        status = decode(frame).message
        if isinstance(status, PortStatus):
            if status.reason is PortReason.DELETE:
                self._ports.pop(status.port.number, None)
            else:
                self._ports[status.port.number] = status.port


def port_of(described: Any) -> Port:
    """Return the framework's description of a port, for the versions of OpenFlow that only tell who asks."""
    name = described.name if isinstance(described.name, bytes) else str(described.name).encode()
    return Port(
        number=LOCAL_NUMBER if described.port_no == _LOCAL_NUMBER_16 else described.port_no,
        name=name.rstrip(b"\0").decode("utf-8", "backslashreplace"),
        mac=int(described.hw_addr.replace(":", ""), 16),
        config=described.config,
        state=described.state,
    )
