"""Blocks that move, on a real ovs-vswitchd: where packets go, which megaflows there are, what is left at the end.

With NAT open connections keep their server both ways.
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from tests.command_line import CommandLine, finish, running, start
from tests.compiled import moves_of
from tests.ovs.dummy import DummyBridge, DummyOvs
from tests.ovs.ways import live_switch
from tests.patience import eventually
from xenoovs.decision.decision import Phase
from xenoovs.openflow.flow import ObservedFlow
from xenoovs.openflow.text import parse_dump

_HEAD = """\
version: 1
switch: {bridge: ovsbr1, ingress: [p0], egress: p1}
drain: {mode: pin, timeout: 5m, idle_timeout: 5m}
services:
  - name: web
    vip: 10.3.10.45
    protocol: tcp
"""
CONFIG = f"""{_HEAD}\
    churn: least
    backends:
      - {{name: one, mac: 02:00:5e:10:00:02, weight: 2}}
      - {{name: two, mac: 02:00:5e:10:00:03, weight: 1}}
      - {{name: six, mac: 02:00:5e:10:00:04, weight: 1}}
"""
WITHOUT_ONE = CONFIG.replace("weight: 2", "weight: 0")
ONE, TWO, SIX = "02005e100002", "02005e100003", "02005e100004"
OWN_PORT = f"""{_HEAD}\
    backends:
      - {{name: one, mac: 02:00:5e:10:00:02, weight: 1}}
      - {{name: two, mac: 02:00:5e:10:00:03, weight: 1, egress: p2}}
"""
TWO_ALONE, ONE_ALONE = OWN_PORT.replace("weight: 1}", "weight: 0}"), "".join(OWN_PORT.splitlines(keepends=True)[:-1])
NAT = f"""{_HEAD}\
    ports: [80]
    mode: nat
    backends:
      - {{name: one, mac: 02:00:5e:10:00:02, address: 10.3.20.11, port: 8080, weight: 1}}
      - {{name: two, mac: 02:00:5e:10:00:03, address: 10.3.20.12, port: 8080, weight: 1}}
"""
NAT_WITHOUT_ONE = "".join(line for line in NAT.splitlines(keepends=True) if "name: one" not in line)
VIP, SERVER_ONE, SERVER_TWO = "10.3.10.45:80", "10.3.20.11:8080", "10.3.20.12:8080"
EVEN = "198.51.100.2"
"""A client of `one` with NAT."""


def tcp_packet(source: str, port: int, flags: str, *, to: str = VIP, in_port: int = 1) -> str:
    destination, _, number = to.partition(":")
    return (
        f"in_port({in_port}),packet_type(ns=0,id=0),eth(src=02:00:00:00:00:01,dst=c4:70:bd:a0:56:ac),eth_type(0x0800),"
        f"ipv4(src={source},dst={destination},proto=6,tos=0,ttl=64,frag=no),tcp(src={port},dst={number}),"
        f"tcp_flags({flags})"
    )


def receivers(bridge: DummyBridge, *packets: str, port: str = "p1") -> list[str]:
    """The MACs to which these packets leave by a port."""
    before = len(bridge.sent(port))
    bridge.send("p0", packets)
    return [frame[:6].hex() for frame in bridge.sent(port)[before:]]


def client_of_one(bridge: DummyBridge) -> str:
    """A client whose open connection has the backend one."""
    clients = ("198.51.100.2", "198.51.100.3")
    return next(each for each in clients if receivers(bridge, tcp_packet(each, 1, "ack")) == [ONE])


def is_settling(bridge: DummyBridge) -> bool:
    """Whether connections that open still stay with their old backend."""
    moves = moves_of(live_switch(bridge.ovs).dump_flows(bridge.name))
    learning = any("learn(" in flow for flow in bridge.dump_flows())
    return learning and any(move.phase is Phase.SETTLING for _, move in moves)


def begin(bridge: DummyBridge, path: Path, text: str) -> None:
    """Apply a config whose drain begins, and leave it to itself when new connections go to their new backends."""
    path.write_text(text)
    process = start("apply", path, "--db", bridge.ovs.db, "-y")
    assert process.stdout is not None
    assert any(line.startswith("done: ") for line in iter(process.stdout.readline, ""))
    eventually(lambda: not is_settling(bridge), "new connections that go on")
    process.send_signal(signal.SIGINT)
    said = finish(process)
    assert said.status == 130
    assert "open connections stay" in said.err


@pytest.fixture
def apply(xenoovs: CommandLine, bridge: DummyBridge, config: Path) -> Callable[[str], None]:
    """Let the bridge have the flows of a config at once."""

    def applied(text: str) -> None:
        config.write_text(text)
        assert xenoovs("apply", config, "--db", bridge.ovs.db, "-y", "--no-drain").status == 0

    return applied


@pytest.fixture
def moving(bridge: DummyBridge, config: Path, apply: Callable[[str], None]) -> DummyBridge:
    """Backend one has half of the clients and is drained."""
    apply(CONFIG)
    begin(bridge, config, WITHOUT_ONE)
    return bridge


def test_open_connections_stay_and_new_ones_move(moving: DummyBridge) -> None:
    """Also the first packets after the first handshake, which a wide megaflow of an open connection would take."""
    clients = [f"198.51.100.{number}" for number in range(32)]
    before = dict(zip(clients, receivers(moving, *(tcp_packet(c, 1000, "ack") for c in clients)), strict=True))
    moved = [client for client in clients if before[client] == ONE]
    assert len(moved) == 16
    for number, client in enumerate(moved):
        port = 2000 + number
        new = receivers(moving, tcp_packet(client, port, "syn"), *[tcp_packet(client, port, "ack")] * 2)
        assert new in ([TWO] * 3, [SIX] * 3)
        assert receivers(moving, tcp_packet(client, 1000, "psh|ack")) == [ONE]


def test_plan_status_and_verify_know_a_drain(moving: DummyBridge, xenoovs: CommandLine, config: Path) -> None:
    receivers(moving, tcp_packet("198.51.100.2", 7, "syn"), *[tcp_packet("198.51.100.2", 8, "ack")] * 2)
    said = xenoovs("plan", config, "--db", moving.ovs.db)
    assert said.status == 0, said.out
    assert "nothing to do" in said.out
    assert "stay with one" in said.out
    eventually(lambda: "n_packets=2" in moving.ofctl("dump-flows", "table=2"), "counters")
    said = xenoovs("status", config, "--db", moving.ovs.db, "--interval", "0", "-o", "json")
    assert said.status == 0, said.out
    assert '"foreign_flows": 0' in said.out
    said = xenoovs("verify-offload", config, "--db", moving.ovs.db, "-o", "json")
    assert '"unwildcarded": []' in said.out
    assert '"misdelivered"' not in said.out
    assert '"drained": 2' in said.out


def test_remove_takes_what_was_learned_too_and_apply_without_drain_ends_one(
    moving: DummyBridge, xenoovs: CommandLine, config: Path, apply: Callable[[str], None]
) -> None:
    receivers(moving, tcp_packet("198.51.100.2", 7, "syn"))
    apply(WITHOUT_ONE)
    assert {flow.partition("table=")[2][:1] for flow in moving.dump_flows()} <= {"", "1"}
    assert ONE not in receivers(moving, tcp_packet("198.51.100.2", 8, "ack"))
    apply(CONFIG)
    begin(moving, config, WITHOUT_ONE)
    receivers(moving, tcp_packet("198.51.100.2", 7, "syn"))
    assert xenoovs("remove", config, "--db", moving.ovs.db, "-y").status == 0
    assert moving.dump_flows() == []


def test_apply_waits_for_the_end_which_comes_early_when_nobody_is_left(
    xenoovs: CommandLine, bridge: DummyBridge, config: Path, apply: Callable[[str], None]
) -> None:
    for change in (("timeout: 5m, idle", "timeout: 1s, idle"), ("idle_timeout: 5m", "idle_timeout: 2s")):
        apply(CONFIG)
        config.write_text(WITHOUT_ONE.replace(*change))
        said = xenoovs("apply", config, "--db", bridge.ovs.db, "-y")
        assert said.status == 0
        limit = "1s" if "1s" in change[1] else "5m"
        assert f"open connections of 2 blocks stay with one for at most {limit}" in said.out
        assert "drained: " in said.out
        assert not [flow for flow in bridge.dump_flows() if "table=2" in flow or "table=5" in flow or ONE in flow]
    assert xenoovs("plan", config, "--db", bridge.ovs.db).status == 0


def agent(bridge: DummyBridge, config: Path, *options: object) -> AbstractContextManager[subprocess.Popen[str]]:
    return running("agent", config, "--db", bridge.ovs.db, *options)


def drain_age_s(bridge: DummyBridge) -> float | None:
    """None: no block moves."""
    seen: list[ObservedFlow] = list(parse_dump(bridge.ofctl("dump-flows", "table=5")))
    return min((each.duration_s for each in seen), default=None)


def test_a_drain_at_run_time_keeps_open_connections(
    xenoovs: CommandLine, bridge: DummyBridge, config: Path, tmp_path: Path
) -> None:
    with agent(bridge, config, "--control", tmp_path / "agent.sock"):
        eventually(lambda: len(bridge.dump_flows()) > 3, "flows at first")
        client = client_of_one(bridge)
        control = ("--control", tmp_path / "agent.sock")
        eventually(lambda: xenoovs("drain", "web", "one", *control).status == 0, "an agent that hears")
        eventually(lambda: not is_settling(bridge), "new connections that go on")
        assert drain_age_s(bridge) is not None
        assert receivers(bridge, tcp_packet(client, 2, "syn")) in ([TWO], [SIX])
        assert receivers(bridge, tcp_packet(client, 1, "ack")) == [ONE]
        assert xenoovs("reset", "web", "one", *control).status == 0
        assert receivers(bridge, tcp_packet(client, 1, "ack")) == [ONE]
        assert receivers(bridge, tcp_packet(client, 2, "ack")) in ([TWO], [SIX])


@pytest.fixture
def ports(dummy_ovs: DummyOvs) -> Iterator[DummyBridge]:
    """Bridge ovsbr1 with one port more, for the backend two of OWN_PORT."""
    with dummy_ovs.bridge(ports=("p0", "p1", "p2")) as made:
        yield made


def client_of_two(bridge: DummyBridge) -> str:
    """A client whose open connection has the backend two, behind p2."""
    clients = (f"198.51.100.{number}" for number in range(8))
    return next(c for c in clients if receivers(bridge, tcp_packet(c, 1, "ack"), port="p2") == [TWO])


def answers_pass(bridge: DummyBridge) -> bool:
    """Whether what the backend two sends back leaves by p0."""
    before = len(bridge.sent("p0"))
    bridge.send("p2", [tcp_packet("10.3.10.45", 80, "ack", to="198.51.100.2:80", in_port=3)])
    return len(bridge.sent("p0")) > before


def test_connections_of_a_drain_are_answered_after_a_second_apply_and_a_restart_of_the_agent(
    xenoovs: CommandLine, ports: DummyBridge, config: Path
) -> None:
    """The backend got them only in the drain, and has left the config: its port was no longer passed on."""
    config.write_text(ONE_ALONE)
    assert xenoovs("apply", config, "--db", ports.ovs.db, "-y").status == 0
    begin(ports, config, TWO_ALONE)
    assert receivers(ports, tcp_packet("198.51.100.2", 7, "syn"), port="p2") == [TWO]
    begin(ports, config, ONE_ALONE)
    assert answers_pass(ports)
    assert "nothing to do" in xenoovs("plan", config, "--db", ports.ovs.db).out
    with agent(ports, config):
        eventually(lambda: answers_pass(ports), "answers")
        assert receivers(ports, tcp_packet("198.51.100.2", 7, "ack"), port="p2") == [TWO]


def test_a_backend_with_another_port_keeps_its_connections_at_the_old_one(
    ports: DummyBridge, config: Path, xenoovs: CommandLine
) -> None:
    """`apply` drained it, and an agent moved it at once."""
    config.write_text(OWN_PORT)
    with agent(ports, config) as process:
        eventually(lambda: len(ports.dump_flows()) > 3, "flows at first")
        client = client_of_two(ports)
        config.write_text(OWN_PORT.replace(", egress: p2", ""))
        process.send_signal(signal.SIGHUP)
        eventually(lambda: drain_age_s(ports) is not None and not is_settling(ports), "new connections that go on")
        assert receivers(ports, tcp_packet(client, 1, "ack"), port="p2") == [TWO]
        assert receivers(ports, tcp_packet(client, 2, "syn")) == [TWO]
        assert answers_pass(ports)


def set_link(bridge: DummyBridge, port: str, state: str) -> None:
    bridge.ovs.appctl("netdev-dummy/set-admin-state", port, state)
    bridge.settle(removed_s=0)


@pytest.mark.parametrize("is_dead_before", [True, False])
def test_bug_what_drained_from_a_dead_port_was_lost_where_the_switch_fails_over(
    ports: DummyBridge, config: Path, xenoovs: CommandLine, *, is_dead_before: bool
) -> None:
    """The drain sent open connections to the port that the switch had left."""
    config.write_text(OWN_PORT.replace("egress: p1}", "egress: p1, failover: in_switch}", 1))
    assert xenoovs("apply", config, "--db", ports.ovs.db, "-y").status == 0
    client = client_of_two(ports)
    try:
        if is_dead_before:
            set_link(ports, "p2", "down")
            assert receivers(ports, tcp_packet(client, 1, "ack")) == [ONE]
        begin(ports, config, config.read_text().replace("weight: 1, egress: p2", "weight: 0, egress: p2"))
        assert "nothing to do" in xenoovs("plan", config, "--db", ports.ovs.db).out
        if not is_dead_before:
            assert receivers(ports, tcp_packet(client, 1, "ack"), port="p2") == [TWO]
            set_link(ports, "p2", "down")
        assert receivers(ports, tcp_packet(client, 1, "ack"), tcp_packet(client, 2, "syn")) == [ONE, ONE]
        set_link(ports, "p2", "up")
        assert receivers(ports, tcp_packet(client, 1, "ack"), port="p2") == [TWO]
        assert receivers(ports, tcp_packet(client, 2, "ack")) == [ONE]
        assert xenoovs("apply", config, "--db", ports.ovs.db, "-y", "--no-drain").status == 0
        assert "group_id=" not in ports.ofctl("dump-groups")
    finally:
        set_link(ports, "p2", "up")


def test_connections_learned_into_a_port_that_dies_go_on_once_the_agent_has_ejected_its_backend(
    ports: DummyBridge, config: Path
) -> None:
    """`learn` takes no group, so the switch alone does not move them."""
    text = OWN_PORT.replace("egress: p1}", "egress: p1, failover: in_switch}", 1)
    config.write_text(text + "      - {name: six, mac: 02:00:5e:10:00:04, weight: 1}\n")
    clients = [f"198.51.100.{number}" for number in range(8)]
    try:
        with agent(ports, config) as process:
            eventually(lambda: len(ports.dump_flows()) > 3, "flows at first")
            of_one = [client for client in clients if receivers(ports, tcp_packet(client, 1, "ack")) == [ONE]]
            config.write_text(config.read_text().replace("10:00:02, weight: 1", "10:00:02, weight: 0"))
            process.send_signal(signal.SIGHUP)
            eventually(lambda: drain_age_s(ports) is not None and not is_settling(ports), "new connections that go on")
            [client, *_] = [c for c in of_one if receivers(ports, tcp_packet(c, 2, "syn"), port="p2") == [TWO]]
            set_link(ports, "p2", "down")
            eventually(lambda: receivers(ports, tcp_packet(client, 2, "ack")) != [], "the end of the learned flow")
            assert receivers(ports, tcp_packet(client, 3, "syn"), tcp_packet(client, 3, "ack")) == [SIX, SIX]
    finally:
        set_link(ports, "p2", "up")


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
    source, destination = passed(bridge, "p0", "p1", tcp_packet(EVEN, port, flags))
    assert source == client
    return destination


def answered(bridge: DummyBridge, server: str) -> str:
    """The source that the client sees when this server answers."""
    source, port = server.split(":")
    return passed(bridge, "p1", "p0", tcp_packet(source, int(port), "psh|ack", to=f"{EVEN}:1000"))[0]


def test_a_server_that_leaves_the_config_answers_as_the_vip_until_its_connections_have_ended(
    xenoovs: CommandLine, bridge: DummyBridge, config: Path, apply: Callable[[str], None]
) -> None:
    apply(NAT)
    assert to_vip(bridge, 1000, "ack") == SERVER_ONE
    assert answered(bridge, SERVER_ONE) == answered(bridge, SERVER_TWO) == VIP
    begin(bridge, config, NAT_WITHOUT_ONE)
    assert [to_vip(bridge, 2000, flags) for flags in ("syn", "ack", "psh|ack")] == [SERVER_TWO] * 3, "learned with NAT"
    assert to_vip(bridge, 1000, "psh|ack") == SERVER_ONE
    assert answered(bridge, SERVER_ONE) == answered(bridge, SERVER_TWO) == VIP
    assert "nothing to do" in xenoovs("plan", config, "--db", bridge.ovs.db).out
    apply(NAT_WITHOUT_ONE)
    assert to_vip(bridge, 1000, "psh|ack") == SERVER_TWO
    assert answered(bridge, SERVER_ONE) == SERVER_ONE, "its own packets are its own again"


def test_from_dsr_to_nat_and_back_connections_stay(
    bridge: DummyBridge, config: Path, apply: Callable[[str], None]
) -> None:
    """The old next hop writes a port, the new one none, and the other way round."""
    dsr = NAT.replace("    mode: nat\n", "").replace(", port: 8080", "")
    apply(dsr)
    assert to_vip(bridge, 1000, "ack") == VIP
    for text, old in ((NAT, VIP), (dsr, SERVER_ONE)):
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
    server = next(line for line in NAT.splitlines(keepends=True) if "name: one" in line)
    apply(NAT)
    config.write_text(NAT_WITHOUT_ONE + OTHER + server)
    said = " ".join(xenoovs("plan", config, "--db", bridge.ovs.db).out.split())
    one = "02:00:5e:10:00:02>10.3.20.11:8080@p1"
    assert f"{one} of web answers for shop from now on, so that open connections of web to it break." in said
    document = json.loads(xenoovs("plan", config, "--db", bridge.ovs.db, "-o", "json").out)
    assert document["broken_returns"] == [{"service": "web", "backend": one, "answers_for": "shop"}]
    config.write_text(NAT_WITHOUT_ONE)
    assert "from now on" not in xenoovs("plan", config, "--db", bridge.ovs.db).out
