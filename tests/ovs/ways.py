"""The two ways to a switch, for tests of both: its management socket, and a bridge that connects to the controller."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass

from tests.ovs.dummy import DummyOvs
from tests.patience import PATIENCE_S as PATIENCE_S
from xenoovs.controller.listen import parse_address
from xenoovs.controller.server import ControllerSwitch, Server
from xenoovs.lab.private_ovs import PrivateOvs
from xenoovs.log import LOGGER, facts_of
from xenoovs.switch.api import Switch
from xenoovs.switch.certificates import Certificates
from xenoovs.switch.endpoint import find_endpoint
from xenoovs.switch.management import ManagementSwitch

_PACE = ("inactivity_probe=5000", "max_backoff=1000", "connection_mode=out-of-band")


class Record(logging.Handler):
    """What the controllers of this process logged: events with their facts, oldest first."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[str, dict[str, object]]] = []

    def of(self, event: str) -> list[dict[str, object]]:
        """The facts of all events of this name."""
        return [facts for name, facts in self.events if name == event]

    def emit(self, record: logging.LogRecord) -> None:
        self.events.append((record.getMessage(), facts_of(record)))


@contextmanager
def running_server(
    record: Record,
    *,
    at: str = "127.0.0.1:0",
    certificates: Certificates | None = None,
    is_redundant: bool = False,
) -> Iterator[Server]:
    """A controller in this process for the time of a `with`."""
    logger = logging.getLogger(LOGGER)
    logger.setLevel(logging.INFO)
    # Not the handler of an earlier test of this process, whose standard error may be closed.
    before = logger.handlers[:]
    logger.handlers[:] = [*(each for each in before if isinstance(each, Record)), record]
    try:
        with closing(Server(parse_address(at), certificates, is_redundant=is_redundant)) as server:
            yield server
    finally:
        logger.handlers[:] = before


def connect(ovs: PrivateOvs, bridge: str, *servers: Server) -> None:
    """Let a bridge connect to these controllers, and to those that it had."""
    for server in servers:
        row = ["create", "controller", f'target="{server.target}"', *_PACE]
        ovs.vsctl("--", "--id=@c", *row, "--", "add", "bridge", bridge, "controller", "@c")


_PORTS = iter(range(20_000 + os.getpid() % 10_000, 32_768))


def free_port() -> int:
    """One that the kernel gives to nobody who asks for any (ip_local_port_range of ip(7): 32768 and above).

    Each call gives another one: what asked for the first may not listen yet.
    """
    for port in _PORTS:
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise LookupError("no port is free")


def live_switch(ovs: PrivateOvs) -> ManagementSwitch:
    return ManagementSwitch(find_endpoint(db=ovs.db, env={}))


@dataclass(frozen=True, slots=True)
class Way:
    """One way. `server`: None for the management socket."""

    server: Server | None

    def switch(self, ovs: DummyOvs | PrivateOvs) -> Switch:
        """To all bridges that are there now; those that have flows lose them (see docs/how-to/controller.md)."""
        private = ovs.ovs if isinstance(ovs, DummyOvs) else ovs
        local = live_switch(private)
        if self.server is None:
            return local
        for bridge in private.vsctl("list-br").split():
            self.server.expect(bridge)
            connect(private, bridge, self.server)
        return ControllerSwitch(self.server.registry, local, PATIENCE_S)
