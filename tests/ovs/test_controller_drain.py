"""A drain through the controller: open connections stay, by learn actions that go as OpenFlow messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command_line import CommandLine, start
from tests.ovs.dummy import DummyBridge
from tests.ovs.test_drain_dummy import CONFIG, ONE, WITHOUT_ONE, is_settling, receivers, tcp_packet
from tests.patience import PATIENCE_S, eventually

pytestmark = pytest.mark.ovs

_CLIENTS = [f"198.51.100.{n}" for n in range(4)]


def test_open_connections_stay_and_new_ones_go(xenoovs: CommandLine, bridge: DummyBridge, tmp_path: Path) -> None:
    file = tmp_path / "my.yaml"
    file.write_text(CONFIG)
    process = start("controller", file, "--db", bridge.ovs.db, "--listen", "127.0.0.1:0", "--attach")
    try:
        eventually(lambda: _holds(bridge, "table=1"), "the flows of the config")
        mine = [client for client in _CLIENTS if receivers(bridge, tcp_packet(client, 4000, "ack")) == [ONE]]
        assert len(mine) == 2
        file.write_text(WITHOUT_ONE)
        eventually(lambda: _holds(bridge, "learn(") and not is_settling(bridge), "new connections that go on")
        said = xenoovs("plan", file, "--db", bridge.ovs.db)
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)
    assert said.status == 0
    for client in mine:
        assert receivers(bridge, tcp_packet(client, 4000, "ack")) == [ONE]
        assert ONE not in receivers(bridge, tcp_packet(client, 4001, "syn"))


def _holds(bridge: DummyBridge, part: str) -> bool:
    return any(part in flow for flow in bridge.dump_flows())
