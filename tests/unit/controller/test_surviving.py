"""Threads of the controller go on after what nobody expects, and log it: each has a part that no other one does."""

from __future__ import annotations

import socket
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.patience import eventually
from tests.unit.balancer import balancer, claim, service
from xenoovs.controller.listen import SwitchListener, UnixAddress
from xenoovs.controller.log import ControllerLog
from xenoovs.controller.mastership import Mastership
from xenoovs.controller.neighbour_discovery import NeighbourProxy
from xenoovs.model.address import Mac


class Fault:
    """Something that fails, and what is logged of it."""

    def __init__(self) -> None:
        self.warnings: list[dict[str, object]] = []
        self.log = ControllerLog(lambda event, **facts: None, lambda event, **facts: self.warnings.append(facts))

    def raise_it(self, *_: object) -> Any:
        raise LookupError("of a kind that nobody expects")

    def is_survived(self, part: str, reason: str = "LookupError: of a kind that nobody expects, test_surv") -> bool:
        """Whether it was logged again."""
        assert {each["part"] for each in self.warnings} <= {part}
        return sum(str(each["reason"]).startswith(reason) for each in self.warnings) > 1


def test_roles() -> None:
    fault = Fault()
    # A connection that has nothing of one.
    bridge: Any = SimpleNamespace(connection=SimpleNamespace(is_standby=True), label="ovsbr1")
    mastership = Mastership(bridge, log=fault.log)
    eventually(lambda: fault.is_survived("roles", "AttributeError"), "a second step")
    mastership.close()


def test_neighbour_discovery() -> None:
    fault = Fault()
    proxy = NeighbourProxy(fault.raise_it, log=fault.log)
    one = replace(service(claim(ip_address("2001:db8::80")), 1), vip_mac=Mac(0x02005E100001))

    def is_followed_again() -> bool:
        proxy.follow(balancer(one))
        return fault.is_survived("neighbour discovery")

    eventually(is_followed_again, "a second step")
    proxy.close()


def test_connections(tmp_path: Path) -> None:
    fault, address = Fault(), UnixAddress(tmp_path / "socket")
    listener = SwitchListener(address, serve=fault.raise_it, log=fault.log)
    for _ in range(2):
        with socket.socket(socket.AF_UNIX) as switch:
            switch.connect(str(address.path))
            assert switch.recv(1) == b""
    eventually(lambda: fault.is_survived("a connection"), "a second connection")
    listener.close()
