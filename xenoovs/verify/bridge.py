"""Megaflows of any bridge by port, verdict and reason, without a config. It works for OVN's br-int too."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass

from xenoovs.datapath.megaflow import Megaflow, Verdict, verdict_of
from xenoovs.errors import ParseError
from xenoovs.verify.check import UnparsedLines
from xenoovs.verify.expected import is_slow_path
from xenoovs.verify.findings import Conclusion, conclude, ignore_reason_of

_OFFLOAD_REASON = "dp-offload-info"
"""The remark of newer forks of Open vSwitch on why a megaflow is not offloaded."""

_MAX_ROWS = 5_000
_OTHERS = "(others)"
"""Stands for the ports of further rows."""


@dataclass(frozen=True, slots=True)
class BridgePorts:
    """The ports of a bridge. `prefixes`: beginnings of the names of its tunnel ports in the datapath."""

    names: frozenset[str]
    prefixes: tuple[str, ...] = ()

    def has(self, in_port: str | None) -> bool:
        """Return whether packets of this ingress port enter the bridge."""
        return in_port is not None and (in_port in self.names or in_port.startswith(self.prefixes or ("\0",)))


@dataclass(frozen=True, slots=True)
class BridgeRow:
    """Megaflows of one port that share verdict and reason.

    Attributes:
        reason: why they are not in hardware; empty if the dump does not show it.
        is_judged: False for megaflows that belong in software (ARP, drops ...).
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
    """Findings about a bridge.

    Attributes:
        rows: by port, then from best verdict to worst, then by reason.
        unparsed: lines that could not be read, the first ones.
        read: number of megaflows in the dump, of all bridges.
        unjudged: number of megaflows of a dump made without `-m`.
        is_filtered: the dump may lack megaflows in software, as all of it is offloaded.
        remarks: what the dump says beside its megaflows.
        unparsed_more: number of unreadable lines beyond those in `unparsed`.
    """

    rows: tuple[BridgeRow, ...]
    unparsed: tuple[ParseError, ...]
    read: int
    unjudged: int
    is_filtered: bool = False
    remarks: tuple[str, ...] = ()
    unparsed_more: int = 0

    @property
    def hw_share(self) -> float | None:
        """Share of packets of judged megaflows that the NIC forwarded (0-1); None before the first packet."""
        judged = [row for row in self.rows if row.is_judged]
        packets = sum(row.packets for row in judged)
        return sum(row.packets for row in judged if row.verdict is Verdict.HW) / packets if packets else None

    @property
    def is_unparsed(self) -> bool:
        """Whether the dump has lines, but no megaflow among them."""
        return bool(self.unparsed) and not self.read

    def conclusion_for(self, required: float | None) -> Conclusion:
        """Return whether all judged megaflows are in hardware, or the share of packets that is `required` (0-1)."""
        judged = [row for row in self.rows if row.is_judged]
        if self.unjudged or self.is_unparsed:
            return Conclusion.CHECK_FAILED
        is_all_hw = all(row.verdict is Verdict.HW for row in judged)
        # Without a packet to prove it, offloaded:yes is no success.
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
    """Count the megaflows of a dump, as `datapath.parse.scan_dump` reads it. Never raises.

    Args:
        megaflows: megaflows of the dump, errors in the place of unreadable lines.
        ports: ports of the bridge; None: megaflows of all bridges.
        internal_ports: names of bridges and of their internal ports.
    """
    counts: dict[tuple[str, Verdict, str, bool], list[int]] = {}
    unparsed, read, unjudged = UnparsedLines(), 0, 0
    for megaflow in megaflows:
        if isinstance(megaflow, ParseError):
            unparsed.add(megaflow)
            continue
        read += 1
        if (verdict := verdict_of(megaflow)) is None:
            unjudged += 1
        elif ports is None or ports.has(megaflow.in_port):
            key = (megaflow.in_port or "", verdict, *_reason(megaflow, verdict, internal_ports))
            if key not in counts and len(counts) >= _MAX_ROWS:
                key = (_OTHERS, verdict, "", key[3])
            count = counts.setdefault(key, [0, 0, 0])
            count[0] += 1
            count[1] += megaflow.packets
            count[2] += megaflow.bytes
    ordered = sorted(counts, key=lambda key: (key[0], key[1].badness, not key[3], key[2]))
    rows = tuple(BridgeRow(*key, *counts[key]) for key in ordered)
    return BridgeFindings(rows, tuple(unparsed.listed), read, unjudged, unparsed_more=unparsed.more)


def _reason(megaflow: Megaflow, verdict: Verdict, internal_ports: Set[str]) -> tuple[str, bool]:
    """Return why a megaflow is not in hardware, and whether it is judged."""
    if verdict is Verdict.HW:
        return "", True
    ignored = ignore_reason_of(megaflow, internal_ports)
    if ignored.is_expected:
        return ignored.value, False
    remark = next((text for name, text in megaflow.extra if name == _OFFLOAD_REASON), None)
    if remark is not None:
        return remark, True
    if is_slow_path(megaflow.actions):
        return "slow path: ovs-vswitchd handles each packet", True
    return ("recirculated" if megaflow.recirc_id else ""), True
