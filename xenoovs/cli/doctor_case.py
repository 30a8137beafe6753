"""Collects the input of the doctor's checks: config, switch, simulation and lab."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import TYPE_CHECKING

from xenoovs.compile.plan import hardware_entries
from xenoovs.compile.program import Program, compile_onto
from xenoovs.compile.tunnel_ports import wanted_ports
from xenoovs.datapath.fact import NOT_READ, Fact, Unknown, Unresponsive
from xenoovs.datapath.host import BackendFacts, HostFacts
from xenoovs.datapath.tc import TcFilter
from xenoovs.datapath.tunnel_facts import TunnelEnd, tunnel_ends
from xenoovs.errors import ParseError, SimulateError, SwitchError, XenoovsError
from xenoovs.evidence.collector import Collector
from xenoovs.evidence.evidence import Evidence
from xenoovs.evidence.target import CommandTarget
from xenoovs.judge.doctor.check import (
    DoctorCase,
    ForeignCost,
    ForeignFlows,
    RemoteAnswers,
    RequiredBackend,
    RequiredKey,
    RequiredTunnel,
    Requirements,
)
from xenoovs.judge.doctor.nic import TC_MODULES
from xenoovs.judge.expected import expected_services
from xenoovs.judge.foreign import preempting_rules
from xenoovs.judge.simulate.megaflows import pipeline_of
from xenoovs.model.address import Family, IPAddress
from xenoovs.model.balancer import Balancer, Service
from xenoovs.model.next_hop import mac_and_port
from xenoovs.model.packet import Packet
from xenoovs.model.tunnel import PathSelector
from xenoovs.openflow.flow import Field, Flow, decode_cookie, is_foreign, match_of
from xenoovs.openflow.text import render_flow
from xenoovs.switch.devices import read_backend
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.frr import read_bgp
from xenoovs.switch.management import ManagementSwitch
from xenoovs.switch.netns import Netns

if TYPE_CHECKING:
    from xenoovs.terminal.labs import LabTarget


def remotes_of(balancer: Balancer) -> dict[str, tuple[str, ...]]:
    """Return the tunnel ports of backends, with the remotes behind them."""
    found: dict[str, dict[str, None]] = {}
    for end in balancer.remote_ends:
        found.setdefault(end.port, {})[str(end.remote)] = None
    return {port: tuple(remotes) for port, remotes in found.items()}


MAX_PACKETS = 2048
"""Simulated clients in total: enough for every block of common configs, in a second or two."""

_VARYING = frozenset(("nw_tos", "ip_dscp", "nw_ecn", "nw_ttl", "tcp_flags", "ipv6_label"))
"""Header fields (ovs-fields(7)) that differ between clients, or even between packets of one."""

_GOLDEN_RATIO = 2654435761
"""Knuth's multiplicative hash (The Art of Computer Programming, 3, 6.4): spreads 0, 1, 2 ... over 32 bits."""


@dataclass(frozen=True, slots=True)
class Question:
    """The options of doctor.

    Attributes:
        balancer: the config; None: every bridge is checked.
        switch: the Open vSwitch.
        lab: the lab, if the switch is in one.
        target: how commands reach the Open vSwitch.
        backends: whether backends are checked.
    """

    balancer: Balancer | None
    switch: ManagementSwitch
    lab: LabTarget | None
    target: CommandTarget
    backends: bool

    @property
    def endpoint(self) -> Endpoint:
        return self.switch.endpoint

    def read(self) -> DoctorCase:
        """Read all facts."""
        collector = Collector(self.switch, target=self.target)
        host = collector.host(TC_MODULES)
        if self.balancer is not None and self.balancer.announce is not None:
            host = replace(host, bgp=read_bgp(self.balancer.announced_vips))
        if self.balancer is None:
            return DoctorCase(Evidence(collector.tunnels(host, _ends(host, None))), None)
        program, foreign = self._on_bridge(self.balancer, host)
        host = collector.tunnels(host, _ends(host, program.balancer))
        return DoctorCase(Evidence(host, target=self.target), self._wanted(program, foreign, host))

    def _on_bridge(self, balancer: Balancer, host: HostFacts) -> tuple[Program, Fact[ForeignFlows]]:
        """Return the program of the config on its bridge, where drains may go on, and the flows of others there."""
        bridge = balancer.uplinks.bridge
        try:
            if isinstance(host.daemon, Unresponsive):
                raise SwitchError(host.daemon.reason)
            program = compile_onto(balancer, self.switch.dump_flows(bridge))
            others = self.switch.dump_foreign_flows(bridge)
            return program, foreign_flows(balancer, program, (seen.flow for seen in others))
        except (SwitchError, ParseError) as error:
            return compile_onto(balancer, ()), Unknown(str(error))

    def _wanted(self, program: Program, foreign: Fact[ForeignFlows], host: HostFacts) -> Requirements:
        balancer = program.balancer
        uplinks = balancer.uplinks
        return Requirements(
            bridge=uplinks.bridge,
            ingress=uplinks.ingress,
            egress=balancer.egress_ports,
            entries=sum(map(hardware_entries, program.services)),
            foreign=foreign,
            backends=self._backends(balancer) if self.backends else (),
            preempting=preempting_rules(expected_services(program), _filters(host)),
            tunnels=tuple(self._tunnels(balancer)),
            keys=self._keys(balancer),
            tunnel_ports=wanted_ports(balancer),
        )

    def _tunnels(self, balancer: Balancer) -> Iterator[RequiredTunnel]:
        probed = self._probed(balancer) if any(tunnel.probe for tunnel in balancer.tunnels) else ()
        for tunnel in balancer.tunnels:
            remotes = probed
            if not isinstance(probed, Unknown):
                remotes = tuple(remote for remote in probed if remote.name.startswith(f"{tunnel.name}/"))
            is_by_port = tunnel.paths.by is PathSelector.SOURCE_PORT
            has_source_ports = tunnel.source_ports is not None if is_by_port else None
            probe_port = None if tunnel.probe is None else tunnel.probe.port
            yield RequiredTunnel(tunnel.name, remotes if tunnel.probe else (), has_source_ports, probe_port)

    def _keys(self, balancer: Balancer) -> tuple[RequiredKey, ...]:
        if all(tunnel.ipsec is None for tunnel in balancer.switch_tunnels):
            return ()
        from xenoovs.cli.ipsec import required_keys

        return tuple(required_keys(balancer, self.endpoint))

    def _probed(self, balancer: Balancer) -> Fact[tuple[RemoteAnswers, ...]]:
        """Return the state of remotes from the agent of the bridge."""
        # Imported here: they import HTTP, and most configs have no tunnels.
        from xenoovs.agent.control.client import Client
        from xenoovs.agent.control.paths import agent_paths

        try:
            places = agent_paths(self.endpoint, env=os.environ, is_root=os.geteuid() == 0)
            path = places.running(balancer.uplinks.label)
            if path is None:
                return Unknown("no agent runs, which would probe the paths")
            found = Client(path).ask("paths")["remotes"]
        except XenoovsError as error:
            return Unknown(f"the agent does not say: {error}")
        keys = ("name", "problem", "tos", "tos_sent", "returned")
        return tuple(RemoteAnswers(*(each[key] for key in keys)) for each in found)

    def _backends(self, balancer: Balancer) -> tuple[RequiredBackend, ...]:
        served: dict[tuple[str, str, str], list[Service]] = {}
        for service in balancer.services:
            for backend in service.backends:
                served.setdefault((backend.name, *mac_and_port(backend.next_hop)), []).append(service)
        return tuple(
            RequiredBackend(
                *key,
                services=tuple(service.name for service in services),
                vips=tuple(dict.fromkeys(str(vip) for service in services for vip in service.claim.vips)),
                facts=_facts(self.lab, mac=key[1], egress=key[2]),
            )
            for key, services in served.items()
        )


def _ends(host: HostFacts, balancer: Balancer | None) -> tuple[TunnelEnd, ...]:
    """Return the tunnels of Open vSwitch: those of the config's bridge, else of all bridges."""
    if isinstance(host.database, Unknown):
        return ()
    remotes = {} if balancer is None else remotes_of(balancer)
    wanted = None if balancer is None else balancer.uplinks.bridge
    bridges = (bridge for bridge in host.database.bridges if wanted in (None, bridge.name))
    # Without its key a port does not show that it should be encrypted.
    encrypted = frozenset[str]() if balancer is None else balancer.ipsec_ports
    ends = (end for bridge in bridges for end in tunnel_ends(bridge, remotes))
    return tuple(replace(end, is_encrypted=end.is_encrypted or end.port in encrypted) for end in ends)


def _filters(host: HostFacts) -> Iterator[tuple[str, TcFilter]]:
    """Yield the rules of devices that have some of other programs."""
    for device in () if isinstance(host.devices, Unknown) else host.devices.values():
        if not isinstance(device.rules, Unknown):
            yield from ((device.name, one) for one in device.rules.filters)


def _facts(lab: LabTarget | None, *, mac: str, egress: str) -> Fact[BackendFacts]:
    if lab is None:
        return Unknown("the backend is not reachable from this host")
    namespace = lab.namespace_of(mac, egress)
    if namespace is None:
        return Unknown(f"lab {lab.name} has no machine with this MAC")
    return read_backend(Netns(Path("/run/netns") / namespace), "eth0")


def foreign_flows(balancer: Balancer, program: Program, foreign: Iterable[Flow]) -> ForeignFlows:
    """Return the foreign flows that our packets pass, and their cost. Flows of our own controller are not foreign."""
    floors: dict[int, int] = {}
    for flow in program.flows:
        cookie = decode_cookie(flow.cookie)
        if cookie is not None and cookie.service:
            floors[flow.table] = min(flow.priority, floors.get(flow.table, flow.priority))
    all_foreign = tuple(_as_varying(flow) for flow in foreign if is_foreign(flow.cookie))
    ports = (None, *balancer.uplinks.ingress)
    passed = tuple(
        flow
        for flow in all_foreign
        if flow.table in floors and flow.priority >= floors[flow.table] and flow.match.in_port in ports
    )
    cost = _cost(balancer, program, passed) if passed else NOT_READ
    is_unknown = bool(passed) and isinstance(cost, Unknown)
    varying = _varying(balancer, program, passed) if is_unknown else ()
    taken = _taken(balancer, program, passed) if is_unknown else ()
    return ForeignFlows(tuple(map(render_flow, passed)), len(all_foreign) - len(passed), cost, varying, taken)


def _as_varying(flow: Flow) -> Flow:
    """Return a flow whose condition on the type of service is not simulated: the sampled packets have only one."""
    tos = flow.match.get(Field.NW_TOS)
    if tos is None:
        return flow
    others = (condition for condition in flow.match.masked if condition is not tos)
    foreign = (*flow.match.foreign, f"nw_tos={tos.value}")
    return replace(flow, key=replace(flow.key, match=match_of(others, in_port=flow.match.in_port, foreign=foreign)))


def _varying(balancer: Balancer, program: Program, passed: tuple[Flow, ...]) -> tuple[str, ...]:
    """Return matched fields that are not simulated, of flows that our packets would meet without them."""
    found: dict[str, None] = {}
    for flow in passed:
        names = [condition.partition("=")[0] for condition in flow.match.foreign]
        if names and _VARYING.issuperset(names):
            without = replace(flow, key=replace(flow.key, match=replace(flow.match, foreign=())))
            cost = _cost(balancer, program, (without,))
            if not isinstance(cost, Unknown) and cost.overridden:
                found.update(dict.fromkeys(names))
    return tuple(found)


def _taken(balancer: Balancer, program: Program, passed: tuple[Flow, ...]) -> tuple[str, ...]:
    """Return the services of which these flows take every packet. Their actions may be ones that are not simulated."""
    dropping = (replace(flow, actions=()) for flow in passed if not flow.match.foreign)
    alone, beside = pipeline_of(program.flows), pipeline_of((*program.flows, *dropping))
    missed = dict[str, bool]()
    for service, packet in _samples(balancer):
        if not missed.get(service):
            missed[service] = alone.predict(packet)[1].copies == beside.predict(packet)[1].copies
    return tuple(service for service, is_missed in missed.items() if not is_missed)


def _cost(balancer: Balancer, program: Program, passed: tuple[Flow, ...]) -> Fact[ForeignCost]:
    try:
        alone, beside = pipeline_of(program.flows), pipeline_of((*program.flows, *passed))
        packets = tuple(sample_packets(balancer))
        ours = [alone.predict(packet) for packet in packets]
        theirs = [beside.predict(packet) for packet in packets]
    except SimulateError as error:
        return Unknown(str(error))
    overridden = sum(a.copies != b.copies for (_, a), (_, b) in zip(ours, theirs, strict=True))
    return ForeignCost(len(packets), len({a for a, _ in ours}), len({b for b, _ in theirs}), overridden)


def sample_packets(balancer: Balancer) -> Iterator[Packet]:
    """Yield packets of many clients to every service, the same ones each time."""
    return (packet for _, packet in _samples(balancer))


def _samples(balancer: Balancer) -> Iterator[tuple[str, Packet]]:
    """Yield these packets with the names of their services."""
    entries = [
        (port, service, family)
        for service in balancer.services
        for family in service.claim.served_families
        for port in balancer.uplinks.ingress
    ]
    each = max(1, MAX_PACKETS // max(1, len(entries)))
    for port, service, family in entries:
        for number in range(each):
            yield service.name, _packet(service, family, in_port=port, number=number)


def _packet(service: Service, family: Family, *, in_port: str, number: int) -> Packet:
    claim, spread = service.claim, number * _GOLDEN_RATIO & 0xFFFFFFFF
    vips = claim.vips_of(family)
    destination = vips[number % len(vips)] if vips else _address(family, 0xC6336401)
    protocol = claim.protocol.number(family) if claim.protocol else 6
    has_ports = claim.protocol is None or claim.protocol.has_ports
    sport, dport = (1024 + spread % 60000, claim.ports[0].first if claim.ports else 80) if has_ports else (8, 0)
    return Packet(in_port, _address(family, spread), destination, protocol, sport, dport)


def _address(family: Family, low: int) -> IPAddress:
    return IPv4Address(low) if family is Family.IPV4 else IPv6Address(0x20010DB8 << 96 | low)
