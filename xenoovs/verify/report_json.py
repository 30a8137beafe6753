"""The findings of `check_offload` and `check_bridge` as dicts of names and numbers, ready for JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from xenoovs.openflow.render import render_flow, render_match
from xenoovs.verify.bridge import BridgeFindings
from xenoovs.verify.findings import BlockOffload, Ignored, Instance, OffloadFindings, Taking, Widening
from xenoovs.verify.report import OffloadRow, backend_rows, service_rows, total_row
from xenoovs.verify.verdict import Verdict

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
