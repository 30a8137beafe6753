"""Two real network namespaces: probes by ICMP, ARP and TCP, and MACs of backends that are given by their address."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from ipaddress import IPv4Address, ip_address
from pathlib import Path

import pytest

from tests.command_line import CommandLine, running
from tests.ovs.dummy import DummyBridge
from tests.patience import PATIENCE_S, eventually
from tests.probe_support import FAR_MAC, ask, inside_ip, nothing_left, two_namespaces
from xenoovs.agent.neighbour import Neighbours, resolve_now
from xenoovs.agent.probe.check import Check
from xenoovs.agent.probe.run import Prober
from xenoovs.agent.probe.sockets import in_namespace
from xenoovs.decision.decision import DesiredState
from xenoovs.engine.engine import Engine
from xenoovs.model.address import IPAddress, Mac, parse_mac
from xenoovs.model.balancer import Balancer, Health, ProbeKind
from xenoovs.model.load import parse_config
from xenoovs.model.next_hop import mac_of
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.management import ManagementSwitch

FAR = parse_mac(FAR_MAC)
FAR_ADDRESS, NOBODY = IPv4Address("192.0.2.2"), IPv4Address("192.0.2.99")


@pytest.fixture(scope="module")
def near() -> Iterator[str]:
    with two_namespaces("probe") as (name, _):
        yield name


def icmp(address: IPAddress, netns: str, interface: str | None = None) -> Check:
    return Check(Health(ProbeKind.ICMP, None, interface, netns), address)


def arp(mac: Mac, address: IPv4Address, netns: str, interface: str) -> Check:
    return Check(Health(ProbeKind.ARP, None, interface, netns), address, mac)


FAR_6, ABSENT = ip_address("2001:db8::2"), parse_mac("02:00:5e:20:00:99")
ANSWERS: dict[str, tuple[Callable[[str], Check], str]] = {
    "ICMP": (lambda near: icmp(FAR_ADDRESS, near), "answered"),
    "ICMP by an interface": (lambda near: icmp(FAR_ADDRESS, near, "n0"), "answered"),
    "ICMPv6": (lambda near: icmp(FAR_6, near), "answered"),
    "ICMPv6 by an interface": (lambda near: icmp(FAR_6, near, "n0"), "answered"),
    "ARP": (lambda near: arp(FAR, FAR_ADDRESS, near, "n0"), "answered"),
    "silence": (lambda near: icmp(NOBODY, near), "no answer within 100ms"),
    "ARP for another MAC": (lambda near: arp(ABSENT, FAR_ADDRESS, near, "n0"), "no answer within 100ms"),
    "ARP for another address": (lambda near: arp(FAR, NOBODY, near, "n0"), "no answer within 100ms"),
    "an absent device": (lambda near: arp(FAR, FAR_ADDRESS, near, "n9"), "interface n9 does not exist"),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_answers(near: str, case: str) -> None:
    target, reason = ANSWERS[case]
    timeout_s = 0.1 if "no answer" in reason else PATIENCE_S
    assert ask(target(near), timeout_s=timeout_s).reason == reason


@pytest.mark.parametrize(("host", "route"), [("203.0.113.5", "203.0.113.0/24"), ("2001:db8:1::5", "2001:db8:1::/64")])
def test_icmp_unreachable(near: str, host: str, route: str) -> None:
    """The far machine forwards and has no way there: it says so."""
    assert ask(icmp(ip_address(host), near)).reason == "network unreachable"
    far, hop = near[:-1] + "f", "192.0.2.2" if "." in host else "2001:db8::2"
    in_namespace(far, _forward)
    inside_ip(near, "route", "replace", route, "via", hop)
    try:
        reason = ask(icmp(ip_address(host), near)).reason
        assert reason == f"network unreachable, says {hop}"
    finally:
        inside_ip(near, "route", "del", route)


def _forward() -> None:
    for path in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
        Path("/proc/sys/net", path).write_text("1")


def test_thousands_of_targets_share_one_socket(near: str) -> None:
    async def many() -> list[str]:
        async with nothing_left():
            prober = Prober()
            hosts = [f"127.0.{i >> 8}.{i & 255}" for i in range(1, 2001)]
            probes = (prober.probe(icmp(ip_address(host), near), timeout_s=PATIENCE_S) for host in hosts)
            return [result.reason for result in await asyncio.gather(*probes)]

    assert asyncio.run(many()) == ["answered"] * 2000


def test_tcp_from_inside(near: str) -> None:
    far = near[:-1] + "f"
    with in_namespace(far, lambda: socket.create_server(("192.0.2.2", 0))) as server:
        target = Check(Health(ProbeKind.TCP, server.getsockname()[1], "n0", near), FAR_ADDRESS)
        assert ask(target).reason == "answered"
    assert ask(target).reason == "connection refused"


def test_namespace_made_anew_is_entered_anew() -> None:
    prober = Prober()

    async def once(namespace: str) -> str:
        return (await prober.probe(arp(FAR, FAR_ADDRESS, namespace, "n0"), timeout_s=PATIENCE_S)).reason

    for _ in range(2):
        with two_namespaces("anew") as (name, _far):
            assert asyncio.run(once(name)) == "answered"
        assert asyncio.run(once(name)) == f"network namespace {name} does not exist"


def test_probes_in_a_namespace_start_no_thread(near: str, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[threading.Thread] = []
    monkeypatch.setattr(threading.Thread, "start", started.append)
    for _ in range(3):
        assert ask(icmp(FAR_ADDRESS, near, "n0")).ok
        assert ask(Check(Health(ProbeKind.TCP, 1, "n0", near), FAR_ADDRESS)).reason == "connection refused"
    assert started == []


@pytest.mark.parametrize("error", [None, OSError("no"), ValueError("no")])
def test_the_calling_thread_returns_to_its_namespace(near: str, error: Exception | None) -> None:
    def visit() -> Path:
        if error is not None:
            raise error
        return namespace()

    def namespace() -> Path:
        return Path("/proc/thread-self/ns/net").readlink()

    before = namespace()
    with nullcontext() if error is None else pytest.raises(type(error)):
        assert in_namespace(near, visit) != before
    assert namespace() == before


SHARED: dict[str, tuple[Callable[[str], Check], Callable[[str], Check]]] = {
    "icmp": (lambda near: icmp(NOBODY, near), ANSWERS["ICMP"][0]),
    "icmp6": (
        lambda near: icmp(ip_address("2001:db8::99"), near, "n0"),
        ANSWERS["ICMPv6 by an interface"][0],
    ),
    "arp": (ANSWERS["ARP for another address"][0], ANSWERS["ARP"][0]),
}
"""Nobody, and one who answers and is asked by the same socket."""


@pytest.mark.parametrize("kind", SHARED)
@pytest.mark.parametrize("turns", [0, 2, *(pytest.param(turns, marks=pytest.mark.long) for turns in (1, 5, 50))])
def test_cancelled(near: str, kind: str, turns: int) -> None:
    """At any moment: probes that share the socket are answered, and nothing is left open."""
    silent, other = (target(near) for target in SHARED[kind])

    async def main() -> None:
        prober = Prober()
        async with nothing_left():
            probes = [asyncio.create_task(prober.probe(silent, timeout_s=600)) for _ in range(3)]
            for _ in range(turns):
                await asyncio.sleep(0.0001)
            answered = asyncio.create_task(prober.probe(other, timeout_s=PATIENCE_S))
            for probe in probes:
                probe.cancel()
            ended, _ = await asyncio.wait(probes, timeout=PATIENCE_S)
            assert len(ended) == 3
            assert all(probe.cancelled() for probe in probes)
            assert (await answered).reason == "answered"
        async with nothing_left():
            assert (await prober.probe(other, timeout_s=PATIENCE_S)).reason == "answered"

    asyncio.run(main())


OTHER_MAC = "02:00:5e:20:00:77"

CONFIG = """\
version: 1
switch: {{bridge: ovsbr1, ingress: [p0], egress: p1}}
health: {{probe: icmp, netns: {near}, interface: n0}}
services:
  - name: web
    vip: 198.51.100.1
    backends:
      - {{name: far, weight: 1, address: {address}}}
      - {{name: other, mac: 02:00:00:00:00:09, weight: 1, address: 192.0.2.9}}
"""


@pytest.fixture
def namespaces() -> Iterator[tuple[str, str]]:
    with two_namespaces("neigh") as both:
        yield both


def balancer(near: str, address: str = "192.0.2.2") -> Balancer:
    return parse_config(CONFIG.format(near=near, address=address), file="c.yaml")


@pytest.mark.parametrize("address", ["192.0.2.2", "2001:db8::2"])
def test_a_mac_is_found_by_either_family(namespaces: tuple[str, str], address: str) -> None:
    found = resolve_now(balancer(namespaces[0], address), timeout_s=PATIENCE_S)
    first, _ = found.services[0].backends
    assert str(mac_of(first.next_hop)) == FAR_MAC


def test_a_new_mac_takes_the_blocks_of_the_old_one(namespaces: tuple[str, str], bridge: DummyBridge) -> None:
    near, far = namespaces
    config, neighbours = balancer(near), Neighbours()
    switch = ManagementSwitch(Endpoint(bridge.ovs.db, bridge.ovs.directory))
    engine = Engine(switch, resolve=neighbours.resolve)
    neighbours.settle(config, timeout_s=PATIENCE_S)

    def flows() -> list[str]:
        return sorted(switch.dump_flow_text("ovsbr1").splitlines())

    engine.round(DesiredState(config), now_s=0.0)
    before = flows()
    assert FAR_MAC in "".join(before)
    inside_ip(far, "link", "set", "f0", "down")
    inside_ip(far, "link", "set", "f0", "address", OTHER_MAC)
    inside_ip(far, "link", "set", "f0", "up")
    inside_ip(near, "neigh", "flush", "dev", "n0")
    eventually(lambda: bool(neighbours.poll(config)), "the new MAC is seen")
    done = engine.round(DesiredState(config), now_s=0.0)
    assert flows() == [line.replace(FAR_MAC, OTHER_MAC) for line in before]
    assert done.difference.flow_mods == "".join(before).count(FAR_MAC)


def test_apply_finds_macs_without_an_agent(
    namespaces: tuple[str, str], bridge: DummyBridge, tmp_path: Path, xenoovs: CommandLine
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(CONFIG.format(near=namespaces[0], address="192.0.2.2"))
    assert xenoovs("apply", file, "--db", bridge.ovs.db, "--yes").status == 0
    assert FAR_MAC in "".join(bridge.dump_flows(version="OpenFlow14"))
    file.write_text(CONFIG.format(near=namespaces[0], address="192.0.2.50"))
    said = xenoovs("apply", file, "--db", bridge.ovs.db, "--yes")
    assert said.status == 1
    assert "no MAC is known for 192.0.2.50 (web/far)" in said.err


def test_backends_by_address_alone_are_taken_by_a_running_agent_when_they_come_to_the_network(
    namespaces: tuple[str, str], bridge: DummyBridge, tmp_path: Path, xenoovs: CommandLine
) -> None:
    """No backend of the config before had to be resolved."""
    by_address = CONFIG.format(near=namespaces[0], address="192.0.2.50").replace(", interface: n0", "")
    by_address = by_address[: by_address.index("      - {name: other")]
    file = tmp_path / "c.yaml"
    file.write_text(by_address.replace("far,", f"far, mac: {OTHER_MAC},"))
    with running("agent", file, "--db", bridge.ovs.db):
        eventually(lambda: OTHER_MAC in "".join(bridge.dump_flows(version="OpenFlow14")), "flows at first")
        file.write_text(by_address)
        said = "no MAC is known for 192.0.2.50 (web/far)"
        eventually(lambda: said in xenoovs("status", "--db", bridge.ovs.db).out, "the agent says so")
        inside_ip(namespaces[1], "addr", "add", "192.0.2.50/24", "dev", "f0")
        eventually(lambda: FAR_MAC in "".join(bridge.dump_flows(version="OpenFlow14")), "the MAC that was found")
