"""The packet sockets of an agent by device: opened when they are needed, opened again after Open vSwitch restarted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from ipaddress import IPv4Address

from xenoovs.agent.log import info, warn
from xenoovs.agent.paths.frame import destination_of, parse_next_hop_mac
from xenoovs.agent.paths.port import Frame, ProbePort

_RETRY_S = 0.5
_RENEW_S = 10.0
"""Between two looks at the MAC for a remote that does not answer."""

OpenPort = Callable[..., ProbePort]
"""ProbePort, with the network namespace of the devices."""


class Devices:
    """Packet sockets. A device that vanishes is logged once, and tried again.

    Attributes:
        problems: Why devices cannot be used now, by name.
    """

    def __init__(self, open_port: OpenPort) -> None:
        self.problems: dict[str, str] = {}
        self._open_port = open_port
        self._ports: dict[str, ProbePort] = {}
        self._retry_s: dict[str, float] = {}

    def port(self, device: str, now_s: float) -> ProbePort | None:
        """Return the socket on a device; None: it cannot be opened now."""
        port = self._ports.get(device)
        if port is None and now_s >= self._retry_s.get(device, now_s):
            try:
                port = self._ports[device] = self._open_port(device)
            except OSError as error:
                self.failed(device, error, now_s)
            else:
                if self.problems.pop(device, ""):
                    info("probe port works again", port=device)
        return port

    def failed(self, device: str, error: OSError, now_s: float) -> None:
        """Close the socket on a device, and try again later."""
        if (port := self._ports.pop(device, None)) is not None:
            port.close()
        self._retry_s[device] = now_s + _RETRY_S
        reason = error.strerror or str(error)
        if self.problems.get(device) != reason:
            warn("probe port does not work", port=device, reason=reason)
        self.problems[device] = reason

    def received(self, now_s: float) -> Iterator[Frame]:
        """Yield the frames that have come by any device."""
        for device, port in tuple(self._ports.items()):
            try:
                yield from port.received()
            except OSError as error:
                self.failed(device, error, now_s)

    def keep(self, devices: Collection[str]) -> None:
        """Close the sockets on all other devices."""
        for device in self._ports.keys() - set(devices):
            self._ports.pop(device).close()
        self.problems = {device: reason for device, reason in self.problems.items() if device in devices}

    def close(self) -> None:
        """Close all sockets."""
        for port in self._ports.values():
            port.close()
        self._ports.clear()


class NextHopMacs:
    """The MACs of the routers to remotes, learned from the host's own tunnel packets.

    The host encapsulates, so its neighbour table has them and ours has not. The first packet of each flow comes by the
    datapath in software also where the others are offloaded.
    """

    def __init__(self, open_port: OpenPort) -> None:
        self._open_port = open_port
        self._found: dict[tuple[str, IPv4Address], bytes] = {}
        self._listeners: dict[str, ProbePort] = {}
        self._wanted: dict[tuple[str, IPv4Address], int] = {}
        self._renewed_s: dict[tuple[str, IPv4Address], float] = {}

    def find(self, host_port: str, remote: IPv4Address, *, tunnel_port: int) -> bytes | None:
        """Return the MAC, 6 bytes; None: no packet was seen yet."""
        key = host_port, remote
        if key not in self._found:
            self._wanted[key] = tunnel_port
        return self._found.get(key)

    def renew(self, host_port: str, remote: IPv4Address, *, tunnel_port: int, now_s: float) -> None:
        """Look at the host's next packet again: a router that was replaced has another MAC."""
        key = host_port, remote
        if key in self._found and now_s >= self._renewed_s.get(key, now_s):
            self._renewed_s[key] = now_s + _RENEW_S
            self._wanted[key] = tunnel_port

    def keep(self, keys: Collection[tuple[str, IPv4Address]]) -> None:
        """Forget all other ports and remotes."""
        for known in (self._found, self._wanted, self._renewed_s):
            for key in known.keys() - set(keys):
                del known[key]

    def listen(self) -> None:
        """Read what the host has sent since. Sockets are open only while a MAC is missing."""
        for device in {device for device, _ in self._wanted} - self._listeners.keys():
            try:
                self._listeners[device] = self._open_port(device, is_listener=True)
            except OSError:
                continue
        for device, listener in tuple(self._listeners.items()):
            try:
                for frame in listener.received():
                    self._learn(device, frame.data)
            except OSError:
                self._close(device)
            if not any(name == device for name, _ in self._wanted):
                self._close(device)

    def close(self) -> None:
        """Close all sockets."""
        for device in tuple(self._listeners):
            self._close(device)

    def _learn(self, device: str, frame: bytes) -> None:
        remote = destination_of(frame)
        if remote is None or (tunnel_port := self._wanted.get((device, remote))) is None:
            return
        if (mac := parse_next_hop_mac(frame, remote, tunnel_port=tunnel_port)) is not None:
            self._found[device, remote] = mac
            del self._wanted[device, remote]

    def _close(self, device: str) -> None:
        if (listener := self._listeners.pop(device, None)) is not None:
            listener.close()
