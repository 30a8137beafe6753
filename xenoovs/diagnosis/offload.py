"""Checks where megaflows are forwarded, on a live switch or in a recorded dump."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING

from xenoovs.compile.program import Program, compile_onto
from xenoovs.compile.read import is_block
from xenoovs.compile.tunnel_ports import encapsulation_to
from xenoovs.dataclass import dataclass, replace, uncollected
from xenoovs.datapath.database import BridgeState
from xenoovs.datapath.fact import Unknown
from xenoovs.datapath.ipsec import Cleartext, EncapsulationUse, cleartext, uncovered
from xenoovs.datapath.megaflow import Megaflow, match_of, output_ports
from xenoovs.datapath.outer import Encapsulation
from xenoovs.datapath.parse import Hints, scan_dump
from xenoovs.display import span
from xenoovs.errors import CommandFailed, ParseError, SimulateError, SwitchError, counted
from xenoovs.evidence.collector import Collector, has_held_rules
from xenoovs.evidence.command_target import THIS_HOST, CommandTarget
from xenoovs.evidence.dump_file import NamedBridges, open_dump, read_flows, recorded_evidence
from xenoovs.evidence.evidence import BridgePorts, Evidence
from xenoovs.judge.expected import expected_services
from xenoovs.judge.findings import Anomaly, OffloadFindings
from xenoovs.judge.foreign import OwnMask, attribute
from xenoovs.judge.offload import check_dump
from xenoovs.model.balancer import Balancer
from xenoovs.model.tunnel import RemoteEnd, remote_end_of
from xenoovs.openflow.flow import Field, ObservedFlow, is_foreign, is_ours
from xenoovs.regex import ASCII, regex

if TYPE_CHECKING:
    from xenoovs.judge.bridge import BridgeFindings
    from xenoovs.judge.simulate.megaflows import Pipeline
    from xenoovs.judge.why.diagnose import Selection

_TRACED = (Anomaly.MISDELIVERED, Anomaly.DROPPED, Anomaly.UNWILDCARDED)

_NOT_SET = "other_config:hw-offload is not true in Open vSwitch, so it offloads nothing; see `xenoovs doctor`"
_EXPIRED = (
    "no conclusion: the blocks had {packets}, but their megaflows have expired (max-idle {idle}); send some "
    "traffic and run this again"
)


@dataclass(frozen=True, slots=True)
class BlockChecker:
    """Checks the blocks of one bridge repeatedly. `remarks`: about its flows."""

    collector: Collector
    program: Program
    remarks: tuple[str, ...] = ()

    def check(self, *, is_listing: bool = False) -> OffloadFindings:
        """Check the current megaflows. `is_listing`: whether the findings list all of them. Raises SwitchError."""
        from xenoovs.switch.vswitchd import read_version

        balancer, services = self.program.balancer, expected_services(self.program)
        hints = Hints(vlans=_vlans(balancer))
        bridge = balancer.uplinks.bridge
        ingress = frozenset(entry.in_port for each in services for entry in each.entries if entry.in_port is not None)
        evidence = self.collector.megaflows(bridge, ingress=ingress)
        state = evidence.bridge(bridge)
        live = None if state is None else state.live_ports
        with uncollected():
            if live is not None and balancer.uplinks.buckets:
                services = expected_services(self.program, live=live)
            own_mask = own_mask_of(self.program, lambda: read_version(self.collector.endpoint))
            lines = hints.watch(evidence.lines)
            findings = check_dump(services, lines, evidence, own_mask=own_mask, is_listing=is_listing)
        if any(rule.foreign is not None for _, rule in evidence.rules):
            from xenoovs.judge.foreign import preempting_rules

            findings = replace(findings, preempting=preempting_rules(services, evidence.rules))
        if findings.unwildcardings or findings.overrides:
            findings = attribute(findings, self.collector.foreign_flows(bridge))
        encrypted = tuple(end for end in balancer.remote_ends if end.tunnel.ipsec is not None)
        clear, unread = _cleartext(self.collector, findings.tunnels, wanted_encryption(encrypted, findings))
        findings = replace(findings, cleartext=clear, cpu_ports=balancer.cpu_encrypted_ports)
        is_off = state is not None and not state.hw_offload
        is_off = is_off and any(each.megaflows and each.verdict.badness > 1 for each in findings.judged)
        remarks = (*self.remarks, *evidence.remarks, *unread, *((_NOT_SET,) if is_off else ()), *hints.reason_summary())
        remarks = (*remarks, *hints.remarks(is_filtered=False), *growth_remarks(findings, evidence))
        if live is not None and balancer.uplinks.buckets:
            from xenoovs.agent.bridge_watch import moved_by_switch

            remarks = (*remarks, *(each.text for each in moved_by_switch(self.program, live)))
        expired = "" if any(block.megaflows for block in findings.blocks) else self._expired(evidence.max_idle_s)
        origins = self._origins(findings, hints.cores)
        return replace(findings, remarks=remarks, origins=origins, expired=expired)

    def _expired(self, max_idle_s: float) -> str:
        """Return why no block has a megaflow although its flow has counted packets; empty if none has."""
        observed = self.collector.switch.dump_flows(self.program.balancer.uplinks.bridge)
        packets = sum(seen.packets for seen in observed if is_block(seen.flow))
        return _EXPIRED.format(packets=counted(packets, "packet"), idle=span(max_idle_s)) if packets else ""

    def _origins(self, findings: OffloadFindings, cores: Iterable[int]) -> dict[str, tuple[str, ...]]:
        traced = (each.megaflow for anomaly in _TRACED for each in findings.examples.get(anomaly, ()))
        ufids = dict.fromkeys(megaflow.ufid for megaflow in traced if megaflow.ufid)
        from xenoovs.judge.trace import parse_detrace
        from xenoovs.switch.appctl import detrace

        texts = detrace(self.collector.endpoint, ufids, cores=cores)
        return {ufid: parse_detrace(text) for ufid, text in texts.items()}


def block_checker(balancer: Balancer, collector: Collector) -> BlockChecker:
    """Return a checker of the config, compiled onto the flows of the bridge. Raises SwitchError, CompileError."""
    observed = collector.switch.dump_flows(balancer.uplinks.bridge)
    program = compile_onto(balancer, observed)
    return BlockChecker(collector, program, missing_remarks(program, observed, collector.target))


def missing_remarks(program: Program, observed: Iterable[ObservedFlow], target: CommandTarget) -> tuple[str, ...]:
    """Return a remark if the bridge lacks flows of the config: traffic then does not make the expected megaflows."""
    from xenoovs.judge.traffic import missing_flows

    missing = missing_flows(program, observed)
    flows = counted(len(program.flows), "flow")
    remark = f"{missing} of {flows} of the config are missing on the bridge; see `xenoovs plan`"
    return (target.message(remark, ("xenoovs plan",)),) if missing else ()


def _vlans(balancer: Balancer) -> frozenset[int]:
    return frozenset(service.claim.vlan for service in balancer.services if service.claim.vlan)


def check_recorded_dump(
    balancer: Balancer, dump: Path, flows: Path | None, *, is_listing: bool = False
) -> OffloadFindings:
    """Check a dump in a file, `-` for standard input. `dump`: the output of `dpctl/dump-flows -m`. `flows`: the output
    of `ovs-ofctl dump-flows`, which shows the blocks as they were. `is_listing`: whether the findings list every
    megaflow. Raises OSError, CompileError, ParseError for `flows`."""
    observed = read_flows(flows) if flows is not None else ()
    program = compile_onto(balancer, [seen for seen in observed if is_ours(seen.flow.cookie)])
    balancer, hints = program.balancer, Hints(vlans=_vlans(program.balancer))
    evidence = replace(recorded_evidence(), ports=BridgePorts(frozenset(balancer.ports)))
    with open_dump(dump) as lines, uncollected():
        services, own_mask = expected_services(program), own_mask_of(program, lambda: evidence.version)
        findings = check_dump(services, hints.watch(lines), evidence, own_mask=own_mask, is_listing=is_listing)
    findings = attribute(findings, (seen.flow for seen in observed if is_foreign(seen.flow.cookie)))
    is_filtered = bool(findings.absent or lines.dumps) and hints.is_filtered(is_complete=lines.is_complete)
    remarks = missing_remarks(program, observed, THIS_HOST) if flows is not None else ()
    remarks = (*remarks, *lines.remarks(), *hints.reason_summary(), *hints.remarks(is_filtered=is_filtered))
    remarks = (*remarks, *_recorded_remarks(hints))
    is_filtered = is_filtered or findings.is_filtered
    return replace(findings, is_filtered=is_filtered, cpu_ports=balancer.cpu_encrypted_ports, remarks=remarks)


def check_live_bridge(
    bridge: str, collector: Collector, *, is_listing: bool = False, is_naming_flows: bool = False
) -> BridgeFindings:
    """Check all megaflows of any bridge. Raises SwitchError. `is_listing`: whether the findings list every megaflow.
    `is_naming_flows`: whether they name the flows behind the listed megaflows, also in OVN's database."""
    from xenoovs.compile.offloadable.openflow_topics import OpenFlowGroup, parse_groups
    from xenoovs.judge.bridge import check_bridge, group_uses
    from xenoovs.judge.why.log import refuses_chains
    from xenoovs.switch.management import Ofctl

    state, hints = collector.switch.describe(bridge), Hints()
    groups, unlisted = dict[int, OpenFlowGroup](), tuple[str, ...]()
    try:
        groups |= parse_groups(Ofctl(collector.endpoint).run("dump-groups", state.name, version="OpenFlow15"))
    except (SwitchError, ParseError) as problem:
        unlisted = (f"groups were not read: {problem}",)
    evidence = collector.chains(collector.megaflows(state.name), is_in_kernel=state.datapath_type == "system")
    if any(map(refuses_chains, evidence.logs)):
        evidence = replace(evidence, has_tc_chains=False)
    with uncollected():
        lists = is_listing or bool(groups)
        findings = check_bridge(scan_dump(hints.watch(evidence.lines)), evidence, is_listing=lists)
    clear, unread = _cleartext(collector, findings.tunnels)
    findings = replace(findings, cleartext=clear)
    remarks = (*evidence.remarks, *unread, *hints.remarks(is_filtered=False))
    remarks = (*remarks, *growth_remarks(findings, evidence), *unlisted)
    if not state.hw_offload and any(row.is_judged and row.verdict.is_software for row in findings.rows):
        remarks = (*remarks, _NOT_SET)
    logical = {port.name: port.iface_id for port in state.ports if port.iface_id}
    findings = replace(findings, remarks=remarks, logical_ports=logical)
    if is_naming_flows or groups:
        watched = {port for group in groups.values() for port, _ in group.watched}
        findings, traced = _traced(findings, state, collector, None if is_naming_flows else watched)
        findings = replace(findings, groups=group_uses(groups, state.live_ports, traced))
    findings = findings if is_listing else replace(findings, links=())
    return _with_logical_flows(findings, state) if is_naming_flows else findings


_MAX_TRACES = 100
_MAX_TRACING_S = 20.0


def _traced(
    findings: BridgeFindings, state: BridgeState, collector: Collector, ports: Set[str] | None
) -> tuple[BridgeFindings, list[tuple[Megaflow, str]]]:
    """Trace the judged links, those in software first. Return the findings with their flows, and the text of each
    trace. At most 100 links and 20 s, as ovs-vswitchd traces in its main thread. `ports`: trace only links that leave
    by one of these; None for all. Raises SwitchError."""
    from xenoovs.judge.trace import parse_visited
    from xenoovs.switch.appctl import Appctl

    texts, appctl = list[tuple[Megaflow, str]](), Appctl(collector.endpoint)
    links, remarks = list(findings.links), list(findings.remarks)
    judged = [number for number, link in enumerate(links) if link.is_judged]
    if ports is not None:
        judged = [number for number in judged if not ports.isdisjoint(output_ports(links[number].megaflow))]
    judged.sort(key=lambda number: -links[number].state.verdict.badness)
    until, traced, gone = time.monotonic() + _MAX_TRACING_S, 0, 0
    for number in judged[:_MAX_TRACES]:
        if time.monotonic() > until:
            break
        key = ",".join(f"{key.name}({key.inner})" for key in links[number].megaflow.keys)
        try:
            # Unlike ofproto/detrace (3.4 and newer), every version has it. It continues after the previous pass, by the
            # recirc_id (xlate_in_init() of ofproto/ofproto-dpif-xlate.c), and ignores masks.
            text = appctl.run("ofproto/trace", state.datapath_type, key)
        except CommandFailed:
            gone += 1
        else:
            texts.append((links[number].megaflow, text))
            links[number] = replace(links[number], flows=parse_visited(text))
        traced += 1
    if gone:
        # The megaflow no longer exists, or this version cannot trace its fields.
        remarks.append(f"ofproto/trace failed for {counted(gone, 'megaflow')}, so their flows are not named")
    if traced < len(judged):
        remarks.append(f"{counted(len(judged) - traced, 'more megaflow')} not traced; those in software were first")
    return replace(findings, links=tuple(links), remarks=tuple(remarks)), texts


def _with_logical_flows(findings: BridgeFindings, state: BridgeState) -> BridgeFindings:
    """Return the findings with OVN's logical flows, by the cookies of the flows. Raises SwitchError."""
    from xenoovs.switch.ovsdb import read_logical_flows

    if state.ovn is None or not state.ovn.is_owner:
        return findings
    cookies = (flow.cookie for link in findings.links for flow in link.flows if flow.bridge == state.name)
    logical = read_logical_flows(state.ovn.remote, cookies)
    if isinstance(logical, Unknown):
        return replace(findings, remarks=(*findings.remarks, f"OVN's logical flows were not read: {logical.reason}"))
    return replace(findings, logical_flows=logical)


def wanted_encryption(ends: Iterable[RemoteEnd], findings: OffloadFindings) -> tuple[EncapsulationUse, ...]:
    """Return the encapsulations to these tunnel ends, with their megaflows and packets, in the NIC or in software."""
    uses: dict[Encapsulation, EncapsulationUse] = {}
    for end in ends:
        outer = encapsulation_to(end)
        use = uses.get(outer, EncapsulationUse(outer, 0, 0))
        for each in findings.blocks:
            if any(remote_end_of(hop, (end.tunnel,)) == end for hop in each.block.hops):
                use = replace(use, megaflows=use.megaflows + each.megaflows, packets=use.packets + each.packets)
        uses[outer] = use
    return tuple(uses.values())


def _cleartext(
    collector: Collector, uses: Sequence[EncapsulationUse], wanted: Sequence[EncapsulationUse] = ()
) -> tuple[tuple[Cleartext, ...], tuple[str, ...]]:
    """Return the tunnels whose packets leave unencrypted against a policy of IPsec or the config, and why that is
    unknown. `uses`: tunnels whose packets bypass the kernel's IPsec. `wanted`: tunnels that the config encrypts."""
    if not (uses or wanted):
        return (), ()
    state = collector.switch.read_ipsec(tuple(use.encapsulation for use in (*uses, *wanted)))
    if isinstance(state, Unknown):
        return (), (f"whether tunnels should leave encrypted is not known: {state.reason}",)
    return (*uncovered(wanted, state), *cleartext(uses, state)), ()


def check_recorded_bridge(bridge: str | None, dump: Path, *, is_listing: bool = False) -> BridgeFindings:
    """Check all megaflows of a dump, which does not show which bridge has which port. Raises OSError. `bridge`: name of
    the port whose packets are for the host itself; None for every port that is named like a bridge. `dump`: the output
    of `dpctl/dump-flows -m`, `-` for standard input. `is_listing`: whether the findings list every megaflow."""
    from xenoovs.judge.bridge import check_bridge

    hints, inferred = Hints(), NamedBridges()
    bridges: Set[str] = inferred if bridge is None else frozenset((bridge,))
    evidence = replace(recorded_evidence(), internal_ports=bridges)
    with open_dump(dump) as lines, uncollected():
        findings = check_bridge(scan_dump(hints.watch(lines)), evidence, is_listing=is_listing)
    is_filtered = hints.is_filtered(is_complete=lines.is_complete)
    remarks = (*lines.remarks(), *hints.remarks(is_filtered=is_filtered), *_recorded_remarks(hints))
    if findings.unjudged:
        hidden = counted(findings.unjudged, "megaflow")
        remarks = (*remarks, f"{hidden} more in the dump: without -m it does not say where they run")
    if inferred.seen:
        names = ", ".join(sorted(inferred.seen))
        remarks = (*remarks, f"{names}: taken for the bridge by its name; if it is none, add --bridge NAME")
    return replace(findings, is_filtered=is_filtered or findings.is_filtered, remarks=remarks)


def own_mask_of(program: Program, version: Callable[[], str | None]) -> OwnMask:
    """Return a function that predicts, by simulation, the mask that a megaflow would have without foreign flows.
    `version`: returns that of Open vSwitch; called once, when the first mask is predicted."""
    built: list[Pipeline] = []

    def own_mask(megaflow: Megaflow) -> Mapping[str, int] | None:
        # Imported here: only megaflows that are narrower than planned need it.
        from xenoovs.judge.simulate.classifier import prefix_fields_of
        from xenoovs.judge.simulate.megaflows import pipeline_of, predict
        from xenoovs.judge.simulate.walk import Headers, slot_of

        if not built:
            built.append(pipeline_of(program.flows, prefix_fields_of(version())))
        fields = match_of(megaflow)
        values = {slot_of(field): found.value for field in Field if (found := fields.get(field.ovs_name))}
        try:
            predicted, _ = predict(built[0], Headers(megaflow.in_port or "", values))
        except SimulateError:
            return None
        return {masked.field.ovs_name: masked.mask for masked in predicted.match}

    return own_mask


_JUST_USED = regex(r", used:0\.[0-9]+s,.* offloaded:yes, dp:tc", ASCII)


def growth_remarks(findings: OffloadFindings | BridgeFindings | Selection, evidence: Evidence) -> Iterator[str]:
    """Yield what the samples leave unproven."""
    if not has_held_rules(evidence):
        return
    if evidence.before is None:
        yield (
            "one sample was made, which shows what the NIC holds, not whether it still forwards by it; "
            "compare two with --interval 2s while traffic flows"
        )
    elif not findings.growth.packets:
        is_used = any(_JUST_USED.search(line) for line in evidence.lines)
        yield (
            f"no counter of the NIC grew between the two samples{', although packets came' if is_used else ''}: "
            f"{'' if is_used else 'no packet came, or '}it refreshes its counters more rarely (try --interval 30s); "
            "verdicts rely on the counters since each rule was installed"
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
    """Return what a recorded dump of rules in hardware leaves unproven. `command`: proves it on the host."""
    return (
        f"a recorded dump shows what the NIC holds, not whether it forwards by it; `xenoovs {command}` on the host "
        "compares two samples"
    )


_MAX_SILENT = 3
