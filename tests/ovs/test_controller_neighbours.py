"""The controller answers neighbour solicitations for IPv6 VIPs, also of a Linux kernel; a flood drowns nothing."""

from __future__ import annotations

import socket
from contextlib import closing
from dataclasses import replace
from functools import partial
from ipaddress import IPv6Address, ip_address
from pathlib import Path

from tests.command_line import finish, running
from tests.compiled import compiled
from tests.ovs import lab_support
from tests.ovs.dummy import DummyBridge, ofctl
from tests.ovs.lab_support import running_lab
from tests.ovs.ways import Record, Way, connect, running_server
from tests.patience import PATIENCE_S, eventually
from tests.unit.balancer import balancer, claim, service
from tests.unit.controller.test_solicitation import HOST_MAC, VIP_MAC, solicitation
from xenoovs.agent.probe.sockets import in_namespace
from xenoovs.controller.listen import parse_address
from xenoovs.controller.neighbour_discovery import answer_flows
from xenoovs.controller.server import ControllerSwitch, Server
from xenoovs.model.address import Mac
from xenoovs.model.balancer import Protocol
from xenoovs.model.emit import render_config
from xenoovs.openflow.flow import Bundle, Command, FlowMod
from xenoovs.openflow.text import parse_flow, render_flow
from xenoovs.switch.process import run

_VIP, _OTHER = "2001:db8::80", "2001:db8::81"
_MAC = Mac(int.from_bytes(VIP_MAC, "big"))
_BALANCER = balancer(replace(service(claim(ip_address(_VIP))), vip_mac=_MAC))
_WANTED = sorted(render_flow(flow) for flow in answer_flows(_BALANCER))
_PASS_ON = parse_flow("cookie=0x786f000000000001, priority=1,in_port=p0 actions=output:p1")
_PASSED_ON = Bundle((FlowMod(Command.ADD, _PASS_ON),))


def _flows(bridge: DummyBridge) -> list[str]:
    dump = bridge.dump_flows(version="OpenFlow14")
    return sorted(flow for flow in dump if flow.startswith("cookie=0x786e"))


def _receive(bridge: DummyBridge, *frames: bytes) -> None:
    """Let whole frames enter at p0."""
    bridge.receive("p0", [(frame.hex(),) for frame in frames])


def test_the_master_of_the_moment_answers_once_and_others_and_all_without_a_controller_are_passed_on(
    bridge: DummyBridge,
) -> None:
    others = [solicitation(target=IPv6Address(_OTHER).packed), solicitation(kind=136)]
    with running_server(Record(), is_redundant=True) as heir, running_server(Record(), is_redundant=True) as first:
        Way(first).switch(bridge.ovs).apply(bridge.name, _PASSED_ON)
        _follow_as_master(first, bridge)
        place = heir.expect(bridge.name)
        connect(bridge.ovs, bridge.name, heir)
        eventually(lambda: place.connection is not None and place.connection.is_standby, "the second stands by")
        heir.expect(bridge.name).proxy.follow(_BALANCER)
        _receive(bridge, solicitation(), *others)
        eventually(lambda: len(bridge.sent("p0")) == 1, "the first answers")
        (answer,) = bridge.sent("p0")
        assert (answer[:12], answer[62:78]) == (HOST_MAC + VIP_MAC, IPv6Address(_VIP).packed)
        eventually(lambda: bridge.sent("p1") == others, "both others are passed on")
        first.close()
        _follow_as_master(heir, bridge)
        _receive(bridge, solicitation())
        eventually(lambda: bridge.sent("p0") == [answer, answer], "the second answers")
        assert (first.expect(bridge.name).proxy.answered, heir.expect(bridge.name).proxy.answered) == (1, 1)
        heir.close()
        eventually(lambda: _flows(bridge) == [], "the flows are gone with the controllers")
        _receive(bridge, solicitation())
        eventually(lambda: bridge.sent("p1") == [*others, solicitation()], "it is passed on")


def test_a_solicitation_is_answered_in_its_own_vlan(bridge: DummyBridge) -> None:
    tagged = balancer(replace(service(replace(claim(ip_address(_VIP)), vlan=100)), vip_mac=_MAC))
    wanted = sorted(render_flow(flow) for flow in answer_flows(tagged))
    mine, other = (solicitation(tags=bytes.fromhex(tag)) for tag in ("81006064", "810000c8"))
    with running_server(Record()) as server:
        Way(server).switch(bridge.ovs).apply(bridge.name, _PASSED_ON)
        server.expect(bridge.name).proxy.follow(tagged)
        eventually(lambda: _flows(bridge) == wanted, "the flows of the VLAN")
        _receive(bridge, other, mine, solicitation())
        eventually(lambda: len(bridge.sent("p0")) == 1, "an answer")
        assert bridge.sent("p0")[0][:16] == HOST_MAC + VIP_MAC + bytes.fromhex("81006064")
        eventually(lambda: bridge.sent("p1") == [other, solicitation()], "the others are passed on")


def _follow_as_master(server: Server, bridge: DummyBridge) -> None:
    place = server.expect(bridge.name)
    eventually(lambda: place.connection is not None and not place.connection.is_standby, "it is master")
    server.expect(bridge.name).proxy.follow(_BALANCER)
    eventually(lambda: _flows(bridge) == _WANTED, "the flows that bring solicitations")


def test_the_command_answers_for_the_addresses_of_its_config(bridge: DummyBridge, tmp_path: Path) -> None:
    config, text = tmp_path / "my.yaml", render_config(_BALANCER)
    config.write_text(text)
    with running("controller", config, "--db", bridge.ovs.db, "--listen", "127.0.0.1:0", "--attach") as process:
        for times, vip in enumerate((_VIP, _OTHER), 1):
            config.write_text(text.replace(_VIP, vip))
            # The flow for the address comes with the first round.
            eventually(partial(_has_flow_for, bridge, vip), f"the flow for {vip}")
            _receive(bridge, solicitation(target=IPv6Address(vip).packed))
            eventually(lambda times=times: len(bridge.sent("p0")) == times, "an answer")  # type: ignore[misc]
        process.terminate()
        assert finish(process).status == 0
    assert {frame[:12] for frame in bridge.sent("p0")} == {HOST_MAC + VIP_MAC}
    pace = bridge.ovs.vsctl("get", "controller", bridge.name, "controller_rate_limit", "max_backoff")
    assert pace.split() == ["1000", "1000"]
    assert not _has_flow_for(bridge, "")


def _has_flow_for(bridge: DummyBridge, vip: str) -> bool:
    return any(f"nd_target={vip}" in flow for flow in bridge.dump_flows())


_LAB_VIP, _CLIENT = "2001:db8:10::80", "2001:db8:c::5"
_CLAIM = claim(ip_address(_LAB_VIP), protocol=Protocol.UDP, ports=[(53, 53)])
_LAB_BALANCER = lab_support.balancer(lab_support.service("six", _CLAIM, vip_mac=lab_support.VIP_MAC))
_FLOOD = 5000


def test_a_linux_host_finds_the_vip_amid_a_flood(tmp_path: Path) -> None:
    """The controller is in the network namespace of the lab's switch."""
    address = parse_address("127.0.0.1:0")
    with running_lab("nd", _LAB_BALANCER, tmp_path / "lab") as lab:
        clients, target = lab.topology.clients, f"unix:{lab.ovs.directory / lab.topology.bridge}.mgmt"

        def ip(*words: str) -> str:
            return run(["ip", "-6", "-n", clients.namespace, *words, "dev", clients.interface]).stdout

        def flood() -> None:
            frame = solicitation(target=IPv6Address(_LAB_VIP).packed)
            with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sock:
                sock.bind((clients.interface, 0))
                for _ in range(_FLOOD):
                    sock.send(frame)

        def send() -> None:
            with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
                sock.bind((_CLIENT, 0))
                sock.sendto(b"?", (_LAB_VIP, 53))

        def finds() -> bool:
            """Whether the kernel has taken an answer: to send a datagram to the VIP, it has to ask first.

            It asks three times, a second apart; where the machine is too busy for an answer by then, it sends again.
            """
            in_namespace(clients.namespace, send)
            return f"lladdr {lab_support.VIP_MAC} REACHABLE" in ip("neigh", "show", _LAB_VIP)

        with in_namespace(lab.topology.switch_namespace, lambda: closing(Server(address))) as server:
            proxy = server.expect(lab.topology.bridge).proxy
            connect(lab.ovs, lab.topology.bridge, server)
            program = Bundle(tuple(FlowMod(Command.ADD, flow) for flow in compiled(_LAB_BALANCER).flows))
            ControllerSwitch(server.registry, timeout_s=PATIENCE_S).apply(lab.topology.bridge, program)
            proxy.follow(_LAB_BALANCER)
            eventually(
                lambda: "nd_target" in ofctl(lab.ovs, "-O", "OpenFlow14", "dump-flows", target),
                "the flows that bring solicitations",
            )
            # The kernel asks from an address of the interface; the entry stands for the answer that flows cannot give.
            run(["ip", "-n", clients.namespace, "addr", "add", f"{_CLIENT}/128", "dev", clients.interface, "nodad"])
            ip("neigh", "del", _LAB_VIP)
            in_namespace(clients.namespace, flood)
            eventually(finds, "the kernel takes the answer")
            assert 1 <= proxy.answered < _FLOOD
            assert [line.bridge for line in server.registry.connections] == [lab.topology.bridge]
