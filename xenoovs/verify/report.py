"""Findings as rows of a table, and as names and numbers for JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from xenoovs.datapath.megaflow import Verdict
from xenoovs.openflow.text import render_flow, render_match
from xenoovs.verify.bridge import BridgeFindings
from xenoovs.verify.expected import eth_type_of
from xenoovs.verify.findings import (
    AnomalousMegaflow,
    Anomaly,
    BlockOffload,
    Conclusion,
    Ignored,
    OffloadFindings,
    OverriddenBlocks,
    Unwildcarding,
)


@dataclass(frozen=True, slots=True)
class OffloadRow:
    """One backend of one service, or a total (`service` or `backend` None).

    Attributes:
        service: name of the service; None: all.
        backend: name of the backend; None: all.
        blocks: number of blocks by verdict.
        predicted: number of megaflows after traffic to all blocks by the entries seen, from one client-side MAC.
            More are due to further MACs, or to foreign flows.
        predicted_all: likewise by all entries.
        packets: packets of all megaflows.
        hw_packets: packets that the NIC forwarded.
        anomalies: number of megaflows by anomaly.
    """

    service: str | None
    backend: str | None
    blocks: tuple[tuple[Verdict, int], ...]
    megaflows: int
    predicted: int
    predicted_all: int
    packets: int
    bytes: int
    hw_packets: int
    hw_bytes: int
    anomalies: tuple[tuple[Anomaly, int], ...]

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
        """Return the number of blocks with this verdict."""
        return dict(self.blocks).get(verdict, 0)


def backend_rows(findings: OffloadFindings) -> tuple[OffloadRow, ...]:
    """Return one row for each backend of each service, in the order of the program."""
    grouped: dict[tuple[str, str], list[BlockOffload]] = {}
    for block in findings.blocks:
        grouped.setdefault((block.block.service, block.block.backend), []).append(block)
    entries = _Entries(findings)
    return tuple(entries.row(service, backend, blocks) for (service, backend), blocks in grouped.items())


def service_rows(findings: OffloadFindings) -> tuple[OffloadRow, ...]:
    """Return one row for each service, in the order of the program."""
    grouped: dict[str, list[BlockOffload]] = {}
    for block in findings.blocks:
        grouped.setdefault(block.block.service, []).append(block)
    entries = _Entries(findings)
    return tuple(entries.row(service, None, blocks) for service, blocks in grouped.items())


def total_row(findings: OffloadFindings) -> OffloadRow:
    """Return everything in one row."""
    return _Entries(findings).row(None, None, findings.blocks)


class _Entries:
    """Counts the entries of each service and IP family: all, and those that classified packets."""

    def __init__(self, findings: OffloadFindings) -> None:
        self.all, self.seen = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
        seen = {(found.block.service, entry) for found in findings.blocks for entry in found.entries_seen}
        for service in findings.services:
            for number, match in enumerate(service.entries):
                self.all[service.name, eth_type_of(match)] += 1
                self.seen[service.name, eth_type_of(match)] += (service.name, number) in seen

    def row(self, service: str | None, backend: str | None, blocks: Iterable[BlockOffload]) -> OffloadRow:
        """Return the sum of blocks."""
        listed = tuple(blocks)
        verdicts = Counter(found.verdict for found in listed)
        anomalies = Counter[Anomaly]()
        for found in listed:
            anomalies.update(dict(found.anomalies))
        return OffloadRow(
            service,
            backend,
            tuple((verdict, verdicts[verdict]) for verdict in Verdict if verdicts[verdict]),
            megaflows=sum(found.megaflows for found in listed),
            predicted=sum(self.seen[found.block.service, found.block.eth_type] for found in listed),
            predicted_all=sum(self.all[found.block.service, found.block.eth_type] for found in listed),
            packets=sum(found.packets for found in listed),
            bytes=sum(found.bytes for found in listed),
            hw_packets=sum(found.hw_packets for found in listed),
            hw_bytes=sum(found.hw_bytes for found in listed),
            anomalies=tuple((anomaly, anomalies[anomaly]) for anomaly in Anomaly if anomalies[anomaly]),
        )


BYTE_COUNTERS = {
    "hardware": "whole frames with their Ethernet header",
    "tc software": "frames without the 14 bytes of the Ethernet header",
    "ovs software": "whole frames with their Ethernet header",
}
"""What the byte counter of each layer includes, on BlueField and Linux 6.1 (act_mirred counts at ingress, where the
header is stripped; net/openvswitch counts it)."""


def to_json(
    findings: OffloadFindings,
    *,
    required: float | None = None,
    origins: Mapping[str, tuple[str, ...]] | None = None,
    remarks: Iterable[str] = (),
) -> dict[str, object]:
    """Return all findings for JSON.

    Args:
        required: required share of packets in hardware (0-1); None: all blocks must be in hardware.
        origins: ufid -> the flows that ofproto/detrace names.
        remarks: what could not be read beside the dump, and what that leaves unproven.
    """
    return {
        **_conclusion(findings.conclusion_for(required), required),
        "total": _row(total_row(findings)),
        "services": [_row(row) for row in service_rows(findings)],
        "backends": [_row(row) for row in backend_rows(findings)],
        "blocks": [_block(block) for block in findings.blocks],
        "unwildcarded": [_unwildcarding(unwildcarding) for unwildcarding in findings.unwildcardings],
        "overrides": [_override(override) for override in findings.overrides],
        "anomalous_megaflows": [_example(example, origins or {}) for example in findings.examples],
        "ignored": [_ignored(ignored) for ignored in findings.ignored],
        **_limits(findings, remarks),
    }


def bridge_to_json(findings: BridgeFindings, *, required: float | None = None) -> dict[str, object]:
    """Return the findings about a bridge without a config: megaflows by port, verdict and reason."""
    return {
        **_conclusion(findings.conclusion_for(required), required),
        "hw_share": findings.hw_share,
        "rows": [
            {
                "in_port": row.in_port,
                "verdict": row.verdict.value,
                "reason": row.reason,
                "judged": row.is_judged,
                "megaflows": row.megaflows,
                "packets": row.packets,
                "bytes": row.bytes,
            }
            for row in findings.rows
        ],
        **_limits(findings, findings.remarks),
    }


def _conclusion(conclusion: Conclusion, required: float | None) -> dict[str, object]:
    return {"conclusion": conclusion.name.lower(), "exit_code": int(conclusion), "required_share": required}


def _limits(findings: OffloadFindings | BridgeFindings, remarks: Iterable[str]) -> dict[str, object]:
    """What the dump does not show."""
    return {
        "unjudged": findings.unjudged,
        "unparsed_lines": [str(error) for error in findings.unparsed],
        "unparsed_lines_more": findings.unparsed_more,
        "remarks": list(remarks),
        "byte_counters": BYTE_COUNTERS,
    }


def _row(row: OffloadRow) -> dict[str, object]:
    names = {"service": row.service, "backend": row.backend}
    return {
        **{key: name for key, name in names.items() if name is not None},
        "blocks": {verdict.value: row.count(verdict) for verdict in Verdict},
        "megaflows": row.megaflows,
        "predicted_megaflows": row.predicted,
        "predicted_megaflows_all_entries": row.predicted_all,
        "packets": row.packets,
        "bytes": row.bytes,
        "hw_packets": row.hw_packets,
        "hw_bytes": row.hw_bytes,
        "sw_packets": row.sw_packets,
        "sw_bytes": row.sw_bytes,
        "hw_share": row.hw_share,
        "anomalies": _counts(row.anomalies),
    }


def _block(found: BlockOffload) -> dict[str, object]:
    return {
        "service": found.block.service,
        "backend": found.block.backend,
        "flow": render_flow(found.block.flow),
        "verdict": found.verdict.value,
        "megaflows": {verdict.value: count for verdict, count in found.verdicts},
        "packets": found.packets,
        "bytes": found.bytes,
        "hw_packets": found.hw_packets,
        "hw_bytes": found.hw_bytes,
        "anomalies": _counts(found.anomalies),
    }


def _counts(anomalies: Iterable[tuple[Anomaly, int]]) -> dict[str, int]:
    return {anomaly.value: count for anomaly, count in anomalies}


def _unwildcarding(unwildcarding: Unwildcarding) -> dict[str, object]:
    return {
        "service": unwildcarding.service,
        "megaflows": unwildcarding.megaflows,
        "extra_bits": {name: f"{bits:#x}" for name, bits in unwildcarding.fields},
        "foreign_flows": [render_flow(flow) for flow in unwildcarding.flows],
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


def _example(example: AnomalousMegaflow, origins: Mapping[str, tuple[str, ...]]) -> dict[str, object]:
    return {
        "anomaly": example.anomaly.value,
        "service": example.service,
        "backend": example.backend,
        "ufid": example.ufid,
        "match": example.match,
        "actions": example.actions,
        "made_by": list(origins.get(example.ufid or "", ())),
    }


def _ignored(ignored: Ignored) -> dict[str, object]:
    return {
        "reason": ignored.reason.value,
        "megaflows": ignored.megaflows,
        "packets": ignored.packets,
        "in_hardware": ignored.in_hardware,
    }
