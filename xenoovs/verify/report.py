"""Findings as rows of a table, and as names and numbers for JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from xenoovs.datapath.megaflow import Verdict
from xenoovs.openflow.text import render_flow, render_match
from xenoovs.verify.bridge import BridgeFindings
from xenoovs.verify.expected import eth_type_of
from xenoovs.verify.findings import BlockOffload, Ignored, Instance, Oddity, OffloadFindings, Taking, Widening


@dataclass(frozen=True, slots=True)
class OffloadRow:
    """One backend of one service, or a total (`service` or `backend` None).

    blocks:        how many have which verdict.
    megaflows:     how many there are.
    predicted:     how many there should be once all blocks have had traffic by the entries that were seen, from one
                   client-side MAC. More than that is explained by further MACs, or by flows of others.
    predicted_all: by all entries.
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
    oddities: tuple[tuple[Oddity, int], ...]

    @property
    def sw_packets(self) -> int:
        return self.packets - self.hw_packets

    @property
    def sw_bytes(self) -> int:
        return self.bytes - self.hw_bytes

    @property
    def hw_share(self) -> float | None:
        """Of all packets counted, 0..1, those that the NIC forwarded; None before the first packet."""
        return self.hw_packets / self.packets if self.packets else None

    def count(self, verdict: Verdict) -> int:
        return dict(self.blocks).get(verdict, 0)


def backend_rows(findings: OffloadFindings) -> tuple[OffloadRow, ...]:
    """One row for each backend of each service, in the order of the program."""
    grouped: dict[tuple[str, str], list[BlockOffload]] = {}
    for block in findings.blocks:
        grouped.setdefault((block.block.service, block.block.backend), []).append(block)
    entries = _Entries(findings)
    return tuple(entries.row(service, backend, blocks) for (service, backend), blocks in grouped.items())


def service_rows(findings: OffloadFindings) -> tuple[OffloadRow, ...]:
    """One row for each service, in the order of the program."""
    grouped: dict[str, list[BlockOffload]] = {}
    for block in findings.blocks:
        grouped.setdefault(block.block.service, []).append(block)
    entries = _Entries(findings)
    return tuple(entries.row(service, None, blocks) for service, blocks in grouped.items())


def total_row(findings: OffloadFindings) -> OffloadRow:
    """Everything in one row."""
    return _Entries(findings).row(None, None, findings.blocks)


class _Entries:
    """How many entries of each service and IP family there are, and how many of them packets came by."""

    def __init__(self, findings: OffloadFindings) -> None:
        self.present, self.seen = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
        seen = {(found.block.service, entry) for found in findings.blocks for entry in found.entries_seen}
        for service in findings.services:
            for number, match in enumerate(service.entries):
                self.present[service.name, eth_type_of(match)] += 1
                self.seen[service.name, eth_type_of(match)] += (service.name, number) in seen

    def row(self, service: str | None, backend: str | None, blocks: Iterable[BlockOffload]) -> OffloadRow:
        listed = tuple(blocks)
        verdicts = Counter(found.verdict for found in listed)
        oddities = Counter[Oddity]()
        for found in listed:
            oddities.update(dict(found.oddities))
        return OffloadRow(
            service,
            backend,
            tuple((verdict, verdicts[verdict]) for verdict in Verdict if verdicts[verdict]),
            megaflows=sum(found.megaflows for found in listed),
            predicted=self._predicted(listed, self.seen),
            predicted_all=self._predicted(listed, self.present),
            packets=sum(found.packets for found in listed),
            bytes=sum(found.bytes for found in listed),
            hw_packets=sum(found.hw_packets for found in listed),
            hw_bytes=sum(found.hw_bytes for found in listed),
            oddities=tuple((oddity, oddities[oddity]) for oddity in Oddity if oddities[oddity]),
        )

    @staticmethod
    def _predicted(blocks: Iterable[BlockOffload], entries: Counter[tuple[str, int]]) -> int:
        return sum(entries[found.block.service, found.block.eth_type] for found in blocks)


# The findings of `check_offload` and `check_bridge` as dicts of names and numbers, ready for JSON.


BYTE_COUNTERS = {
    "hardware": "whole frames with their Ethernet header",
    "tc software": "frames without the 14 bytes of the Ethernet header",
    "ovs software": "whole frames with their Ethernet header",
}
"""What the byte counter of a layer includes; BlueField's hardware and Linux 6.1 (act_mirred counts at ingress, where
the header is stripped; net/openvswitch counts it). So shares are of packets."""


def to_json(
    findings: OffloadFindings,
    *,
    required: float | None = None,
    origins: Mapping[str, tuple[str, ...]] | None = None,
    remarks: Iterable[str] = (),
) -> dict[str, object]:
    """Everything that was found. `origins`: ufid -> the flows that ofproto/detrace names.

    remarks: what could not be read beside the dump, such as traffic control, and what that leaves unproven.
    """
    conclusion = findings.conclusion_for(required)
    return {
        "conclusion": conclusion.name.lower(),
        "exit_code": int(conclusion),
        "required_share": required,
        "total": _row(total_row(findings)),
        "services": [_row(row) for row in service_rows(findings)],
        "backends": [_row(row) for row in backend_rows(findings)],
        "blocks": [_block(block) for block in findings.blocks],
        "widened": [_widening(widening) for widening in findings.widenings],
        "taken": [_taking(taking) for taking in findings.taken],
        "odd_megaflows": [_instance(instance, origins or {}) for instance in findings.instances],
        "ignored": [_ignored(ignored) for ignored in findings.ignored],
        "unjudged": findings.unjudged,
        "torn_lines": [str(error) for error in findings.torn],
        "torn_lines_more": findings.torn_more,
        "remarks": list(remarks),
        "byte_counters": BYTE_COUNTERS,
    }


def bridge_to_json(findings: BridgeFindings, *, required: float | None = None) -> dict[str, object]:
    """A bridge without a config: megaflows by port, verdict and reason."""
    conclusion = findings.conclusion_for(required)
    return {
        "conclusion": conclusion.name.lower(),
        "exit_code": int(conclusion),
        "required_share": required,
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
        "unjudged": findings.unjudged,
        "torn_lines": [str(error) for error in findings.torn],
        "torn_lines_more": findings.torn_more,
        "remarks": list(findings.remarks),
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
        "oddities": _counts(row.oddities),
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
        "oddities": _counts(found.oddities),
    }


def _counts(oddities: Iterable[tuple[object, int]]) -> dict[str, int]:
    return {str(getattr(oddity, "value", oddity)): count for oddity, count in oddities}


def _widening(widening: Widening) -> dict[str, object]:
    return {
        "service": widening.service,
        "megaflows": widening.megaflows,
        "extra_bits": {name: f"{bits:#x}" for name, bits in widening.fields},
        "flows_of_others": [render_flow(flow) for flow in widening.flows],
    }


def _taking(taking: Taking) -> dict[str, object]:
    return {
        "service": taking.service,
        "blocks": [{"backend": block.backend, "flow": render_flow(block.flow)} for block in taking.blocks],
        "megaflows": taking.megaflows,
        "packets": taking.packets,
        "match": render_match(taking.match),
        "actions": taking.actions,
        "flows_of_others": [render_flow(flow) for flow in taking.flows],
    }


def _instance(instance: Instance, origins: Mapping[str, tuple[str, ...]]) -> dict[str, object]:
    return {
        "oddity": instance.oddity.value,
        "service": instance.service,
        "backend": instance.backend,
        "ufid": instance.ufid,
        "match": instance.match,
        "actions": instance.actions,
        "made_by": list(origins.get(instance.ufid or "", ())),
    }


def _ignored(ignored: Ignored) -> dict[str, object]:
    return {
        "reason": ignored.reason.value,
        "megaflows": ignored.megaflows,
        "packets": ignored.packets,
        "in_hardware": ignored.in_hardware,
    }
