"""The findings of `check_offload` as plain values: rows for a table, and a dict that is ready for JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from xenoovs.openflow.render import render_flow
from xenoovs.verify.offload import BlockOffload, OffloadFindings
from xenoovs.verify.verdict import Verdict


@dataclass(frozen=True, slots=True)
class OffloadRow:
    """One backend of one service, or a total (`service` or `backend` None). `blocks`: how many have which verdict."""

    service: str | None
    backend: str | None
    blocks: tuple[tuple[Verdict, int], ...]
    packets: int
    bytes: int
    hw_packets: int
    hw_bytes: int
    slow_path: int
    misdelivered: int

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
    return tuple(_row(service, backend, blocks) for (service, backend), blocks in grouped.items())


def service_rows(findings: OffloadFindings) -> tuple[OffloadRow, ...]:
    """One row for each service, in the order of the program."""
    grouped: dict[str, list[BlockOffload]] = {}
    for block in findings.blocks:
        grouped.setdefault(block.block.service, []).append(block)
    return tuple(_row(service, None, blocks) for service, blocks in grouped.items())


def total_row(findings: OffloadFindings) -> OffloadRow:
    """Everything in one row."""
    return _row(None, None, findings.blocks)


def to_json(findings: OffloadFindings) -> dict[str, object]:
    """Everything that was found, with names and numbers only."""
    return {
        "conclusion": findings.conclusion.name.lower(),
        "exit_code": int(findings.conclusion),
        "total": _row_json(total_row(findings)),
        "services": [_row_json(row) for row in service_rows(findings)],
        "backends": [_row_json(row) for row in backend_rows(findings)],
        "blocks": [_block_json(block) for block in findings.blocks],
        "ignored": {reason.value: count for reason, count in findings.ignored},
        "unjudged": findings.unjudged,
        "torn_lines": [str(error) for error in findings.torn],
    }


def _row(service: str | None, backend: str | None, blocks: Iterable[BlockOffload]) -> OffloadRow:
    listed = tuple(blocks)
    verdicts = Counter(block.verdict for block in listed)
    return OffloadRow(
        service,
        backend,
        tuple((verdict, verdicts[verdict]) for verdict in Verdict if verdicts[verdict]),
        packets=sum(block.packets for block in listed),
        bytes=sum(block.bytes for block in listed),
        hw_packets=sum(block.hw_packets for block in listed),
        hw_bytes=sum(block.hw_bytes for block in listed),
        slow_path=sum(block.slow_path for block in listed),
        misdelivered=sum(block.misdelivered for block in listed),
    )


def _row_json(row: OffloadRow) -> dict[str, object]:
    names = {"service": row.service, "backend": row.backend}
    return {
        **{key: name for key, name in names.items() if name is not None},
        "blocks": {verdict.value: row.count(verdict) for verdict in Verdict},
        "packets": row.packets,
        "bytes": row.bytes,
        "hw_packets": row.hw_packets,
        "hw_bytes": row.hw_bytes,
        "hw_share": row.hw_share,
        "slow_path": row.slow_path,
        "misdelivered": row.misdelivered,
    }


def _block_json(found: BlockOffload) -> dict[str, object]:
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
        "slow_path": found.slow_path,
        "misdelivered": found.misdelivered,
    }
