"""From counters of megaflows, which begin anew whenever a megaflow is made anew, to totals that only grow."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from xenoovs.agent.snapshot import Rate, Traffic
from xenoovs.decision.desired import BackendName
from xenoovs.verify.findings import OffloadFindings

_LINE = re.compile(r"(?:ufid:([0-9a-f-]{36}), )?(.*?), packets:([0-9]{1,20}), bytes:([0-9]{1,20})(.*)", re.ASCII)
_BITS = 8

_Count = tuple[int, int]
"""Packets and bytes of one megaflow."""


class Counters:
    """The counters of the last dump, by ufid, or by the match where a datapath has no ufids.

    Dumps are no snapshots: Open vSwitch walks a table that changes meanwhile, so a megaflow may be missing from one, or
    stand in it twice. So one that is missing among others is remembered for one dump more. Bounded by two dumps.
    """

    def __init__(self) -> None:
        self._last: dict[str, _Count] = {}
        self._missing: dict[str, _Count] = {}

    def grown(self, lines: Iterable[str]) -> Iterator[str]:
        """The lines of a dump with what their counters have grown by since the one before; to be read to the end.

        A counter that is less than before belongs to a megaflow that was made anew since.
        """
        now: dict[str, _Count] = {}
        for line in lines:
            found = _LINE.fullmatch(line)
            if found is None:
                yield line
                continue
            key, packets, size = found[1] or found[2], int(found[3]), int(found[4])
            before = now.get(key) or self._last.get(key) or self._missing.get(key) or (0, 0)
            if packets < before[0] or size < before[1]:
                # Twice in one dump it is the same megaflow, and what was read later is what counts next time.
                before = (packets, size) if key in now else (0, 0)
            now[key] = packets, size
            more = f", packets:{packets - before[0]}, bytes:{size - before[1]}"
            yield f"{line[: found.end(2)]}{more}{found[5]}"
        # None at all is no torn dump: they were flushed, or all idled out.
        self._missing = {key: count for key, count in self._last.items() if key not in now} if now else {}
        self._last = now


class Totals:
    """Packets and bytes of each backend since the first look. Bounded by the backends that there are."""

    def __init__(self) -> None:
        self._traffic: dict[BackendName, Traffic] = {}
        self._last_s: float | None = None

    def add(
        self, findings: OffloadFindings, known: Iterable[BackendName], *, now_s: float
    ) -> tuple[Mapping[BackendName, Traffic], Mapping[BackendName, Rate]]:
        """Findings whose counters are what has been added since the last look. Returns totals and rates by backend.

        known: the backends that there are, also those that have no block now; others begin anew should they come back.
        """
        added = _by_backend(findings)
        past_s = None if self._last_s is None else now_s - self._last_s
        self._last_s = now_s
        nothing = Traffic()
        self._traffic = {names: _sum(self._traffic.get(names, nothing), added.get(names, nothing)) for names in known}
        if not past_s:
            return self._traffic, {}
        return self._traffic, {names: _rate(added.get(names, nothing), past_s) for names in self._traffic}

    def rest(self, *, now_s: float) -> tuple[Mapping[BackendName, Traffic], Mapping[BackendName, Rate]]:
        """As `add`, where there is no megaflow, for the backends of the last look."""
        self._last_s = now_s
        return self._traffic, dict.fromkeys(self._traffic, Rate(0.0, 0.0, 0.0))


def _by_backend(findings: OffloadFindings) -> dict[BackendName, Traffic]:
    counts = defaultdict[BackendName, list[int]](lambda: [0, 0, 0, 0])
    for block in findings.blocks:
        count = counts[block.block.service, block.block.backend]
        if block.packets or block.bytes:
            count[0] += block.hw_packets
            count[1] += block.hw_bytes
            count[2] += block.packets - block.hw_packets
            count[3] += block.bytes - block.hw_bytes
    return {names: Traffic(*count) for names, count in counts.items()}


def _sum(one: Traffic, other: Traffic) -> Traffic:
    return Traffic(
        one.hw_packets + other.hw_packets,
        one.hw_bytes + other.hw_bytes,
        one.sw_packets + other.sw_packets,
        one.sw_bytes + other.sw_bytes,
    )


def _rate(more: Traffic, past_s: float) -> Rate:
    packets, size = more.hw_packets + more.sw_packets, more.hw_bytes + more.sw_bytes
    return Rate(packets / past_s, more.hw_packets / past_s, size * _BITS / past_s)
