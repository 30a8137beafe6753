"""Open connections in use while a drain begins, on a slow Open vSwitch too: they stay where they are.

Open vSwitch learns on behalf of the first packet of each megaflow, whenever it revalidates it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from threading import Event, Thread
from unittest.mock import Mock

import pytest

from tests.command_line import CommandLine, finish, running, start
from tests.ovs.dummy import DummyBridge
from tests.ovs.test_drain_dummy import (
    CONFIG,
    ONE,
    SIX,
    TWO,
    WITHOUT_ONE,
    agent,
    begin,
    client_of_one,
    drain_age_s,
    is_settling,
    receivers,
    tcp_packet,
)
from tests.ovs.ways import Record, connect, live_switch, running_server
from tests.patience import PATIENCE_S, eventually
from xenoovs.controller.server import ControllerSwitch
from xenoovs.decision.advance import SETTLE_S
from xenoovs.errors import CommandFailed
from xenoovs.switch.api import Switch
from xenoovs.switch.appctl import Appctl


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


@contextmanager
def without_revalidation(bridge: DummyBridge) -> Iterator[None]:
    """Its revalidators stand still, as those of a machine that has no time for them."""
    bridge.ovs.appctl("revalidator/pause")
    try:
        yield
    finally:
        bridge.ovs.appctl("revalidator/resume")


@contextmanager
def in_bursts(bridge: DummyBridge, *, run_s: float = 0.05, stand_s: float = 0.45) -> Iterator[None]:
    """ovs-vswitchd gets a tenth of the time."""
    pid, is_over = int((bridge.ovs.directory / "ovs-vswitchd.pid").read_text()), Event()

    def interrupt() -> None:
        while not is_over.wait(run_s):
            os.kill(pid, signal.SIGSTOP)
            is_over.wait(stand_s)
            os.kill(pid, signal.SIGCONT)

    interrupter = Thread(target=interrupt)
    interrupter.start()
    try:
        yield
    finally:
        is_over.set()
        interrupter.join()
        os.kill(pid, signal.SIGCONT)


def draining(bridge: DummyBridge, *, age_s: float) -> None:
    eventually(lambda: (drain_age_s(bridge) or 0) > age_s, "time to pass")


def lost(bridge: DummyBridge, clients: list[str]) -> list[str]:
    """The clients whose connections go to another backend than the one that they were opened to."""
    bridge.ovs.appctl("revalidator/wait")
    return [client for client in clients if receivers(bridge, tcp_packet(client, 1000, "ack")) != [ONE]]


@pytest.fixture
def mine(xenoovs: CommandLine, bridge: DummyBridge, config: Path) -> list[str]:
    """Eight of sixteen clients, whose connections are open to backend one, by flows of `apply`."""
    assert xenoovs("apply", config, "--db", bridge.ovs.db, "-y").status == 0
    bridge.settle()
    clients = [f"198.51.100.{number}" for number in range(16)]
    mine = [client for client in clients if receivers(bridge, tcp_packet(client, 1000, "syn")) == [ONE]]
    assert len(mine) == 8
    return mine


def acks(clients: list[str]) -> list[str]:
    return [tcp_packet(client, 1000, "ack") for client in clients]


@pytest.mark.parametrize("slowness", [nullcontext, in_bursts], ids=["any", "a tenth of the time"])
def test_the_connection_that_made_a_megaflow_stays(
    bridge: DummyBridge, config: Path, mine: list[str], slowness: Callable[[DummyBridge], AbstractContextManager[None]]
) -> None:
    """Its SYN is translated again when flows change, and learned when the megaflow has had packets of others."""
    with slowness(bridge), in_use(bridge, *acks(mine[1:])):
        begin(bridge, config, WITHOUT_ONE)
    assert lost(bridge, mine) == []
    assert set(receivers(bridge, *(tcp_packet(client, 1001, "syn") for client in mine))) == {TWO, SIX}


def test_a_connection_that_opens_while_a_block_settles_stays(bridge: DummyBridge, config: Path) -> None:
    """Its SYN made a megaflow of its own, which is used again and again: the server's answers are lost."""
    with slowly_settling(bridge), agent(bridge, config):
        eventually(lambda: len(bridge.dump_flows()) > 3, "flows at first")
        client = client_of_one(bridge)
        config.write_text(WITHOUT_ONE)
        eventually(lambda: is_settling(bridge), "a drain")
        with in_use(bridge, tcp_packet(client, 2, "syn")):
            eventually(lambda: not is_settling(bridge), "new connections that go on")
            bridge.ovs.appctl("revalidator/wait")
        assert receivers(bridge, tcp_packet(client, 2, "syn"), tcp_packet(client, 2, "ack")) == [ONE] * 2
        assert receivers(bridge, tcp_packet(client, 3, "syn")) in ([TWO], [SIX])


def test_who_is_interrupted_while_a_block_settles_can_go_on(
    xenoovs: CommandLine, bridge: DummyBridge, config: Path
) -> None:
    assert xenoovs("apply", config, "--db", bridge.ovs.db, "-y").status == 0
    config.write_text(WITHOUT_ONE)
    with slowly_settling(bridge):
        said = xenoovs("apply", config, "--db", bridge.ovs.db, "--dry-run")
        assert "new ones go to six, two in 8s" in said.out
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


@pytest.mark.parametrize("words", [("apply", "-y"), ("agent",)], ids=lambda words: words[0])
def test_a_drain_opens_when_megaflows_were_revalidated(
    bridge: DummyBridge, config: Path, mine: list[str], words: tuple[str, ...]
) -> None:
    """Their first packets are translated again only then, and learned as connections that open.

    So does a second process, which knows the age of the drain and nothing of the revalidators.
    """
    config.write_text(WITHOUT_ONE)
    with in_use(bridge, *acks(mine[1:])), ExitStack() as stack:
        with without_revalidation(bridge):
            for times in (2, 4):
                process = stack.enter_context(running(words[0], config, "--db", bridge.ovs.db, *words[1:]))
                draining(bridge, age_s=times * SETTLE_S)
                assert is_settling(bridge)
                if times == 2:
                    process.kill()
                    process.wait()
        eventually(lambda: not is_settling(bridge), "new connections that go on")
    assert lost(bridge, mine) == []


def test_apply_drains_as_long_as_a_connection_is_used(bridge: DummyBridge, config: Path, mine: list[str]) -> None:
    """It counts packets in every round, also after one that changes nothing."""
    config.write_text(WITHOUT_ONE.replace("idle_timeout: 5m", "idle_timeout: 3s"))
    with in_use(bridge, *acks(mine)), running("apply", config, "--db", bridge.ovs.db, "-y"):
        draining(bridge, age_s=8)
    assert lost(bridge, mine) == []


def test_a_switch_that_stands_still_is_not_quiet(bridge: DummyBridge, config: Path, mine: list[str]) -> None:
    """Its counters stand still with its revalidators, while the datapath forwards."""
    text = CONFIG.replace("idle_timeout: 5m", "idle_timeout: 3s")
    config.write_text(text)
    with agent(bridge, config):
        with in_use(bridge, *acks(mine)):
            config.write_text(text.replace("weight: 2", "weight: 0"))
            eventually(lambda: drain_age_s(bridge) is not None, "a drain")
            eventually(lambda: not is_settling(bridge), "new connections that go on")
            with without_revalidation(bridge):
                draining(bridge, age_s=(drain_age_s(bridge) or 0.0) + 5)
        assert lost(bridge, mine) == []


@pytest.fixture(params=["unixctl", "unixctl refuses", "controller elsewhere", "controller here"])
def switch(request: pytest.FixtureRequest, bridge: DummyBridge, monkeypatch: pytest.MonkeyPatch) -> Iterator[Switch]:
    """A way to the bridge."""
    if request.param.startswith("unixctl"):
        if request.param == "unixctl refuses":
            refusal = CommandFailed(argv=("ovs-appctl",), exit_code=2, stdout="", stderr="can't wait on udpifs.")
            monkeypatch.setattr(Appctl, "wait_revalidated", Mock(side_effect=refusal))
        yield live_switch(bridge.ovs)
        return
    local = live_switch(bridge.ovs) if request.param == "controller here" else None
    with running_server(Record()) as server:
        server.expect(bridge.name)
        connect(bridge.ovs, bridge.name, server)
        yield ControllerSwitch(server.registry, local, timeout_s=PATIENCE_S)


def test_megaflows_are_not_revalidated_while_the_switch_stands_still(switch: Switch, bridge: DummyBridge) -> None:
    """By each way to a bridge, also those on which only its answers show that it works."""
    switch.count_flows(bridge.name)
    pid = bridge.ovs.pids()[0]
    with ThreadPoolExecutor(max_workers=1) as pool:
        os.kill(pid, signal.SIGSTOP)
        try:
            waiting = pool.submit(switch.wait_revalidated, bridge.name)
            assert not wait([waiting], timeout=2 * SETTLE_S).done
        finally:
            os.kill(pid, signal.SIGCONT)
        assert waiting.result(PATIENCE_S) is None
