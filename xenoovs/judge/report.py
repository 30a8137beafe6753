"""Findings as rows of a table, and as names and numbers for JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from xenoovs.dataclass import dataclass, field, replace
from xenoovs.datapath.ipsec import address_text
from xenoovs.datapath.megaflow import Verdict
from xenoovs.judge.expected import ExpectedBlock, OutsideKind, eth_type_of, match_text
from xenoovs.judge.findings import (
    Anomaly,
    BlockOffload,
    Conclusion,
    Counts,
    DumpFindings,
    MegaflowState,
    OffloadFindings,
    OutsideKey,
    OutsideTraffic,
    OverriddenBlocks,
    PreemptingRule,
    Unwildcarding,
    summed,
)
from xenoovs.model.next_hop import is_tunneled
from xenoovs.model.tunnel import ECN_CODE_POINTS
from xenoovs.openflow.text import render_flow, render_match

if TYPE_CHECKING:
    from xenoovs.judge.bridge import BridgeFindings


@dataclass(slots=True)
class OffloadRow(Counts):
    """One backend of one service, or a total (`service` or `backend` None). `others`: number of megaflows of answers
    and other traffic, and of services without answers, by verdict. `predicted`: number of megaflows after traffic from
    one client-side MAC to all blocks, by the entries seen. Further MACs or foreign flows cause more. `with_ecn`: as
    `predicted`, if packets have every ECN code point: in a tunnel each has its own megaflow."""

    service: str | None
    backend: str | None
    blocks: Counter[Verdict] = field(default_factory=Counter)
    predicted: int = 0
    predicted_all: int = 0
    anomalies: Counter[Anomaly] = field(default_factory=Counter)
    others: Counter[Verdict] = field(default_factory=Counter)
    with_ecn: int = 0

    @property
    def sw_packets(self) -> int:
        return self.packets - self.hw_packets

    @property
    def sw_bytes(self) -> int:
        return self.bytes - self.hw_bytes

    @property
    def hw_share(self) -> float | None:
        """Share of packets that the NIC forwarded (0-1); None before the first packet."""
        return self.hw_packets / self.packets if self.packets else None

    def count(self, verdict: Verdict) -> int:
        """Return the number of blocks and others with this verdict."""
        return self.blocks[verdict] + self.others[verdict]


@dataclass(frozen=True, slots=True)
class OutsideRow:
    """Answers of services, or other traffic, that entered by one port."""

    kind: OutsideKind
    in_port: str
    services: tuple[str, ...]
    sums: OffloadRow
    reasons: tuple[str, ...]


def backend_rows(findings: OffloadFindings) -> tuple[OffloadRow, ...]:
    """Return one row for each backend of each service, in the order of the program."""
    return _rows(findings, lambda block: (block.service, block.backend))


def service_rows(findings: OffloadFindings) -> tuple[OffloadRow, ...]:
    """Return one row for each service, in the order of the program."""
    return _rows(findings, lambda block: (block.service, None))


def _rows(
    findings: OffloadFindings, names_of: Callable[[ExpectedBlock], tuple[str, str | None]]
) -> tuple[OffloadRow, ...]:
    grouped: dict[tuple[str, str | None], list[BlockOffload]] = {}
    for found in findings.blocks:
        grouped.setdefault(names_of(found.block), []).append(found)
    entries = _Entries(findings)
    return tuple(entries.row(*names, blocks) for names, blocks in grouped.items())


NO_ANSWERS = "no megaflow: idle, or the backends answer by another way than this bridge"
"""Why a service has requests and no answers; neither good nor bad."""


def outside_rows(findings: OffloadFindings, *, max_ports: int | None = None) -> tuple[OutsideRow, ...]:
    """Return answers by port, then services without any, then other traffic by kind and port. `max_ports`: if other
    traffic enters by more ports, it has one row for each kind; None for no limit."""
    grouped: dict[OutsideKey, list[OutsideTraffic]] = {}
    ports = {each.in_port for each in findings.judged_outside if each.kind is not OutsideKind.ANSWERS}
    is_merged = max_ports is not None and len(ports) > max_ports
    for each in findings.judged_outside:
        kind, in_port, services = each.key
        is_by_port = kind is OutsideKind.ANSWERS or not is_merged
        grouped.setdefault((kind, in_port if is_by_port else "", services), []).append(each)
    rows = [_outside_row(*key, parts) for key, parts in grouped.items()]
    if findings.unanswered:
        absent = OffloadRow(None, None, others=Counter({Verdict.ABSENT: len(findings.unanswered)}))
        rows.append(OutsideRow(OutsideKind.ANSWERS, "", findings.unanswered, absent, (NO_ANSWERS,)))
    order = (OutsideKind.ANSWERS, OutsideKind.RECIRCULATED, OutsideKind.OTHER)
    return tuple(sorted(rows, key=lambda row: order.index(row.kind)))


def _outside_row(
    kind: OutsideKind, in_port: str, services: tuple[str, ...], parts: Sequence[OutsideTraffic]
) -> OutsideRow:
    reasons = tuple(dict.fromkeys(each.reason for each in parts if each.reason))
    verdicts = Counter[Verdict]()
    for each in parts:
        verdicts[each.verdict] += each.megaflows
    sums = OffloadRow(None, None, others=verdicts, **summed(parts))
    return OutsideRow(kind, in_port, services, sums, reasons)


def blocks_row(findings: OffloadFindings) -> OffloadRow:
    return _Entries(findings).row(None, None, findings.blocks)


def total_row(findings: OffloadFindings) -> OffloadRow:
    """Return everything that was judged in one row: the sum of all blocks, answers and other traffic."""
    blocks, outside = blocks_row(findings), outside_rows(findings)
    others = sum((row.sums.others for row in outside), Counter[Verdict]())
    return replace(blocks, others=others, **summed((blocks, *(row.sums for row in outside))))


class _Entries:
    """Counts the entries of each service and IP family: all, and those that classified packets."""

    def __init__(self, findings: OffloadFindings) -> None:
        self.all, self.seen = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
        seen = {(found.block.service, entry) for found in findings.blocks for entry in found.entries_seen}
        for service in findings.services:
            for number, match in enumerate(service.entries):
                self.all[service.name, eth_type_of(match)] += 1
                self.seen[service.name, eth_type_of(match)] += (service.name, number) in seen

    @staticmethod
    def _megaflows(entries: Counter[tuple[str, int]], block: ExpectedBlock) -> int:
        return entries[block.service, block.eth_type] * block.megaflows

    def row(self, service: str | None, backend: str | None, blocks: Iterable[BlockOffload]) -> OffloadRow:
        listed = tuple(blocks)
        return OffloadRow(
            service,
            backend,
            Counter(found.verdict for found in listed),
            predicted=sum(self._megaflows(self.seen, found.block) for found in listed),
            predicted_all=sum(self._megaflows(self.all, found.block) for found in listed),
            anomalies=sum((found.anomalies for found in listed), Counter[Anomaly]()),
            with_ecn=sum(self._megaflows(self.seen, found.block) * _code_points(found.block) for found in listed),
            **summed(listed),
        )


BYTE_COUNTERS = {
    "hardware": "whole frames with their Ethernet header",
    "tc software": "frames without the 14 bytes of the Ethernet header",
    "ovs software": "whole frames with their Ethernet header",
}
"""What the byte counter of each layer includes, on BlueField and Linux 6.1 (act_mirred counts at ingress, where the
header is stripped; net/openvswitch counts it)."""


def _code_points(block: ExpectedBlock) -> int:
    return ECN_CODE_POINTS if any(map(is_tunneled, block.hops)) else 1


def to_json(
    findings: OffloadFindings, *, required: float | None = None, part: OffloadFindings | None = None
) -> dict[str, object]:
    """Return all findings, or the `part` that is shown, for JSON. `required`: share of packets in hardware (0-1); None
    for all blocks."""
    shown = findings if part is None else part
    concluded = findings.conclusion_for(required)
    is_left_to_cpu = concluded is Conclusion.IN_HARDWARE and findings.is_left_to_cpu
    outside = outside_rows(shown)
    total = {"part": _row(total_row(shown))} if part is not None else {}
    return {
        **_conclusion(concluded, required),
        **({"conclusion": _ENCRYPTED_BY_CPU} if is_left_to_cpu else {}),
        "cleartext": _cleartext(findings),
        "encrypted_by_cpu_blocks": findings.cpu_blocks,
        "hw_share": findings.hw_share,
        **_growth(findings),
        "total": _row(total_row(findings)),
        "blocks_total": _row(blocks_row(shown)),
        **total,
        "services": [_row(row) for row in service_rows(shown)],
        "backends": [_row(row) for row in backend_rows(shown)],
        "answers": [_outside(row) for row in outside if row.kind is OutsideKind.ANSWERS],
        "other": [_outside(row) for row in outside if row.kind is not OutsideKind.ANSWERS],
        "blocks": [block_to_json(block) for block in shown.blocks],
        "unproven": [
            {**_block(each.block), "expected_packets": each.expected, "of_packets": each.of_packets}
            for each in shown.unproven
        ],
        "unwildcarded": [_unwildcarding(unwildcarding) for unwildcarding in shown.unwildcardings],
        "overrides": [_override(override) for override in shown.overrides],
        "preempting_rules": [_preempting(rule) for rule in shown.preempting],
        "anomalous_megaflows": [
            _example(anomaly, state, findings.origins) for anomaly, found in shown.examples.items() for state in found
        ],
        "ignored": [{"reason": kind, **sums} for kind, sums in ignored_rows(shown).items()],
        **_limits(findings, findings.expired),
    }


def ignored_rows(findings: OffloadFindings) -> dict[str, dict[str, int]]:
    """Return the sums of megaflows that are not judged, by kind."""
    rows: dict[str, dict[str, int]] = {}
    for each in findings.outside:
        if not each.kind.is_judged:
            row = rows.setdefault(each.kind.value, {"megaflows": 0, "packets": 0, "in_hardware": 0})
            row["megaflows"] += each.megaflows
            row["packets"] += each.packets
            row["in_hardware"] += each.megaflows if each.verdict is Verdict.HW else 0
    return rows


def bridge_to_json(
    findings: BridgeFindings, *, required: float | None = None, verdicts: Container[Verdict] | None = None
) -> dict[str, object]:
    """Return findings without a config: chains by port, verdict and reason. `required`: of packets, 0-1, or None."""
    return {
        **_conclusion(findings.conclusion_for(required), required),
        "cleartext": _cleartext(findings),
        "hw_share": findings.hw_share,
        **_growth(findings),
        "kernel_has_chains": findings.has_tc_chains,
        "rows": [
            {
                "in_port": row.in_port,
                "logical_port": findings.logical_ports.get(row.in_port),
                "out": sorted(row.exits),
                "verdict": row.verdict.value,
                "reason": row.reason,
                "judged": row.is_judged,
                **_values(row, "chains", "megaflows", "packets", "bytes", "hw_packets"),
            }
            for row in findings.rows
            if verdicts is None or row.verdict in verdicts
        ],
        "groups": [asdict(group) | {"bad": group.is_bad} for group in findings.groups],
        **_limits(findings),
    }


_ENCRYPTED_BY_CPU = "encrypted_by_cpu"
"""The conclusion, with exit status 0, if the CPU encrypts the tunnels of all blocks with traffic."""


def _conclusion(conclusion: Conclusion, required: float | None) -> dict[str, object]:
    return {"conclusion": conclusion.name.lower(), "exit_code": int(conclusion), "required_share": required}


def _growth(findings: DumpFindings) -> dict[str, object]:
    """Return the growth between two samples; None and an empty list if there was one sample."""
    growth = findings.growth
    share = growth.hw_packets / growth.packets if growth.packets else None
    sums = {"packets": growth.packets, "hw_packets": growth.hw_packets, "hw_share": share}
    ports = [
        {
            "port": port.port,
            "contradicted": port.is_contradicted,
            "received_by_cpu": port.received,
            "explained": port.explained,
            "counted_twice": port.twice,
            "tolerance": port.tolerance,
            "source": port.source or None,
            "silent_because": port.silence or None,
        }
        for port in findings.ports
    ]
    return {"growth": sums if findings.has_growth else None, "ports": ports}


def _cleartext(findings: DumpFindings) -> list[dict[str, object]]:
    """Return the tunnels whose packets leave unencrypted although they should not."""
    return [
        {
            "local": address_text(found.local, is_ipv6=outer.is_ipv6),
            "remote": address_text(outer.remote, is_ipv6=outer.is_ipv6),
            "protocol": outer.protocol,
            "port": outer.dst_port,
            "device": found.device,
            "policy": found.policy,
            "reason": found.reason,
            "megaflows": found.use.megaflows,
            "packets": found.use.packets,
        }
        for found in findings.cleartext
        for outer in (found.use.encapsulation,)
    ]


def _limits(findings: DumpFindings, expired: str = "") -> dict[str, object]:
    """Return what the dump does not show."""
    return {
        "unjudged": findings.unjudged,
        "unparsed_lines": [str(error) for error in findings.unparsed],
        "unparsed_lines_more": findings.unparsed_more,
        "remarks": [*findings.remarks, *([expired] if expired else ())],
        "byte_counters": BYTE_COUNTERS,
    }


def _row(row: OffloadRow) -> dict[str, object]:
    names = {"service": row.service, "backend": row.backend}
    return {
        **{key: name for key, name in names.items() if name is not None},
        "blocks": {verdict.value: row.blocks[verdict] for verdict in Verdict},
        "megaflows": row.megaflows,
        "predicted_megaflows": row.predicted,
        "predicted_megaflows_all_entries": row.predicted_all,
        "predicted_megaflows_with_ecn": row.with_ecn,
        **_values(row, *_SUMS),
        "anomalies": _counts(row.anomalies),
    }


_SUMS = ("packets", "bytes", "hw_packets", "hw_bytes", "sw_packets", "sw_bytes", "hw_share")


def _values(record: object, *names: str) -> dict[str, object]:
    """Return attributes of a record under their names."""
    return {name: getattr(record, name) for name in names}


def _block(block: ExpectedBlock) -> dict[str, object]:
    return {"service": block.service, "backend": block.backend, "flow": render_flow(block.flow)}


def block_to_json(found: BlockOffload) -> dict[str, object]:
    return {
        **_block(found.block),
        "verdict": found.verdict.value,
        "megaflows": {verdict.value: count for verdict in Verdict if (count := found.verdicts[verdict])},
        **_values(found, "packets", "bytes", "hw_packets", "hw_bytes"),
        "anomalies": _counts(found.anomalies),
    }


def _counts(anomalies: Counter[Anomaly]) -> dict[str, int]:
    return {anomaly.value: count for anomaly in Anomaly if (count := anomalies[anomaly])}


def _unwildcarding(unwildcarding: Unwildcarding) -> dict[str, object]:
    return {
        "service": unwildcarding.service,
        "megaflows": unwildcarding.megaflows,
        "extra_bits": {name: f"{bits:#x}" for name, bits in unwildcarding.fields},
        "foreign_flows": [render_flow(flow) for flow in unwildcarding.flows or ()],
    }


def _preempting(rule: PreemptingRule) -> dict[str, object]:
    return {
        "device": rule.device,
        "preference": rule.pref,
        "classifier": rule.rule.kind,
        "match": rule.rule.match,
        "actions": rule.rule.actions,
        "in_hw": rule.in_hw,
        "packets": rule.rule.packets,
        "blocks": [_block(block) for block in rule.blocks],
    }


def _override(override: OverriddenBlocks) -> dict[str, object]:
    return {
        "service": override.service,
        "blocks": [{"backend": block.backend, "flow": render_flow(block.flow)} for block in override.blocks],
        "megaflows": override.megaflows,
        "packets": override.packets,
        "match": render_match(override.match),
        "actions": override.actions,
        "foreign_flows": [render_flow(flow) for flow in override.flows],
    }


def _example(anomaly: Anomaly, state: MegaflowState, origins: Mapping[str, tuple[str, ...]]) -> dict[str, object]:
    return {
        "anomaly": anomaly.value,
        **_values(state.block, "service", "backend"),
        "ufid": state.megaflow.ufid,
        "match": match_text(state.megaflow),
        "actions": ",".join(state.megaflow.actions),
        "made_by": list(origins.get(state.megaflow.ufid or "", ())),
    }


def _outside(row: OutsideRow) -> dict[str, object]:
    sums = row.sums
    names: dict[str, object] = {"services": list(row.services)} if row.kind is OutsideKind.ANSWERS else {}
    return {
        **names,
        "kind": row.kind.value,
        "in_port": row.in_port or None,
        "verdicts": {verdict.value: sums.count(verdict) for verdict in Verdict},
        "reasons": list(row.reasons),
        "megaflows": sums.megaflows,
        **_values(sums, *_SUMS),
    }
