"""Any bridge, without a config: its megaflows by port, verdict and reason. Works for OVN's br-int as well."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass

from xenoovs.datapath.megaflow import Megaflow, Verdict, verdict_of
from xenoovs.errors import ParseError
from xenoovs.verify.check import TornLines
from xenoovs.verify.expected import is_slow
from xenoovs.verify.findings import Conclusion, conclude, reason_of

_OFFLOAD_REASON = "dp-offload-info"
"""The remark in which newer forks of Open vSwitch say themselves why a megaflow is not offloaded."""


_MOST_ROWS = 5_000
_OTHERS = "(others)"
"""Stands for the ports of rows beyond as many as anybody reads."""


@dataclass(frozen=True, slots=True)
class BridgePorts:
    """Which megaflows are of a bridge. `names`: its ports; `prefixes`: what names of its tunnels start with."""

    names: frozenset[str]
    prefixes: tuple[str, ...] = ()

    def has(self, in_port: str | None) -> bool:
        return in_port is not None and (in_port in self.names or in_port.startswith(self.prefixes or ("\0",)))


@dataclass(frozen=True, slots=True)
class BridgeRow:
    """Megaflows of one port that share verdict and reason.

    reason:    why they are not in hardware, as far as the dump tells; empty where it does not.
    is_judged: False for those that belong in software (ARP, drops ...).
    """

    in_port: str
    verdict: Verdict
    reason: str
    is_judged: bool
    megaflows: int
    packets: int
    bytes: int


@dataclass(frozen=True, slots=True)
class BridgeFindings:
    """Rows by port, then from best verdict to worst, then by reason.

    read:     megaflows in the dump, of all bridges.
    unjudged: megaflows of a dump made without `-m`.
    torn_more: lines that could not be read beyond those in `torn`.
    is_filtered: the dump may lack what is not offloaded, as all of it is.
    remarks:  what the dump says beside its megaflows.
    """

    rows: tuple[BridgeRow, ...]
    torn: tuple[ParseError, ...]
    read: int
    unjudged: int
    is_filtered: bool = False
    remarks: tuple[str, ...] = ()
    torn_more: int = 0

    @property
    def hw_share(self) -> float | None:
        """Of the packets of judged megaflows, 0..1, those that the NIC forwarded; None before the first packet."""
        judged = [row for row in self.rows if row.is_judged]
        packets = sum(row.packets for row in judged)
        return sum(row.packets for row in judged if row.verdict is Verdict.HW) / packets if packets else None

    @property
    def is_unread(self) -> bool:
        """Whether there was text, and not one megaflow in it."""
        return bool(self.torn) and not self.read

    def conclusion_for(self, required: float | None) -> Conclusion:
        """Whether all judged megaflows are in hardware; with `required`, 0..1, whether that share of packets is."""
        judged = [row for row in self.rows if row.is_judged]
        if self.unjudged or self.is_unread:
            return Conclusion.COULD_NOT_LOOK
        is_all_hw = all(row.verdict is Verdict.HW for row in judged)
        # Without a packet that proves it, the word of Open vSwitch is no success yet.
        if not judged or self.is_filtered or (self.hw_share is None and (required is not None or is_all_hw)):
            return Conclusion.NOTHING_SEEN
        if required is None or self.hw_share is None:
            return conclude(is_all_hw)
        return conclude(self.hw_share >= required)


def check_bridge(
    megaflows: Iterable[Megaflow | ParseError],
    *,
    ports: BridgePorts | None = None,
    internal_ports: Set[str] = frozenset(),
) -> BridgeFindings:
    """Sort a dump, as `datapath.parse.scan_dump` reads it. `ports` None: megaflows of all bridges. Never raises."""
    counts: dict[tuple[str, Verdict, str, bool], list[int]] = {}
    torn, read, unjudged = TornLines(), 0, 0
    for megaflow in megaflows:
        if isinstance(megaflow, ParseError):
            torn.add(megaflow)
            continue
        read += 1
        if (verdict := verdict_of(megaflow)) is None:
            unjudged += 1
        elif ports is None or ports.has(megaflow.in_port):
            key = (megaflow.in_port or "", verdict, *_reason(megaflow, verdict, internal_ports))
            if key not in counts and len(counts) >= _MOST_ROWS:
                key = (_OTHERS, verdict, "", key[3])
            count = counts.setdefault(key, [0, 0, 0])
            count[0] += 1
            count[1] += megaflow.packets
            count[2] += megaflow.bytes
    ordered = sorted(counts, key=lambda key: (key[0], key[1].badness, not key[3], key[2]))
    rows = tuple(BridgeRow(*key, *counts[key]) for key in ordered)
    return BridgeFindings(rows, tuple(torn.listed), read, unjudged, torn_more=torn.more)


def _reason(megaflow: Megaflow, verdict: Verdict, internal_ports: Set[str]) -> tuple[str, bool]:
    """Why it is not in hardware, and whether that is judged."""
    if verdict is Verdict.HW:
        return "", True
    expected = reason_of(megaflow, internal_ports)
    if expected.is_expected:
        return expected.value, False
    told = next((text for name, text in megaflow.extra if name == _OFFLOAD_REASON), None)
    if told is not None:
        return told, True
    if is_slow(megaflow.actions):
        return "slow path: ovs-vswitchd handles each packet", True
    return ("recirculated" if megaflow.recirc_id else ""), True
