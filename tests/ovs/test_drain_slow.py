"""A drain on a slow Open vSwitch: connections stay where they are, however long revalidation takes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

from tests.command_line import CommandLine, start
from tests.ovs.dummy import DummyBridge
from tests.ovs.test_drain_dummy import (
    CONFIG,
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
from tests.ovs.test_drain_first_packets import in_use
from tests.ovs.ways import Record, connect, live_switch, running_server
from tests.patience import PATIENCE_S, eventually
from xenoovs.controller.server import ControllerSwitch
from xenoovs.decision.advance import SETTLE_S
from xenoovs.errors import CommandFailed
from xenoovs.switch.api import Switch
from xenoovs.switch.appctl import Appctl


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


def opened(bridge: DummyBridge) -> list[str]:
    """Sixteen clients open connections; those of backend one."""
    clients = [f"198.51.100.{number}" for number in range(16)]
    mine = [client for client in clients if receivers(bridge, tcp_packet(client, 1000, "syn")) == [ONE]]
    assert len(mine) == 8
    return mine


def settled_for_longer(bridge: DummyBridge) -> bool:
    return (drain_age_s(bridge) or 0) > 2 * SETTLE_S


def lost(bridge: DummyBridge, clients: list[str]) -> list[str]:
    """The clients whose connections go to another backend than the one that they were opened to."""
    bridge.ovs.appctl("revalidator/wait")
    return [client for client in clients if receivers(bridge, tcp_packet(client, 1000, "ack")) != [ONE]]


def test_apply_opens_a_drain_when_megaflows_were_revalidated(
    xenoovs: CommandLine, bridge: DummyBridge, config: Path
) -> None:
    """Their first packets are translated again only then, and learned as connections that open.

    So does a second one, which knows the age of the drain and nothing of the revalidators.
    """
    assert xenoovs("apply", config, "--db", bridge.ovs.db, "-y").status == 0
    bridge.settle()
    mine = opened(bridge)
    config.write_text(WITHOUT_ONE)
    with in_use(bridge, *(tcp_packet(client, 1000, "ack") for client in mine[1:])):
        with without_revalidation(bridge):
            for times in (2, 4):
                process = start("apply", config, "--db", bridge.ovs.db, "-y")
                eventually(lambda times=times: (drain_age_s(bridge) or 0) > times * SETTLE_S, "time to pass")  # type: ignore[misc]
                assert is_settling(bridge)
                if times == 2:
                    process.kill()
                    process.communicate()
        eventually(lambda: not is_settling(bridge), "new connections that go on")
    process.kill()
    process.communicate()
    assert lost(bridge, mine) == []


def test_an_agent_opens_a_drain_when_megaflows_were_revalidated(bridge: DummyBridge, config: Path) -> None:
    with agent(bridge, config):
        eventually(lambda: len(bridge.dump_flows()) > 3, "flows at first")
        bridge.settle()
        mine = opened(bridge)
        with in_use(bridge, *(tcp_packet(client, 1000, "ack") for client in mine[1:])):
            with without_revalidation(bridge):
                config.write_text(WITHOUT_ONE)
                eventually(lambda: settled_for_longer(bridge), "time to pass")
                assert is_settling(bridge)
            eventually(lambda: not is_settling(bridge), "new connections that go on")
        assert lost(bridge, mine) == []


def test_a_switch_with_a_tenth_of_the_time_loses_no_connection(
    xenoovs: CommandLine, bridge: DummyBridge, config: Path
) -> None:
    assert xenoovs("apply", config, "--db", bridge.ovs.db, "-y").status == 0
    bridge.settle()
    mine = opened(bridge)
    with in_bursts(bridge), in_use(bridge, *(tcp_packet(client, 1000, "ack") for client in mine[1:])):
        begin(bridge, config, WITHOUT_ONE)
    assert lost(bridge, mine) == []
    assert set(receivers(bridge, *(tcp_packet(client, 1001, "syn") for client in mine))) == {TWO, SIX}


def test_apply_drains_as_long_as_a_connection_is_used(xenoovs: CommandLine, bridge: DummyBridge, config: Path) -> None:
    """It counts packets in every round, also after one that changes nothing."""
    assert xenoovs("apply", config, "--db", bridge.ovs.db, "-y").status == 0
    bridge.settle()
    mine = opened(bridge)
    config.write_text(WITHOUT_ONE.replace("idle_timeout: 5m", "idle_timeout: 3s"))
    with in_use(bridge, *(tcp_packet(client, 1000, "ack") for client in mine)):
        process = start("apply", config, "--db", bridge.ovs.db, "-y")
        eventually(lambda: (drain_age_s(bridge) or 0) > 8, "time to pass")
    process.kill()
    process.communicate()
    assert lost(bridge, mine) == []


def test_a_switch_that_stands_still_is_not_quiet(bridge: DummyBridge, config: Path) -> None:
    """Its counters stand still with its revalidators, while the datapath forwards."""
    text = CONFIG.replace("idle_timeout: 5m", "idle_timeout: 3s")
    config.write_text(text)
    with agent(bridge, config):
        eventually(lambda: len(bridge.dump_flows()) > 3, "flows at first")
        bridge.settle()
        mine = opened(bridge)
        with in_use(bridge, *(tcp_packet(client, 1000, "ack") for client in mine)):
            config.write_text(text.replace("weight: 2", "weight: 0"))
            eventually(lambda: drain_age_s(bridge) is not None, "a drain")
            eventually(lambda: not is_settling(bridge), "new connections that go on")
            with without_revalidation(bridge):
                begun_s = drain_age_s(bridge) or 0.0
                eventually(lambda: (drain_age_s(bridge) or 0) > begun_s + 5, "time to pass")
        assert lost(bridge, mine) == []


@pytest.fixture(params=["unixctl", "unixctl refuses", "controller elsewhere", "controller here"])
def switch(request: pytest.FixtureRequest, bridge: DummyBridge, monkeypatch: pytest.MonkeyPatch) -> Iterator[Switch]:
    """A way to the bridge."""
    if request.param.startswith("unixctl"):
        if request.param == "unixctl refuses":
            refusal = CommandFailed(
                argv=("ovs-appctl",), exit_code=2, stdout="", stderr="can't wait on multiple udpifs."
            )
            monkeypatch.setattr(Appctl, "wait_revalidated", lambda _: _raise(refusal))
        yield live_switch(bridge.ovs)
        return
    local = live_switch(bridge.ovs) if request.param == "controller here" else None
    with running_server(Record()) as server:
        server.expect(bridge.name)
        connect(bridge.ovs, bridge.name, server)
        yield ControllerSwitch(server.registry, local, timeout_s=PATIENCE_S)


def _raise(error: Exception) -> None:
    raise error


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
