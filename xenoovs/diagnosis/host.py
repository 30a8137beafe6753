"""Reads what the checks of `doctor` need, from the config, the switch, the lab and the agent, and runs their fixes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from xenoovs.compile.plan import hardware_entries
from xenoovs.compile.program import Program, compile_onto
from xenoovs.compile.tunnel_ports import tagged_tunnels, wanted_ports
from xenoovs.dataclass import dataclass, replace
from xenoovs.datapath.fact import Fact, Unknown, Unresponsive
from xenoovs.datapath.host import BackendFacts, HostFacts
from xenoovs.datapath.tunnel_facts import TunnelEnd, tunnel_ends
from xenoovs.errors import FileUnusable, ParseError, SwitchError, XenoovsError
from xenoovs.evidence.collector import Collector
from xenoovs.evidence.command_target import CommandTarget
from xenoovs.evidence.evidence import Evidence
from xenoovs.judge.doctor.check import (
    UNDO_LEFTOVERS,
    WRITE_KEYS,
    CheckResult,
    DoctorCase,
    Fix,
    RemoteAnswers,
    RequiredBackend,
    RequiredKey,
    RequiredTunnel,
    Requirements,
)
from xenoovs.judge.doctor.examine import BACKEND_CHECKS, HOST_CHECKS, examine
from xenoovs.judge.doctor.nic import TC_MODULES
from xenoovs.model.balancer import Balancer, Service
from xenoovs.model.next_hop import mac_and_port
from xenoovs.model.tunnel import PathSelector
from xenoovs.switch.devices import read_backend
from xenoovs.switch.endpoint import Endpoint
from xenoovs.switch.host_facts import gather
from xenoovs.switch.management import ManagementSwitch
from xenoovs.switch.netns import Netns, run_changes
from xenoovs.switch.tape import is_replaying
from xenoovs.switch.vswitchd import place_of

if TYPE_CHECKING:
    from xenoovs.judge.doctor.foreign_flows import ForeignFlows
    from xenoovs.judge.findings import PreemptingRule
    from xenoovs.switch.planned_restart import PlannedRestart
    from xenoovs.terminal.defaults import LabTarget

_STATE_DIRECTORY = Path("/run/xenoovs")


@dataclass(frozen=True, slots=True)
class Question:
    """The options of doctor. Without a config (`balancer`), every bridge is checked."""

    balancer: Balancer | None
    switch: ManagementSwitch
    lab: LabTarget | None
    target: CommandTarget
    backends: bool

    @property
    def endpoint(self) -> Endpoint:
        return self.switch.endpoint

    def examine(self) -> tuple[CheckResult, ...]:
        """Return the results of all checks."""
        more = BACKEND_CHECKS if self.backends else ()
        return examine(self.read(), checks=(*HOST_CHECKS, *more))

    def run_fixes(self, fixes: Iterable[Fix]) -> list[dict[str, str | None]]:
        """Run each fix, also after one that fails. Returns `fix` and `error` of each."""
        from xenoovs.diagnosis.ipsec import write_keys
        from xenoovs.evidence.collector import finish_leftovers

        place = place_of(self.endpoint)
        done: list[dict[str, str | None]] = []
        for fix in fixes:
            error = None
            try:
                if fix.commands == (UNDO_LEFTOVERS,):
                    finish_leftovers(self.endpoint)
                elif fix.commands == (WRITE_KEYS,) and self.balancer is not None:
                    write_keys(self.balancer, self.endpoint)
                else:
                    run_changes(fix.commands, endpoint=self.endpoint, place=place)
            except (SwitchError, FileUnusable) as failed:
                error = str(failed)
            done.append({"fix": fix.command(self.target), "error": error})
        return done

    def restart_order(self) -> Callable[[], None]:
        """Return the function that restarts this Open vSwitch. Raises SwitchError if only its owner can restart it."""
        from xenoovs.switch.planned_restart import check_is_service, restart_service

        if self.lab is not None:
            return self.lab.restart_vswitchd
        check_is_service(self.endpoint)
        return restart_service

    def restart(self, order: Callable[[], None]) -> PlannedRestart:
        """Restart Open vSwitch by an order, and put its flows back. Raises SwitchError."""
        from xenoovs.switch.planned_restart import planned_restart

        # The flows are saved there until they are back on their bridges.
        directory = self.lab.directory if self.lab is not None else _STATE_DIRECTORY
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return planned_restart(self.switch, self.endpoint, order, directory=directory)

    def read(self) -> DoctorCase:
        collector = Collector(self.switch, target=self.target)
        host = gather(self.endpoint, modules=TC_MODULES)
        if self.balancer is not None and self.balancer.announce is not None:
            from xenoovs.switch.vip_routes import read_bgp

            host = replace(host, bgp=read_bgp(self.balancer.announced_vips))
        if self.balancer is None:
            return DoctorCase(Evidence(collector.tunnels(host, _ends(host, None)), collector.lines(host)), None)
        program, foreign = self._on_bridge(self.balancer, host)
        host = collector.tunnels(host, _ends(host, program.balancer))
        case = DoctorCase(Evidence(host, collector.lines(host), target=self.target))
        return replace(case, required=self._wanted(program, foreign, host))

    def _on_bridge(self, balancer: Balancer, host: HostFacts) -> tuple[Program, Fact[ForeignFlows]]:
        """Return the program of the config with the drains of its bridge, and the foreign flows there."""
        bridge = balancer.uplinks.bridge
        try:
            if isinstance(host.daemon, Unresponsive):
                raise SwitchError(host.daemon.reason)
            program = compile_onto(balancer, self.switch.dump_flows(bridge))
            others = self.switch.dump_foreign_flows(bridge)
            version = None if isinstance(host.daemon, Unknown) else host.daemon.version
            # Imported here, as below: without Open vSwitch no flow is simulated and no rule compared.
            from xenoovs.judge.doctor.foreign_flows import foreign_flows

            flows = (seen.flow for seen in others)
            return program, foreign_flows(balancer, program, flows, version=version)
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
            preempting=_preempting(program, host),
            tunnels=tuple(self._tunnels(balancer)),
            keys=self._keys(balancer),
            tunnel_ports=wanted_ports(balancer),
            tagged=tagged_tunnels(balancer),
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
        # A record has no files with keys: they are on the host itself.
        if is_replaying() or all(tunnel.ipsec is None for tunnel in balancer.switch_tunnels):
            return ()
        from xenoovs.diagnosis.ipsec import required_keys

        return tuple(required_keys(balancer, self.endpoint))

    def _probed(self, balancer: Balancer) -> Fact[tuple[RemoteAnswers, ...]]:
        """Return the state of remotes from the agent of the bridge."""
        # Imported here: they import HTTP, and most configs have no tunnels.
        from xenoovs.agent.control.client import Client
        from xenoovs.terminal.reach import find_places

        if is_replaying():
            return Unknown("a record has no answers of the agent")
        try:
            path = find_places(self.endpoint).running(balancer.uplinks.label)
            if path is None:
                return Unknown("no agent runs, which would probe the paths")
            found = Client(path).ask("paths")["remotes"]
        except XenoovsError as error:
            return Unknown(f"the state of the remotes is unknown: {error}")
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
                vips=tuple(dict.fromkeys(str(vip) for service in services for vip in service.claim.vips)),
                facts=_facts(self.lab, mac=key[1], egress=key[2]),
            )
            for key, services in served.items()
        )


def _ends(host: HostFacts, balancer: Balancer | None) -> tuple[TunnelEnd, ...]:
    """Return the tunnels of Open vSwitch: those of the config's bridge, or without a config of all bridges."""
    if isinstance(host.database, Unknown):
        return ()
    remotes = {} if balancer is None else remotes_of(balancer)
    wanted = None if balancer is None else balancer.uplinks.bridge
    bridges = (bridge for bridge in host.database.bridges if wanted in (None, bridge.name))
    # Without its key a port does not show that it should be encrypted.
    encrypted = frozenset[str]() if balancer is None else balancer.ipsec_ports
    ends = (end for bridge in bridges for end in tunnel_ends(bridge, remotes))
    return tuple(replace(end, is_encrypted=end.is_encrypted or end.port in encrypted) for end in ends)


def _preempting(program: Program, host: HostFacts) -> tuple[PreemptingRule, ...]:
    """Return the rules of other programs that match packets of services before Open vSwitch's rules do."""
    devices = () if isinstance(host.devices, Unknown) else host.devices.values()
    rules = ((device.name, device.rules) for device in devices if not isinstance(device.rules, Unknown))
    filters = [(name, one) for name, found in rules for one in found.filters]
    if not filters:
        return ()
    from xenoovs.judge.expected import expected_services
    from xenoovs.judge.foreign import preempting_rules

    return preempting_rules(expected_services(program), filters)


def _facts(lab: LabTarget | None, *, mac: str, egress: str) -> Fact[BackendFacts]:
    if lab is None:
        return Unknown("the backend is not reachable from this host")
    namespace = lab.namespace_of(mac, egress)
    if namespace is None:
        return Unknown(f"lab {lab.name} has no machine with this MAC")
    return read_backend(Netns(Path("/run/netns") / namespace), "eth0")


def remotes_of(balancer: Balancer) -> dict[str, tuple[str, ...]]:
    """Return the tunnel ports of backends, with the remotes behind them."""
    found: dict[str, dict[str, None]] = {}
    for end in balancer.remote_ends:
        found.setdefault(end.port, {})[str(end.remote)] = None
    return {port: tuple(remotes) for port, remotes in found.items()}
