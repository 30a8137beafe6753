"""The findings of `check_offload` as rows for a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from xenoovs.verify.expected import eth_type_of
from xenoovs.verify.findings import BlockOffload, Oddity, OffloadFindings
from xenoovs.verify.verdict import Verdict


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
