"""Checks where megaflows are forwarded, on a live switch or in a recorded dump."""

from __future__ import annotations

import gc
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from socket import if_nameindex
from typing import TYPE_CHECKING

from xenoovs.cli.recorded import open_dump, read_text
from xenoovs.compile.program import Program, compile_onto
from xenoovs.compile.read import is_block
from xenoovs.compile.tunnel_ports import encapsulation_to
from xenoovs.datapath.database import BridgeState
from xenoovs.datapath.fact import Unknown
from xenoovs.datapath.ipsec import Cleartext, EncapsulationUse, cleartext, uncovered
from xenoovs.datapath.megaflow import MAX_IDLE_S, Megaflow, match_of
from xenoovs.datapath.outer import Encapsulation
from xenoovs.datapath.parse import Hints, scan_dump
from xenoovs.datapath.tc import TcFilter
from xenoovs.datapath.tunnel import TUNNEL_DEVICES, tunnel_ports
from xenoovs.display import span
from xenoovs.errors import ParseError, SimulateError, SwitchError, counted
from xenoovs.model.balancer import Balancer
from xenoovs.model.switch_tunnel import RemoteEnd, remote_end_of
from xenoovs.openflow.flow import Field, ObservedFlow, is_foreign, is_ours
from xenoovs.openflow.text import parse_dump
from xenoovs.switch.management import ManagementSwitch
from xenoovs.verify.check import BridgePorts, CheckContext, check_dump
from xenoovs.verify.commands import THIS_HOST, CommandTarget
from xenoovs.verify.expected import ExpectedService, expected_services
from xenoovs.verify.findings import Anomaly, OffloadFindings
from xenoovs.verify.foreign import OwnMask, attribute
from xenoovs.verify.samples import DatapathSample, PortFinding, check_ports, sample_of
from xenoovs.verify.traffic import missing_flows

if TYPE_CHECKING:
    from xenoovs.simulate.megaflows import Pipeline
    from xenoovs.switch.tc import FilterDump
    from xenoovs.verify.bridge import BridgeFindings
    from xenoovs.verify.why.diagnose import Selection

_TC_PORT = re.compile(r"in_port\(([^)]+)\).*, dp:tc")
_IN_PORT = re.compile(r"in_port\(([^)]+)\)")
_BRIDGE_NAME = re.compile(r"(?:ovs)?br(?:[0-9]+|[-_].+)?", re.ASCII)
_TRACED = (Anomaly.MISDELIVERED, Anomaly.DROPPED, Anomaly.UNWILDCARDED)

_NOT_SET = "other_config:hw-offload is not true in Open vSwitch, so it offloads nothing; see `xenoovs doctor`"
_EXPIRED = (
    "no conclusion: the blocks had {packets}, but their megaflows have expired (max-idle {idle}); send some "
    "traffic and run this again"
)


@dataclass(frozen=True, slots=True)
class DatapathCheck:
    """The result of one check.

    Attributes:
        remarks: What could not be read, and what explains the findings.
        origins: The flows behind anomalous megaflows, by ufid.
        expired: Why there is no megaflow although the flows counted packets; empty: they counted none.
    """

    findings: OffloadFindings
    remarks: tuple[str, ...] = ()
    origins: Mapping[str, tuple[str, ...]] | None = None
    expired: str = ""


@dataclass(frozen=True, slots=True)
class DatapathChecker:
    """Checks one bridge repeatedly.

    Attributes:
        remarks: On the flows of the bridge.
        is_listing: Whether the findings list every megaflow.
    """

    switch: ManagementSwitch
    bridge: str
    program: Program
    states: tuple[BridgeState, ...]
    sampler: DatapathSampler
    remarks: tuple[str, ...] = ()
    is_listing: bool = False

    def check(self) -> DatapathCheck:
        """Check the megaflows of this moment. Raises SwitchError."""
        services = expected_services(self.program)
        reading = self.sampler.read(
            lambda dump: lines_of_bridge(dump, self.bridge, self.states), self._ingress(services), self._max_idle_s
        )
        context = self._context(reading)
        hints = Hints()
        with uncollected():
            findings = check_dump(services, hints.watch(reading.lines), context=context)
        if reading.dumped is not None:
            from xenoovs.verify.preempted import preempting_rules

            findings = replace(findings, preempting=preempting_rules(services, reading.dumped.by_device))
        if findings.unwildcardings or findings.overrides:
            # There may be many foreign flows, so they are read only if they can matter.
            foreign = tuple(seen.flow for seen in self.switch.dump_foreign_flows(self.bridge))
            findings = attribute(findings, foreign)
        balancer = self.program.balancer
        encrypted = tuple(end for end in balancer.remote_ends if end.tunnel.ipsec is not None)
        clear, unread = read_cleartext(self.switch, findings.tunnels, wanted_encryption(encrypted, findings))
        findings = replace(findings, cleartext=clear, cpu_ports=balancer.cpu_encrypted_ports)
        remarks = (*self.remarks, *reading.remarks, *unread, *self._settings(findings))
        remarks = (*remarks, *hints.reason_summary(), *hints.remarks(is_filtered=False))
        remarks = (*remarks, *growth_remarks(findings, reading))
        expired = "" if any(block.megaflows for block in findings.blocks) else self._expired(context.max_idle_s)
        return DatapathCheck(findings, remarks, self._origins(findings, hints.cores), expired)

    def _ingress(self, services: Iterable[ExpectedService]) -> frozenset[str]:
        """Return the ingress ports that may have rules of traffic control, which concern the kernel's datapath."""
        state = next((state for state in self.states if state.name == self.bridge), None)
        if state is None or state.datapath_type != "system":
            return frozenset()
        return frozenset(entry.in_port for each in services for entry in each.entries if entry.in_port is not None)

    @property
    def _max_idle_s(self) -> float:
        return max_idle_of(self.states)

    def _expired(self, max_idle_s: float) -> str:
        """Return why no block has a megaflow although its flow has counted packets; empty if none has."""
        observed = self.switch.dump_flows(self.bridge)
        packets = sum(seen.packets for seen in observed if is_block(seen.flow))
        return _EXPIRED.format(packets=counted(packets, "packet"), idle=span(max_idle_s)) if packets else ""

    def _context(self, reading: Reading) -> CheckContext:
        return CheckContext(
            filters=reading.filters,
            own_mask=own_mask_of(self.program),
            internal_ports=internal_ports(self.states),
            max_idle_s=self._max_idle_s,
            ports=next((ports_of(state, self.states) for state in self.states if state.name == self.bridge), None),
            is_listing=self.is_listing,
            before=reading.before,
            port_checks=reading.port_checks,
        )

    def _settings(self, findings: OffloadFindings) -> Iterator[str]:
        if any(each.megaflows and each.verdict.badness > 1 for each in findings.judged):
            state = next((state for state in self.states if state.name == self.bridge), None)
            if state is not None and not state.hw_offload:
                yield _NOT_SET

    def _origins(self, findings: OffloadFindings, cores: Iterable[int]) -> dict[str, tuple[str, ...]]:
        ufids = dict.fromkeys(found.ufid for found in findings.examples if found.ufid and found.anomaly in _TRACED)
        if not ufids:
            return {}
        from xenoovs.switch.appctl import detrace
        from xenoovs.verify.trace import parse_detrace

        answers = detrace(self.switch.endpoint, ufids, cores=cores)
        return {ufid: tuple(map(str, parse_detrace(text))) for ufid, text in answers.items()}


def max_idle_of(states: Iterable[BridgeState]) -> float:
    """Return how long a megaflow stays after its last packet, in seconds."""
    idle_ms = next((state.max_idle_ms for state in states if state.max_idle_ms), None)
    return idle_ms / 1000 if idle_ms else MAX_IDLE_S


def lines_of_bridge(dump: str, bridge: str, states: Iterable[BridgeState]) -> Iterator[str]:
    """Yield the lines of a dump without those of other bridges, which share the datapath."""
    others = {port.name for state in states if state.name != bridge for port in state.ports}
    for line in dump.splitlines():
        found = _IN_PORT.search(line)
        if found is None or found[1] not in others:
            yield line


def datapath_checker(
    balancer: Balancer,
    switch: ManagementSwitch,
    sampler: DatapathSampler | None = None,
    *,
    is_listing: bool = False,
    target: CommandTarget = THIS_HOST,
) -> DatapathChecker:
    """Read the flows of the bridge and compile the config. Raises SwitchError, CompileError."""
    sampler = sampler or DatapathSampler(switch)
    bridge = balancer.uplinks.bridge
    observed = switch.dump_flows(bridge)
    program = compile_onto(balancer, observed)
    remarks = missing_remarks(program, observed, target)
    return DatapathChecker(switch, bridge, program, switch.bridges(), sampler, remarks, is_listing)


def missing_remarks(program: Program, observed: Iterable[ObservedFlow], target: CommandTarget) -> tuple[str, ...]:
    """Return a remark if flows are missing on the bridge, as then traffic does not lead to the expected megaflows."""
    missing = missing_flows(program, observed)
    flows = counted(len(program.flows), "flow")
    remark = f"{missing} of {flows} of the config are missing on the bridge; see `xenoovs plan`"
    return (target.message(remark, ("xenoovs plan",)),) if missing else ()


def check_recorded_dump(
    balancer: Balancer, dump: Path, flows: Path | None, *, is_listing: bool = False
) -> DatapathCheck:
    """Check a dump in a file, `-` for standard input.

    Args:
        dump: The output of `dpctl/dump-flows -m`.
        flows: The output of `ovs-ofctl dump-flows`, which shows the blocks as they were.
        is_listing: Whether the findings list every megaflow.

    Raises:
        OSError, CompileError, ParseError for `flows`.
    """
    observed = read_flows(flows) if flows is not None else ()
    program = compile_onto(balancer, [seen for seen in observed if is_ours(seen.flow.cookie)])
    balancer = program.balancer
    ports = BridgePorts(frozenset(balancer.ports))
    # A dump does not show for how long its host keeps megaflows, so none is judged by its age.
    context = CheckContext(
        own_mask=own_mask_of(program), ports=ports, is_listing=is_listing, max_idle_s=inf, is_recorded=True
    )
    hints = Hints()
    with open_dump(dump) as lines, uncollected():
        findings = check_dump(expected_services(program), hints.watch(lines), context=context)
    foreign = tuple(seen.flow for seen in observed if is_foreign(seen.flow.cookie))
    findings = attribute(findings, foreign)
    is_filtered = hints.all_offloaded and bool(findings.absent) and not lines.is_complete
    findings = replace(findings, is_filtered=is_filtered, cpu_ports=balancer.cpu_encrypted_ports)
    remarks = missing_remarks(program, observed, THIS_HOST) if flows is not None else ()
    remarks = (*remarks, *lines.remarks(), *hints.reason_summary(), *hints.remarks(is_filtered=findings.is_filtered))
    remarks = (*remarks, *_recorded_remarks(hints))
    return DatapathCheck(findings, remarks)


def check_live_bridge(
    bridge: str,
    switch: ManagementSwitch,
    sampler: DatapathSampler,
    *,
    is_listing: bool = False,
    is_naming_flows: bool = False,
) -> BridgeFindings:
    """Check all megaflows of any bridge.

    Args:
        switch: Where it is.
        sampler: Reads the megaflows.
        is_listing: Whether the findings list every megaflow.
        is_naming_flows: Whether they name the flows behind the listed megaflows, also in OVN's database.

    Raises:
        SwitchError
    """
    from xenoovs.switch.vswitchd import read_version
    from xenoovs.verify.bridge import check_bridge
    from xenoovs.verify.why.flows import version_or_default

    state, states = switch.describe(bridge), switch.bridges()
    max_idle_s = max_idle_of(states)
    reading = sampler.read(lambda dump: lines_of_bridge(dump, bridge, states), max_idle_s=max_idle_s)
    hints = Hints()
    is_of_kernel = switch.endpoint.rundir is not None and state.datapath_type == "system"
    context = CheckContext(
        filters=reading.filters,
        internal_ports=internal_ports(states),
        max_idle_s=max_idle_s,
        ports=ports_of(state, states),
        before=reading.before,
        is_listing=is_listing,
        port_checks=reading.port_checks,
        version=version_or_default(read_version(switch.endpoint) or ""),
        has_tc_chains=_has_tc_chains(switch) if is_of_kernel else None,
    )
    with uncollected():
        findings = check_bridge(scan_dump(hints.watch(reading.lines)), context)
    clear, unread = read_cleartext(switch, findings.tunnels)
    findings = replace(findings, cleartext=clear)
    remarks = (*reading.remarks, *unread, *hints.remarks(is_filtered=False), *growth_remarks(findings, reading))
    if not state.hw_offload and any(row.is_judged and row.verdict.is_software for row in findings.rows):
        remarks = (*remarks, _NOT_SET)
    logical = {port.name: port.iface_id for port in state.ports if port.iface_id}
    if is_naming_flows:
        from xenoovs.cli.link_flows import name_flows

        named = name_flows(findings.links, state, switch.endpoint)
        remarks = (*remarks, *named.remarks)
        findings = replace(findings, links=named.links, logical_flows=named.logical)
    return replace(findings, remarks=remarks, logical_ports=logical)


def wanted_encryption(ends: Iterable[RemoteEnd], findings: OffloadFindings) -> tuple[EncapsulationUse, ...]:
    """Return what leaves for these ends of tunnels, with the megaflows of blocks in the NIC and in software."""
    uses: dict[Encapsulation, EncapsulationUse] = {}
    for end in ends:
        blocks = [
            each for each in findings.blocks if any(remote_end_of(hop, (end.tunnel,)) == end for hop in each.block.hops)
        ]
        outer = encapsulation_to(end)
        before = uses.get(outer, EncapsulationUse(outer, 0, 0))
        uses[outer] = replace(
            before,
            megaflows=before.megaflows + sum(each.megaflows for each in blocks),
            packets=before.packets + sum(each.packets for each in blocks),
        )
    return tuple(uses.values())


def read_cleartext(
    switch: ManagementSwitch, uses: Sequence[EncapsulationUse], wanted: Sequence[EncapsulationUse] = ()
) -> tuple[tuple[Cleartext, ...], tuple[str, ...]]:
    """Return the tunnels that leave unencrypted against a policy of IPsec or the config, and why that is not known.

    Args:
        uses: Tunnels whose packets leave past the kernel's IPsec.
        wanted: Tunnels that the config wants encrypted.
    """
    if not (uses or wanted):
        return (), ()
    from xenoovs.switch.vswitchd import netns_of
    from xenoovs.switch.xfrm import read_ipsec

    place = netns_of(switch.endpoint)
    state = place if isinstance(place, Unknown) else read_ipsec(place, (use.encapsulation for use in (*uses, *wanted)))
    if isinstance(state, Unknown):
        return (), (f"whether tunnels should leave encrypted is not known: {state.reason}",)
    return (*uncovered(wanted, state), *cleartext(uses, state)), ()


def _has_tc_chains(switch: ManagementSwitch) -> bool | None:
    """Return whether the kernel can offload chains, by its config, else by the log of ovs-vswitchd; None: unknown."""
    from xenoovs.switch.kernel_config import read_tc_chains
    from xenoovs.switch.vswitchd import find_process, read_log
    from xenoovs.verify.why.log import refuses_chains

    found = read_tc_chains()
    if not isinstance(found, Unknown):
        return found
    process = find_process(switch.endpoint)
    return False if process is not None and refuses_chains(read_log(process)) else None


def check_recorded_bridge(bridge: str | None, dump: Path, *, is_listing: bool = False) -> BridgeFindings:
    """Check all megaflows of a dump, which does not show which bridge has which port. Raises OSError.

    Args:
        bridge: Its name, whose packets are for the host itself; None: every port that is named like a bridge.
        dump: The output of `dpctl/dump-flows -m`, `-` for standard input.
        is_listing: Whether the findings list every megaflow.
    """
    from xenoovs.verify.bridge import check_bridge

    hints = Hints()
    inferred = NamedBridges()
    bridges: Set[str] = inferred if bridge is None else frozenset((bridge,))
    with open_dump(dump) as lines, uncollected():
        context = CheckContext(internal_ports=bridges, is_listing=is_listing, is_recorded=True)
        findings = check_bridge(scan_dump(hints.watch(lines)), context)
    is_filtered = hints.all_offloaded and not lines.is_complete
    remarks = (*lines.remarks(), *hints.remarks(is_filtered=is_filtered), *_recorded_remarks(hints))
    if findings.unjudged:
        hidden = counted(findings.unjudged, "megaflow")
        remarks = (*remarks, f"{hidden} more in the dump: without -m it does not say where they run")
    if inferred.seen:
        names = ", ".join(sorted(inferred.seen))
        remarks = (*remarks, f"{names}: taken for the bridge by its name; if it is none, add --bridge NAME")
    return replace(findings, is_filtered=is_filtered, remarks=remarks)


class NamedBridges(Set[str]):
    """Every port with the name of a bridge, such as br0, br-int or ovsbr1; `seen`: those that were looked up."""

    def __init__(self) -> None:
        self.seen = set[str]()

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str) or not _BRIDGE_NAME.fullmatch(name):
            return False
        self.seen.add(name)
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(self.seen)

    def __len__(self) -> int:
        return len(self.seen)


def ports_of(state: BridgeState, states: Iterable[BridgeState]) -> BridgePorts:
    """Return the ports of a bridge, with the tunnel ports of all bridges."""
    kinds = {port.type for port in state.ports}
    prefixes = tuple(prefix for kind, prefix in TUNNEL_DEVICES.items() if kind in kinds)
    return BridgePorts(frozenset(port.name for port in state.ports), prefixes, tunnel_ports(states), state.name)


def own_mask_of(program: Program) -> OwnMask:
    """Return what predicts the mask of a megaflow without foreign flows, by simulation of its key."""
    built: list[Pipeline] = []

    def own_mask(megaflow: Megaflow) -> Mapping[str, int] | None:
        # Imported here: only megaflows that are narrower than planned need it.
        from xenoovs.simulate.headers import Headers, slot_of
        from xenoovs.simulate.megaflows import pipeline_of

        if not built:
            built.append(pipeline_of(program.flows))
        fields = match_of(megaflow)
        values = {slot_of(field): found.value for field in Field if (found := fields.get(field.ovs_name))}
        try:
            predicted, _ = built[0].predict(Headers(megaflow.in_port or "", values))
        except SimulateError:
            return None
        return {masked.field.ovs_name: masked.mask for masked in predicted.match}

    return own_mask


def internal_ports(states: Iterable[BridgeState]) -> frozenset[str]:
    """Return bridges and ports of type internal: their packets are for the host itself, so no NIC forwards them."""
    return frozenset(port.name for state in states for port in state.ports if port.type == "internal")


@contextmanager
def uncollected() -> Iterator[None]:
    """Disable the garbage collector: a large dump makes many values without cycles, and the search takes long."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def read_flows(path: Path) -> tuple[ObservedFlow, ...]:
    """Return the flows of a recorded dump. Raises OSError, ParseError, FileUnusable."""
    return tuple(parse_dump(read_text(path)))


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading of the datapath, and what it is compared with.

    Attributes:
        dumped: Filters of traffic control; None: there cannot be any, or they could not be read.
        before: An earlier sample; None: there is none, or nothing is in hardware by traffic control.
        port_checks: The packets that ports gave to the CPU since then.
    """

    lines: Sequence[str]
    dumped: FilterDump | None = None
    remarks: tuple[str, ...] = ()
    before: DatapathSample | None = None
    port_checks: tuple[PortFinding, ...] = ()

    @property
    def filters(self) -> Mapping[str, TcFilter] | None:
        """The filters by cookie."""
        return None if self.dumped is None else self.dumped.by_cookie


_IN_TC_HARDWARE = re.compile(r"in_port\(([^)]+)\).*, offloaded:yes, dp:tc")


class DatapathSampler:
    """Reads the datapath, twice where the NIC holds rules: growth shows whether it forwards by them."""

    def __init__(self, switch: ManagementSwitch, *, interval_s: float = 0.0) -> None:
        """`interval_s`: between the two samples of the first reading; 0: compare with earlier readings alone."""
        self._switch, self.interval_s = switch, interval_s
        self._last: DatapathSample | None = None

    def read(
        self,
        lines_of: Callable[[str], Iterable[str]],
        ingress: Set[str] = frozenset(),
        max_idle_s: float = MAX_IDLE_S,
    ) -> Reading:
        """Read the datapath. Raises SwitchError.

        Args:
            lines_of: Returns the lines of a dump that matter.
            ingress: Ports whose filters are read in any case.
            max_idle_s: How long a megaflow stays after its last packet.
        """
        reading, sample = self._read(lines_of, ingress, max_idle_s)
        before, self._last = self._last, sample
        if sample is None:
            return reading
        if before is None and self.interval_s:
            time.sleep(self.interval_s)
            before = sample
            reading, self._last = self._read(lines_of, ingress, max_idle_s)
        if before is None or self._last is None:
            return reading
        return replace(reading, before=before, port_checks=check_ports(before, self._last))

    def _read(
        self, lines_of: Callable[[str], Iterable[str]], ingress: Set[str], max_idle_s: float
    ) -> tuple[Reading, DatapathSample | None]:
        from xenoovs.switch.port_counters import read_port_packets

        ports_before = read_port_packets(self._last.ports_after if self._last else ())
        lines = tuple(lines_of(self._switch.dump_megaflows()))
        dumped, remarks = _filters(lines, ingress)
        reading = Reading(lines, dumped, remarks)
        ports = dict.fromkeys(found[1] for line in lines if (found := _IN_TC_HARDWARE.search(line)))
        if not ports or dumped is None:
            return reading, None
        with uncollected():
            readable = (each for each in scan_dump(lines) if not isinstance(each, ParseError))
            megaflows = sample_of(readable, reading.filters, max_idle_s=max_idle_s)
        return reading, DatapathSample(megaflows, ports_before, read_port_packets(ports))


def growth_remarks(findings: OffloadFindings | BridgeFindings | Selection, reading: Reading) -> Iterator[str]:
    """Yield what the samples leave unproven."""
    if not any(_IN_TC_HARDWARE.search(line) for line in reading.lines):
        return
    if reading.before is None:
        yield (
            "one sample was made, which shows what the NIC holds, not whether it still forwards by it; "
            "compare two with --interval 2s while traffic flows"
        )
    elif not findings.growth.packets:
        yield (
            "no counter grew between the two samples: no packet came, or the NIC refreshes its counters more rarely "
            "(try --interval 30s); verdicts rely on the counters since each rule was installed"
        )
    if findings.uncounted:
        megaflows = counted(findings.uncounted, "megaflow")
        yield f"this kernel or iproute2 does not show what the NIC counts; {megaflows} cannot be confirmed"
    silent = [port for port in findings.ports if port.silence]
    yield from map(str, silent[:_MAX_SILENT])
    if len(silent) > _MAX_SILENT:
        yield f"so do those of {counted(len(silent) - _MAX_SILENT, 'more port')}"


def _recorded_remarks(hints: Hints) -> Iterator[str]:
    """Yield what a recorded dump leaves unproven."""
    if hints.offloaded > hints.dummies:
        yield recorded_remark("verify-offload")


def recorded_remark(command: str) -> str:
    """Return what a recorded dump of rules in hardware leaves unproven. `command`: proves it, on the host."""
    return (
        f"a recorded dump shows what the NIC holds, not whether it forwards by it; `xenoovs {command}` on the host "
        "compares two samples"
    )


_MAX_SILENT = 3


def _filters(lines: Sequence[str], ingress: Set[str]) -> tuple[FilterDump | None, tuple[str, ...]]:
    """Return the filters of traffic control, None if there cannot be any, and what could not be read.

    Args:
        lines: all megaflows.
        ingress: ports whose filters are read too, if they are devices here: another program may have some there.
    """
    devices = dict.fromkeys(found[1] for line in lines if (found := _TC_PORT.search(line)))
    devices |= dict.fromkeys(name for _, name in if_nameindex() if name in ingress)
    if not devices:
        return None, ()
    from xenoovs.switch.tc import dump_filters

    try:
        dumped = dump_filters(devices)
    except SwitchError as error:
        return None, (f"traffic control was not read: {error}",)
    return dumped, tuple(f"traffic control of {device} was not read: {why}" for device, why in dumped.unread)
