"""The MACs of next hops, learned from packets that the host sends, and the sockets for this."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address

from xenoovs.agent.paths.devices import Devices, NextHopMacs
from xenoovs.agent.paths.frame import Addresses, Token, payload, probe_head
from xenoovs.agent.paths.port import Frame

LOCAL, REMOTE = IPv4Address("192.168.200.2"), IPv4Address("192.168.200.1")
OLD, NEW = bytes.fromhex("02005e100001"), bytes.fromhex("02005e100002")


class _Port:
    """A socket that has received some frames."""

    def __init__(self) -> None:
        self.frames, self.is_closed = list[bytes](), False

    def received(self) -> Iterator[Frame]:
        found, self.frames = self.frames, []
        return (Frame(data, 0.0) for data in found)

    def close(self) -> None:
        self.is_closed = True


def _sent(gateway: bytes) -> bytes:
    return probe_head(Addresses(bytes(6), gateway, LOCAL, REMOTE, 4789, 0), 50_000) + payload(Token(1, 1, 1))


def _macs() -> tuple[NextHopMacs, list[_Port]]:
    opened = list[_Port]()

    def open_port(_device: str, *, is_listener: bool = False) -> _Port:
        opened.append(_Port())
        return opened[-1]

    return NextHopMacs(open_port), opened  # type: ignore[arg-type]


def test_the_mac_of_a_router_that_was_replaced_is_learned_again() -> None:
    """Probes went to the old router until the agent's restart, so the remote counted as silent."""
    macs, opened = _macs()
    assert macs.find("pf0hpf", REMOTE, tunnel_port=4789) is None
    macs.listen()
    opened[0].frames = [b"", _sent(OLD)]
    macs.listen()
    assert opened[0].is_closed
    for now_s in (100.0, 101.0):
        macs.renew("pf0hpf", REMOTE, tunnel_port=4789, now_s=now_s)
        assert macs.find("pf0hpf", REMOTE, tunnel_port=4789) == OLD
    macs.listen()
    opened[1].frames = [_sent(NEW)]
    macs.listen()
    assert macs.find("pf0hpf", REMOTE, tunnel_port=4789) == NEW
    assert opened[1].is_closed
    macs.renew("pf0hpf", REMOTE, tunnel_port=4789, now_s=105.0)
    macs.listen()
    assert len(opened) == 2


def test_no_socket_listens_for_a_remote_that_the_config_lacks() -> None:
    """The socket stayed open and read every frame of the host."""
    macs, opened = _macs()
    macs.find("pf0hpf", REMOTE, tunnel_port=4789)
    macs.listen()
    macs.keep(())
    macs.listen()
    assert opened[0].is_closed


def test_sockets_on_ports_that_the_config_lacks_are_closed() -> None:
    opened = dict[str, _Port]()
    devices = Devices(lambda device: opened.setdefault(device, _Port()))  # type: ignore[arg-type, return-value]
    for device in ("xoar0", "xoar1"):
        devices.port(device, 0.0)
    devices.keep({"xoar1"})
    assert (opened["xoar0"].is_closed, opened["xoar1"].is_closed) == (True, False)
