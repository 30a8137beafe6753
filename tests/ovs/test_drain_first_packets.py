"""Open connections in use while a drain begins: Open vSwitch learns on behalf of the first packet of each megaflow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

from tests.command_line import CommandLine
from tests.ovs.dummy import DummyBridge
from tests.ovs.test_drain_dummy import CONFIG, ONE, SIX, TWO, WITHOUT_ONE, begin, receivers, tcp_packet

pytestmark = pytest.mark.ovs


@contextmanager
def in_use(bridge: DummyBridge, *packets: str) -> Iterator[None]:
    """These packets come again and again; all that leave are for backend one."""
    before, enough = len(bridge.sent("p1")), Event()

    def use() -> None:
        while not enough.wait(0.1):
            bridge.send("p0", packets)

    user = Thread(target=use)
    user.start()
    try:
        yield
    finally:
        enough.set()
        user.join()
    got = [frame[:6].hex() for frame in bridge.sent("p1")[before:]]
    assert len(got) >= len(packets)
    assert set(got) == {ONE}


def test_the_connection_that_made_a_megaflow_stays(xenoovs: CommandLine, bridge: DummyBridge, tmp_path: Path) -> None:
    """Its SYN is translated again when flows change, and again when the megaflow has had packets of others."""
    file = tmp_path / "my.yaml"
    file.write_text(CONFIG)
    assert xenoovs("apply", file, "--db", bridge.ovs.db, "-y").status == 0
    bridge.settle()
    clients = [f"198.51.100.{number}" for number in range(16)]
    mine = [client for client in clients if receivers(bridge, tcp_packet(client, 1000, "syn")) == [ONE]]
    assert len(mine) == 8
    acks = [tcp_packet(client, 1000, "ack") for client in mine]
    with in_use(bridge, *acks[1:]):
        begin(bridge, file, WITHOUT_ONE)
    bridge.ovs.appctl("revalidator/wait")
    assert receivers(bridge, *acks) == [ONE] * 8
    assert set(receivers(bridge, *(tcp_packet(client, 1001, "syn") for client in mine))) == {TWO, SIX}
