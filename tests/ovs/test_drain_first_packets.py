"""Open connections in use while a drain begins: Open vSwitch learns on behalf of the first packet of each megaflow."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from tests.command_line import CommandLine, finish, start
from tests.ovs import test_drain_dummy
from tests.ovs.dummy import DummyBridge, DummyOvs
from tests.ovs.test_drain_dummy import (
    ONE,
    SIX,
    TWO,
    WITHOUT_ONE,
    agent,
    begin,
    drain_age_s,
    is_settling,
    receivers,
    tcp_packet,
)
from tests.patience import eventually

CONFIG = test_drain_dummy.CONFIG


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


@contextmanager
def slowly_settling(bridge: DummyBridge) -> Iterator[None]:
    """Blocks of drains that begin inside settle for eight seconds, not for two."""
    bridge.ovs.vsctl("set", "Open_vSwitch", ".", "other_config:max-revalidator=2000")
    try:
        yield
    finally:
        bridge.ovs.vsctl("remove", "Open_vSwitch", ".", "other_config", "max-revalidator")


def test_the_connection_that_made_a_megaflow_stays(xenoovs: CommandLine, bridge: DummyBridge, config: Path) -> None:
    """Its SYN is translated again when flows change, and learned when the megaflow has had packets of others."""
    assert xenoovs("apply", config, "--db", bridge.ovs.db, "-y").status == 0
    bridge.settle()
    clients = [f"198.51.100.{number}" for number in range(16)]
    mine = [client for client in clients if receivers(bridge, tcp_packet(client, 1000, "syn")) == [ONE]]
    assert len(mine) == 8
    acks = [tcp_packet(client, 1000, "ack") for client in mine]
    with in_use(bridge, *acks[1:]):
        begin(bridge, config, WITHOUT_ONE)
    bridge.ovs.appctl("revalidator/wait")
    assert receivers(bridge, *acks) == [ONE] * 8
    assert set(receivers(bridge, *(tcp_packet(client, 1001, "syn") for client in mine))) == {TWO, SIX}


def test_a_connection_that_opens_while_a_block_settles_stays(bridge: DummyBridge, config: Path) -> None:
    """Its SYN made a megaflow of its own, which is used again and again: the server's answers are lost."""
    with slowly_settling(bridge), agent(bridge, config):
        eventually(lambda: len(bridge.dump_flows()) > 3, "flows at first")
        client = next(
            c for c in ("198.51.100.2", "198.51.100.3") if receivers(bridge, tcp_packet(c, 1, "ack")) == [ONE]
        )
        config.write_text(WITHOUT_ONE)
        eventually(lambda: is_settling(bridge), "a drain")
        with in_use(bridge, tcp_packet(client, 2, "syn")):
            eventually(lambda: not is_settling(bridge), "new connections that go on")
            bridge.ovs.appctl("revalidator/wait")
        assert receivers(bridge, tcp_packet(client, 2, "syn"), tcp_packet(client, 2, "ack")) == [ONE] * 2
        assert receivers(bridge, tcp_packet(client, 3, "syn")) in ([TWO], [SIX])


def test_blocks_settle_for_longer_where_megaflows_are_seldom_looked_at(
    xenoovs: CommandLine, own_ovs: DummyOvs, config: Path
) -> None:
    own_ovs.ovs.vsctl("set", "Open_vSwitch", ".", "other_config:max-revalidator=3000")
    with own_ovs.bridge() as bridge:
        assert xenoovs("apply", config, "--db", bridge.ovs.db, "-y").status == 0
        config.write_text(WITHOUT_ONE)
        said = xenoovs("apply", config, "--db", bridge.ovs.db, "--dry-run")
    assert "new ones go to six, two in 12s" in said.out


def test_who_is_interrupted_while_a_block_settles_can_go_on(
    xenoovs: CommandLine, bridge: DummyBridge, config: Path
) -> None:
    assert xenoovs("apply", config, "--db", bridge.ovs.db, "-y").status == 0
    config.write_text(WITHOUT_ONE)
    with slowly_settling(bridge):
        process = start("apply", config, "--db", bridge.ovs.db, "-y")
        eventually(lambda: is_settling(bridge), "a drain")
        process.send_signal(signal.SIGINT)
        assert finish(process).status == 130
    eventually(lambda: (drain_age_s(bridge) or 0) > 2, "time to pass")
    assert is_settling(bridge)
    said = xenoovs("status", config, "--db", bridge.ovs.db, "--interval", "0", "-o", "json")
    assert said.status == 0, said.out
    assert '"foreign_flows": 0' in said.out
    assert '"is_settling": true' in said.out
    said = xenoovs("status", config, "--db", bridge.ovs.db, "--interval", "0")
    assert "new ones go to six, two when `xenoovs apply` or an agent goes on (0 so far)" in said.out
    assert xenoovs("plan", config, "--db", bridge.ovs.db).status == 2
    begin(bridge, config, WITHOUT_ONE)
    assert xenoovs("plan", config, "--db", bridge.ovs.db).status == 0
