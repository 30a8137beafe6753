"""Backends behind tunnels of a real Open vSwitch: packets through Geneve, VXLAN and GRE, and the receiving bridge."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.command_line import Command, CommandLine, running
from tests.ovs.dummy import DummyBridge, lead_to_remotes, running_dummy_ovs, udp_packet
from tests.patience import PATIENCE_S, eventually
from xenoovs.agent.bridge_watch import follow_bridge
from xenoovs.agent.state import AgentState
from xenoovs.agent.state_store import StateStore
from xenoovs.engine.change import PlanOptions
from xenoovs.engine.engine import Engine
from xenoovs.model.load import parse_config
from xenoovs.switch.management import ManagementSwitch
from xenoovs.terminal.reach import endpoint_of

CONFIG = """\
version: 1
switch: {{bridge: ovsbr1, ingress: [p0], egress: p1}}
tunnels:
  - {{name: tun0, type: geneve, local: 192.168.77.1, key: 5001, ports: {ports}}}
services:
  - name: web
    vip: 10.3.10.45
    return: switch
    drain: {{mode: pin, timeout: 10m, idle_timeout: 10m}}
    backends:
      - {{name: b1, mac: "02:00:00:00:0d:01", egress: tun0, remote: 192.168.77.11, weight: 50}}
      - {{name: b2, mac: "02:00:00:00:0d:02", egress: tun0, remote: 192.168.77.12, key: 5002, weight: 50}}
"""
EVEN, ODD = "198.51.100.2", "198.51.100.3"
REMOTE = {"b1": bytes((192, 168, 77, 11)), "b2": bytes((192, 168, 77, 12))}
OUTER_DESTINATION = slice(30, 34)
"""Of an Ethernet frame with IPv4 (RFC 791, 3.1)."""


@dataclass(frozen=True, slots=True)
class End:
    """An Open vSwitch at one end: the bridge of the flows, and one with the uplink and the address of the tunnel."""

    bridge: DummyBridge
    uplink: DummyBridge

    @property
    def db(self) -> str:
        return self.bridge.ovs.db

    def vsctl(self, command: str) -> None:
        self.bridge.ovs.vsctl(*shlex.split(command)[1:])

    def reach(self) -> None:
        """Let the tunnel use the routes of a dummy datapath, of which none is local (ovs_router_lookup())."""
        for port in self.bridge.ovs.vsctl("list-ports", "ovsbr1").split():
            self.bridge.ovs.vsctl("remove", "interface", port, "options", "local_ip")


@contextmanager
def end(directory: Path, number: int, ports: tuple[str, ...], neighbours: tuple[int, ...]) -> Iterator[End]:
    """The end with the address 192.168.77.NUMBER; the MACs of its neighbours are known."""
    with ExitStack() as stack:
        ovs = stack.enter_context(running_dummy_ovs(directory))
        uplink = stack.enter_context(ovs.bridge("br-ul", ports=("u0",)))
        lead_to_remotes(uplink, number, neighbours)
        yield End(stack.enter_context(ovs.bridge("ovsbr1", ports=ports)), uplink)


@pytest.fixture
def near(tmp_path: Path) -> Iterator[End]:
    with end(tmp_path / "near", 1, ("p0", "p1"), (11, 12)) as made:
        yield made


@pytest.fixture
def far(tmp_path: Path) -> Iterator[End]:
    with end(tmp_path / "far", 11, ("q0", "pf0hpf"), (1,)) as made:
        yield made


@pytest.fixture
def on_near(xenoovs: CommandLine, near: End) -> Command:
    """The command line, at the near end."""
    return lambda *words: xenoovs(*words, "--db", near.db)


def written(tmp_path: Path, ports: str = "shared") -> Path:
    file = tmp_path / "my.yaml"
    file.write_text(CONFIG.format(ports=ports))
    return file


def leaving(near: End, *packets: str) -> list[bytes]:
    """The frames that leave by the uplink when these packets of clients enter."""
    before = len(near.uplink.sent("u0"))
    near.bridge.send("p0", packets)
    eventually(lambda: len(near.uplink.sent("u0")) >= before + len(packets), "frames of the tunnel")
    return near.uplink.sent("u0")[before:]


def install(on_near: Command, near: End, file: Path, *, reach: bool = True) -> None:
    assert on_near("doctor", file, "--fix", "-y").status in (0, 2)
    if reach:
        near.reach()
    assert on_near("apply", file, "-y").status == 0


def test_a_block_has_a_megaflow_for_each_ecn_code_point(on_near: Command, near: End, tmp_path: Path) -> None:
    install(on_near, near, written(tmp_path))
    near.bridge.settle()
    for points in ((0,), (0, 2, 3), (0, 1, 2, 3)):
        packets = [udp_packet(c).replace("tos=0", f"tos={point}") for point in points for c in (EVEN, ODD)]
        leaving(near, *packets)
        found = [line for line in near.bridge.megaflows() if "in_port(p0)" in line]
        assert len(found) == 2 * len(points)
    said = " ".join(on_near("verify-offload", tmp_path / "my.yaml", "--interval", "0s").out.split())
    assert "megaflows of blocks (8): 2 were predicted, or up to 8 if packets use ECN, behind tunnels" in said


def rows(on_near: Command, file: Path) -> dict[str, tuple[str, str, str]]:
    checks = json.loads(on_near("doctor", file, "-o", "json").out)["checks"]
    found = {each["subject"]: each for each in checks if each["check"].startswith("tunnel port")}
    return {name: (each["state"], each["seen"], each["fix"] or "") for name, each in found.items()}


def test_apply_stops_while_a_port_is_missing_and_doctor_makes_and_corrects_ports_and_deletes_none(
    xenoovs: CommandLine, on_near: Command, near: End, tmp_path: Path
) -> None:
    """What doctor says of each fault is in tests/golden/doctor/tunnel_ports.txt."""
    file = written(tmp_path)
    said = on_near("apply", file, "-y")
    assert (said.status, "tunnel port tun0 must be made: `xenoovs doctor" in said.err) == (1, True)
    (command,) = xenoovs("tunnels", file).out.splitlines()
    near.vsctl(command)
    assert on_near("apply", file, "-y").status == 0
    file = written(tmp_path, ports="each")
    file.write_text(re.sub(r"\n.*drain:.*\n", "\n", file.read_text()))
    assert rows(on_near, file)["tun0-c0a84d0b"][0] == "wrong"
    install(on_near, near, file, reach=False)
    state, _, fix = rows(on_near, file)["tun0"]
    assert (state, "del-port ovsbr1 tun0" in fix) == ("unknown", True)
    assert {"tun0", "tun0-c0a84d0b", "tun0-c0a84d0c"} <= {*near.bridge.ovs.vsctl("list-ports", "ovsbr1").split()}
    near.bridge.ovs.vsctl("del-port", "tun0")
    assert {state for state, _, _ in rows(on_near, file).values()} == {"ok"}
    options = [f"options:{each}" for each in ("remote_ip=192.168.77.99", "in_key=7", "out_key=7")]
    near.bridge.ovs.vsctl("set", "interface", "tun0-c0a84d0b", *options)
    assert rows(on_near, file)["tun0-c0a84d0b"][0] == "wrong"
    on_near("doctor", file, "--fix", "--yes")
    assert {state for state, _, _ in rows(on_near, file).values()} == {"ok"}


def test_bug_doctor_would_delete_a_port_that_a_drain_uses(on_near: Command, near: End, tmp_path: Path) -> None:
    """Open connections to a backend that the config lacks go through its port until the drain is over."""
    file = written(tmp_path, ports="each")
    install(on_near, near, file, reach=False)
    before = rows(on_near, file)
    file.write_text(re.sub(r"\n.*b2.*\n", "\n", file.read_text()))
    engine = Engine(ManagementSwitch(endpoint_of(near.db, None)))
    engine.apply(engine.plan(parse_config(file.read_text(), file=str(file)), PlanOptions()))
    assert rows(on_near, file) == before


def tcp(source: str, port: int, flags: str) -> str:
    return (
        udp_packet(source)
        .replace("proto=17", "proto=6")
        .replace("udp(src=4000,dst=53)", f"tcp(src={port},dst=80),tcp_flags({flags})")
    )


@pytest.mark.parametrize("ports", ["shared", pytest.param("each", marks=pytest.mark.long)])
def test_open_connections_stay_with_their_backend_in_a_drain(
    on_near: Command, near: End, tmp_path: Path, ports: str
) -> None:
    file = written(tmp_path, ports=ports)
    install(on_near, near, file)

    def remote(packet: str) -> bytes:
        (frame,) = leaving(near, packet)
        return frame[OUTER_DESTINATION]

    assert remote(tcp(EVEN, 1000, "ack")) == REMOTE["b1"]
    file.write_text(file.read_text().replace("192.168.77.11, weight: 50", "192.168.77.11, weight: 0"))
    with running("apply", file, "--db", near.db, "-y"):
        eventually(lambda: _has_settled(near), "new connections that go to b2")
        near.bridge.ovs.appctl("revalidator/wait")
        assert remote(tcp(EVEN, 1000, "ack")) == REMOTE["b1"]
        assert remote(tcp(EVEN, 1001, "syn")) == REMOTE["b2"]
        near.bridge.ovs.appctl("revalidator/wait")
        assert remote(tcp(EVEN, 1001, "ack")) == REMOTE["b2"]
        assert remote(tcp(EVEN, 1000, "ack")) == REMOTE["b1"]


_DIRECT = '      - {name: b9, mac: "02:00:00:00:0d:09", weight: 50}\n'


@pytest.mark.parametrize("is_last", [False, True])
def test_answers_of_open_connections_pass_while_their_backend_leaves_the_config(
    xenoovs: CommandLine, on_near: Command, near: End, far: End, tmp_path: Path, *, is_last: bool
) -> None:
    """Bug: those of the last one behind a tunnel were lost, as the config cannot say `return: switch` any more."""
    file = written(tmp_path)
    if is_last:
        file.write_text(re.sub(r".*name: b2.*\n", _DIRECT, file.read_text()))
    install(on_near, near, file)
    # What the far end needs.
    said = json.loads(xenoovs("tunnels", file, "--far-end", "b1", "-o", "json").out)
    for command in (each for port in said["ports"] for each in port["commands"]):
        far.vsctl(command)
    far.reach()
    far.bridge.add_flows("".join(f"{flow}\n" for flow in said["flows"]))
    far.bridge.send("pf0hpf", [udp_packet("10.3.10.45", destination=EVEN, ports=(53, 4000))])
    eventually(lambda: bool(far.uplink.sent("u0")), "an answer in the tunnel")
    lines = file.read_text().splitlines(keepends=True)
    gone = ("name: b1", *(("return:", "tunnels:", "name: tun0") if is_last else ()))
    file.write_text("".join(line for line in lines if not any(word in line for word in gone)))
    with running("apply", file, "--db", near.db, "-y"):
        eventually(lambda: any("+syn" in flow for flow in near.bridge.dump_flows()), "blocks that drain")
        near.uplink.receive("u0", [(frame.hex(),) for frame in far.uplink.sent("u0")])
        eventually(lambda: bool(near.bridge.sent("p0")), "an answer for the client")
    assert on_near("apply", file, "-y", "--no-drain").status == 0
    assert not any("tun_src=192.168.77.11" in flow for flow in near.bridge.dump_flows())


def test_a_port_that_leads_elsewhere_gets_no_packets(on_near: Command, near: End, tmp_path: Path) -> None:
    file = written(tmp_path)
    install(on_near, near, file)
    assert on_near("remove", file, "-y").status == 0
    for change, reason in (
        ("options:remote_ip=192.168.77.99", "has remote_ip=192.168.77.99 instead of flow"),
        ("options:out_key=7", "has out_key=7 instead of flow"),
        ("type=internal", "is of type internal, not geneve"),
    ):
        near.bridge.ovs.vsctl("set", "interface", "tun0", "options:remote_ip=flow", change)
        said = on_near("apply", file, "-y")
        assert (said.status, reason in " ".join(said.err.split())) == (1, True), said.err


def test_bug_an_agent_sent_to_another_remote_until_its_next_comparison(
    on_near: Command, near: End, tmp_path: Path
) -> None:
    """It did not see a change of options; here no comparison comes by itself."""
    file = written(tmp_path)
    install(on_near, near, file)

    def serves() -> bool:
        return any("load:0x1389->NXM_NX_TUN_ID[]" in flow for flow in near.bridge.dump_flows())

    with running("agent", file, "--db", near.db, "--resync", "1h"):
        eventually(serves, "flows of the tunnel")
        for option, value in (("key", "7"), ("out_key", "7"), ("remote_ip", "192.168.77.99")):
            near.bridge.ovs.vsctl("set", "interface", "tun0", f"options:{option}={value}")
            eventually(lambda: not serves(), f"no packets to another machine by {option}")
            near.bridge.ovs.vsctl("remove", "interface", "tun0", "options", "out_key")
            near.bridge.ovs.vsctl("set", "interface", "tun0", "options:key=flow", "options:remote_ip=flow")
            eventually(serves, "the flows again")


def test_bug_a_port_that_changed_while_the_agent_started_was_noticed_at_the_next_comparison(
    near: End, tmp_path: Path
) -> None:
    """The first round may read the ports before the agent follows them, so the first report starts one."""
    balancer = parse_config(written(tmp_path).read_text(), file="config")

    async def first_report() -> None:
        asked = asyncio.Event()
        store = StateStore(AgentState(balancer, balancer))
        following = follow_bridge(near.db, store, balancer=lambda: balancer, request_round=asked.set)
        task = asyncio.create_task(following)
        try:
            await asyncio.wait_for(asked.wait(), PATIENCE_S)
        finally:
            task.cancel()

    asyncio.run(first_report())


def _has_settled(near: End) -> bool:
    opening = [flow for flow in near.bridge.dump_flows() if "+syn" in flow]
    # Behind the learned flow: where the packet goes that opens a connection.
    return bool(opening) and all("00:00:0d:02," in flow.rpartition("learn(")[2].partition("),")[2] for flow in opening)
