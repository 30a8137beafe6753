"""NAT while clients move, on a real ovs-vswitchd: open connections keep their server, both ways."""

from __future__ import annotations

import json
from collections.abc import Callable
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from tests.command_line import CommandLine
from tests.ovs.dummy import DummyBridge
from tests.ovs.test_drain_dummy import begin

CONFIG = """\
version: 1
switch: {bridge: ovsbr1, ingress: [p0], egress: p1}
drain: {mode: pin, timeout: 5m, idle_timeout: 5m}
services:
  - name: web
    vip: 10.3.10.45
    protocol: tcp
    ports: [80]
    mode: nat
    backends:
      - {name: one, mac: 02:00:5e:10:00:02, address: 10.3.20.11, port: 8080, weight: 1}
      - {name: two, mac: 02:00:5e:10:00:03, address: 10.3.20.12, port: 8080, weight: 1}
"""
WITHOUT_ONE = "".join(line for line in CONFIG.splitlines(keepends=True) if "name: one" not in line)
VIP, ONE, TWO = "10.3.10.45:80", "10.3.20.11:8080", "10.3.20.12:8080"
EVEN = "198.51.100.2"
"""A client of `one`."""


def tcp_packet(source: str, destination: str, flags: str) -> str:
    (src, sport), (dst, dport) = source.split(":"), destination.split(":")
    return (
        "in_port(1),packet_type(ns=0,id=0),eth(src=02:00:00:00:00:01,dst=c4:70:bd:a0:56:ac),eth_type(0x0800),"
        f"ipv4(src={src},dst={dst},proto=6,tos=0,ttl=64,frag=no),tcp(src={sport},dst={dport}),tcp_flags({flags})"
    )


def passed(bridge: DummyBridge, enter: str, leave: str, packet: str) -> tuple[str, str]:
    """Source and destination with which a packet leaves."""
    before = len(bridge.sent(leave))
    bridge.send(enter, [packet])
    (frame,) = bridge.sent(leave)[before:]
    ends = [(frame[26:30], frame[34:36]), (frame[30:34], frame[36:38])]
    source, destination = (f"{IPv4Address(address)}:{int.from_bytes(port, 'big')}" for address, port in ends)
    return source, destination


def to_vip(bridge: DummyBridge, port: int, flags: str) -> str:
    """The server that gets a packet of the client."""
    client = f"{EVEN}:{port}"
    source, destination = passed(bridge, "p0", "p1", tcp_packet(client, VIP, flags))
    assert source == client
    return destination


def answered(bridge: DummyBridge, server: str) -> str:
    """The source that the client sees when this server answers."""
    return passed(bridge, "p1", "p0", tcp_packet(server, f"{EVEN}:1000", "psh|ack"))[0]


@pytest.fixture
def apply(xenoovs: CommandLine, bridge: DummyBridge, config: Path) -> Callable[[str], None]:
    """Let the bridge have the flows of a config at once."""

    def applied(text: str) -> None:
        config.write_text(text)
        assert xenoovs("apply", config, "--db", bridge.ovs.db, "-y", "--no-drain").status == 0

    return applied


def test_a_server_that_leaves_the_config_answers_as_the_vip_until_its_connections_have_ended(
    xenoovs: CommandLine, bridge: DummyBridge, config: Path, apply: Callable[[str], None]
) -> None:
    apply(CONFIG)
    assert to_vip(bridge, 1000, "ack") == ONE
    assert answered(bridge, ONE) == answered(bridge, TWO) == VIP
    begin(bridge, config, WITHOUT_ONE)
    assert [to_vip(bridge, 2000, flags) for flags in ("syn", "ack", "psh|ack")] == [TWO] * 3, "learned with NAT"
    assert to_vip(bridge, 1000, "psh|ack") == ONE
    assert answered(bridge, ONE) == answered(bridge, TWO) == VIP
    assert "nothing to do" in xenoovs("plan", config, "--db", bridge.ovs.db).out
    apply(WITHOUT_ONE)
    assert to_vip(bridge, 1000, "psh|ack") == TWO
    assert answered(bridge, ONE) == ONE, "its own packets are its own again"


def test_from_dsr_to_nat_and_back_connections_stay(
    bridge: DummyBridge, config: Path, apply: Callable[[str], None]
) -> None:
    """The old next hop writes a port, the new one none, and the other way round."""
    dsr = CONFIG.replace("    mode: nat\n", "").replace(", port: 8080", "")
    apply(dsr)
    assert to_vip(bridge, 1000, "ack") == VIP
    for text, old in ((CONFIG, VIP), (dsr, ONE)):
        begin(bridge, config, text)
        assert to_vip(bridge, 1000, "psh|ack") == old
        apply(text)


OTHER = """\
  - name: shop
    vip: 10.3.10.46
    protocol: tcp
    ports: [80]
    mode: nat
    backends:
"""


def test_bug_plan_warns_of_a_server_that_goes_to_another_service_while_it_drains(
    xenoovs: CommandLine, bridge: DummyBridge, config: Path, apply: Callable[[str], None]
) -> None:
    """Its answers get the VIP of the other service at once, and nothing said so."""
    server = next(line for line in CONFIG.splitlines(keepends=True) if "name: one" in line)
    apply(CONFIG)
    config.write_text(WITHOUT_ONE + OTHER + server)
    said = " ".join(xenoovs("plan", config, "--db", bridge.ovs.db).out.split())
    one = "02:00:5e:10:00:02>10.3.20.11:8080@p1"
    assert f"{one} of web answers for shop from now on, so that open connections of web to it break." in said
    document = json.loads(xenoovs("plan", config, "--db", bridge.ovs.db, "-o", "json").out)
    assert document["broken_returns"] == [{"service": "web", "backend": one, "answers_for": "shop"}]
    config.write_text(WITHOUT_ONE)
    assert "from now on" not in xenoovs("plan", config, "--db", bridge.ovs.db).out
