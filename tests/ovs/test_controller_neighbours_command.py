"""`xenoovs controller` answers for the IPv6 VIPs of its config, also of a config that has changed."""

from __future__ import annotations

from ipaddress import IPv6Address
from pathlib import Path

import pytest

from tests.command_line import start
from tests.ovs.dummy import DummyBridge
from tests.patience import PATIENCE_S, eventually
from tests.unit.controller.test_solicitation import HOST_MAC, VIP_MAC, solicitation

pytestmark = pytest.mark.ovs

_CONFIG = """
version: 1
switch: {bridge: ovsbr1, ingress: [p0], egress: p1}
services:
  - name: web
    vip: "2001:db8::80"
    vip_mac: "02:00:5e:10:00:01"
    protocol: tcp
    ports: [443]
    backends:
      - {name: www1, mac: "02:00:5e:10:00:11", weight: 3}
      - {name: www2, mac: "02:00:5e:10:00:12", weight: 1}
"""


def test_the_command_answers_for_the_addresses_of_its_config(bridge: DummyBridge, tmp_path: Path) -> None:
    config = tmp_path / "my.yaml"
    config.write_text(_CONFIG)
    process = start("controller", config, "--db", bridge.ovs.db, "--listen", "127.0.0.1:0", "--attach")
    try:
        _ask_until_answered(bridge, "2001:db8::80", times=1)
        config.write_text(_CONFIG.replace("2001:db8::80", "2001:db8::81"))
        _ask_until_answered(bridge, "2001:db8::81", times=2)
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)
    assert {frame[:12] for frame in bridge.sent("p0")} == {HOST_MAC + VIP_MAC}
    assert bridge.ovs.vsctl("get", "controller", bridge.name, "controller_rate_limit").strip() == "1000"
    assert [flow for flow in bridge.dump_flows() if "nd_target" in flow] == []


def _ask_until_answered(bridge: DummyBridge, vip: str, *, times: int) -> None:
    """The flow for the address comes with the first round."""
    eventually(lambda: any(f"nd_target={vip}" in flow for flow in bridge.dump_flows()), f"the flow for {vip}")
    bridge.receive("p0", [(solicitation(target=IPv6Address(vip).packed).hex(),)])
    eventually(lambda: len(bridge.sent("p0")) == times, f"an answer for {vip}")
