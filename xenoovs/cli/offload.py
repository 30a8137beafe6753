"""Checks where megaflows are forwarded, on a live switch or in a recorded dump."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from xenoovs.cli.recorded import open_dump, read_text
from xenoovs.compile.program import Program, compile_onto
from xenoovs.compile.read import is_block
from xenoovs.datapath.host import BridgeState
from xenoovs.datapath.megaflow import MAX_IDLE_S, Megaflow, match_of
from xenoovs.datapath.parse import Hints, scan_dump
from xenoovs.datapath.tc import TcFilter
from xenoovs.errors import SimulateError, SwitchError, counted
from xenoovs.model.balancer import Balancer
from xenoovs.openflow.flow import Field, ObservedFlow, is_foreign, is_ours
from xenoovs.openflow.text import parse_dump
from xenoovs.simulate.headers import Headers, slot_of
from xenoovs.simulate.megaflows import Pipeline, pipeline_of
from xenoovs.switch.appctl import detrace
from xenoovs.switch.management import ManagementSwitch
from xenoovs.switch.tc import dump_filters
from xenoovs.verify.bridge import BridgeFindings, BridgePorts, check_bridge
from xenoovs.verify.check import CheckContext, check_dump
from xenoovs.verify.expected import expected_services
from xenoovs.verify.findings import Anomaly, OffloadFindings
from xenoovs.verify.foreign import OwnMask, attribute
from xenoovs.verify.trace import parse_detrace
from xenoovs.verify.traffic import missing_flows

_TC_PORT = re.compile(r"in_port\(([^)]+)\).*, dp:tc")
_IN_PORT = re.compile(r"in_port\(([^)]+)\)")
_TRACED = (Anomaly.MISDELIVERED, Anomaly.UNWILDCARDED)

_TUNNEL_PREFIXES = {
    "vxlan": "vxlan_sys_",
    "geneve": "genev_sys_",
    "gre": "gre_sys",
    "erspan": "erspan_sys",
    "ip6gre": "ip6gre_sys",
    "bareudp": "bareudp_sys_",
    "gtpu": "gtpu_sys_",
    "srv6": "srv6_sys",
}
"""Type of a tunnel's interface -> what the name of its datapath port starts with (lib/netdev-vport.c)."""


_EXPIRED = (
    "no conclusion: the blocks had {packets}, but their megaflows have expired (max-idle {idle_s:g} s); send some "
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
        packets: Count of the flows of its blocks until now.
    """

    switch: ManagementSwitch
    bridge: str
    program: Program
    states: tuple[BridgeState, ...]
    remarks: tuple[str, ...] = ()
    packets: int = 0

    def check(self) -> DatapathCheck:
        """Check the megaflows of this moment. Raises SwitchError."""
        dump = self.switch.dump_megaflows()
        filters, remarks = _filters(dump)
        context = self._context(filters)
        hints = Hints()
        with uncollected():
            lines = hints.watch(lines_of_bridge(dump, self.bridge, self.states))
            findings = check_dump(expected_services(self.program), lines, context=context)
        if findings.unwildcardings or findings.overrides:
            # There may be many foreign flows, so they are read only if they can matter.
            foreign = tuple(seen.flow for seen in self.switch.dump_foreign_flows(self.bridge))
            findings = attribute(findings, foreign)
        remarks = (*self.remarks, *remarks, *self._settings(findings))
        remarks = (*remarks, *hints.reason_summary(), *hints.remarks(is_filtered=False))
        is_idle = self.packets and not any(block.megaflows for block in findings.blocks)
        expired = _EXPIRED.format(packets=counted(self.packets, "packet"), idle_s=context.max_idle_s) if is_idle else ""
        return DatapathCheck(findings, remarks, self._origins(findings, hints.cores), expired)

    def _context(self, filters: Mapping[str, TcFilter] | None) -> CheckContext:
        idle_ms = next((state.max_idle_ms for state in self.states if state.max_idle_ms), None)
        return CheckContext(
            filters=filters,
            own_mask=own_mask_of(self.program),
            internal_ports=internal_ports(self.states),
            max_idle_s=idle_ms / 1000 if idle_ms else MAX_IDLE_S,
        )

    def _settings(self, findings: OffloadFindings) -> Iterator[str]:
        if any(block.megaflows and block.verdict.badness > 1 for block in findings.blocks):
            state = next((state for state in self.states if state.name == self.bridge), None)
            if state is not None and not state.hw_offload:
                yield "other_config:hw-offload is not set in Open vSwitch, so it offloads nothing; see `xenoovs doctor`"

    def _origins(self, findings: OffloadFindings, cores: Iterable[int]) -> dict[str, tuple[str, ...]]:
        ufids = dict.fromkeys(found.ufid for found in findings.examples if found.ufid and found.anomaly in _TRACED)
        answers = detrace(self.switch.endpoint, ufids, cores=cores)
        return {ufid: tuple(map(str, parse_detrace(text))) for ufid, text in answers.items()}


def lines_of_bridge(dump: str, bridge: str, states: Iterable[BridgeState]) -> Iterator[str]:
    """Yield the lines of a dump without those of other bridges, which share the datapath."""
    others = {port.name for state in states if state.name != bridge for port in state.ports}
    for line in dump.splitlines():
        found = _IN_PORT.search(line)
        if found is None or found[1] not in others:
            yield line


def datapath_checker(balancer: Balancer, switch: ManagementSwitch) -> DatapathChecker:
    """Read the flows of the bridge and compile the config. Raises SwitchError, CompileError."""
    bridge = balancer.uplinks.bridge
    observed = switch.dump_flows(bridge)
    program = compile_onto(balancer, observed)
    packets = sum(seen.packets for seen in observed if is_block(seen.flow))
    return DatapathChecker(switch, bridge, program, switch.bridges(), missing_remarks(program, observed), packets)


def missing_remarks(program: Program, observed: Iterable[ObservedFlow]) -> tuple[str, ...]:
    """Return a remark if flows are missing on the bridge, as then traffic does not lead to the expected megaflows."""
    missing = missing_flows(program, observed)
    flows = counted(len(program.flows), "flow")
    return (f"{missing} of {flows} of the config are missing on the bridge; see `xenoovs plan`",) if missing else ()


def check_recorded_dump(balancer: Balancer, dump: Path, flows: Path | None) -> DatapathCheck:
    """Check a dump in a file, `-` for standard input.

    Args:
        balancer: The config.
        dump: The output of `dpctl/dump-flows -m`.
        flows: The output of `ovs-ofctl dump-flows`, which shows the blocks as they were.

    Raises:
        OSError, CompileError, ParseError for `flows`.
    """
    observed = read_flows(flows) if flows is not None else ()
    program = compile_onto(balancer, [seen for seen in observed if is_ours(seen.flow.cookie)])
    context = CheckContext(own_mask=own_mask_of(program))
    hints = Hints()
    with open_dump(dump) as lines, uncollected():
        joined = hints.watch(lines)
        findings = check_dump(expected_services(program), joined, context=context)
    foreign = tuple(seen.flow for seen in observed if is_foreign(seen.flow.cookie))
    findings = attribute(findings, foreign)
    findings = replace(findings, is_filtered=hints.all_offloaded and bool(findings.absent))
    remarks = missing_remarks(program, observed) if flows is not None else ()
    remarks = (*remarks, *hints.reason_summary(), *hints.remarks(is_filtered=findings.is_filtered))
    return DatapathCheck(findings, remarks)


def check_live_bridge(bridge: str, switch: ManagementSwitch) -> BridgeFindings:
    """Check all megaflows of any bridge. Raises SwitchError."""
    state, states = switch.describe(bridge), switch.bridges()
    kinds = {port.type for port in state.ports}
    prefixes = tuple(prefix for kind, prefix in _TUNNEL_PREFIXES.items() if kind in kinds)
    ports = BridgePorts(frozenset(port.name for port in state.ports), prefixes)
    dump = switch.dump_megaflows()
    hints = Hints()
    with uncollected():
        lines = hints.watch(dump.splitlines())
        findings = check_bridge(scan_dump(lines), ports=ports, internal_ports=internal_ports(states))
    return replace(findings, remarks=tuple(hints.remarks(is_filtered=False)))


def check_recorded_bridge(bridge: str, dump: Path) -> BridgeFindings:
    """Check all megaflows of a dump, which does not show which bridge has which port. Raises OSError."""
    hints = Hints()
    with open_dump(dump) as lines, uncollected():
        joined = hints.watch(lines)
        findings = check_bridge(scan_dump(joined), internal_ports=frozenset((bridge,)))
    remarks = tuple(hints.remarks(is_filtered=hints.all_offloaded))
    return replace(findings, is_filtered=hints.all_offloaded, remarks=remarks)


def own_mask_of(program: Program) -> OwnMask:
    """Return what predicts the mask of a megaflow without foreign flows, by simulation of its key."""
    built: list[Pipeline] = []

    def own_mask(megaflow: Megaflow) -> Mapping[str, int] | None:
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


def _filters(dump: str) -> tuple[dict[str, TcFilter] | None, tuple[str, ...]]:
    """Return the filters of traffic control by cookie, None if there cannot be any, and what could not be read."""
    devices = dict.fromkeys(found[1] for found in _TC_PORT.finditer(dump))
    if not devices:
        return None, ()
    try:
        found = dump_filters(devices)
    except SwitchError as error:
        return None, (f"traffic control was not read: {error}",)
    return found.by_cookie, tuple(f"traffic control of {device} was not read: {why}" for device, why in found.unread)
