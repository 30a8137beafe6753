"""Megaflows of any bridge by port, verdict and reason, without a config. It works for OVN's br-int too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

from xenoovs.datapath.megaflow import Megaflow, Verdict
from xenoovs.errors import ParseError
from xenoovs.verify.chains import is_hop, judge_chains
from xenoovs.verify.check import MAX_HOPS, CheckContext, MegaflowState, UnparsedLines, hop_of, reason_of, state_of
from xenoovs.verify.findings import Conclusion, conclude, outside_kind_of
from xenoovs.verify.samples import NO_GROWTH, Growth, PortFinding

_MAX_ROWS = 5_000
_OTHERS = "(others)"
"""Stands for the ports of further rows."""


@dataclass(frozen=True, slots=True)
class BridgeRow:
    """Megaflows of one port that share verdict and reason.

    Attributes:
        reason: why they are not in hardware; empty if the dump does not show it.
        is_judged: False for megaflows that belong in software (ARP, drops ...).
        hw_packets: packets that the NIC forwarded in all hops of their chains.
        growth: packets that came between two samples; none if there is one sample.
    """

    in_port: str
    verdict: Verdict
    reason: str
    is_judged: bool
    megaflows: int
    packets: int
    bytes: int
    hw_packets: int = 0
    growth: Growth = NO_GROWTH


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
        uncounted: number of megaflows whose tc filter has no counter of hardware.
        ports: packets that ports gave to the CPU between two samples; empty if there is one.
        has_growth: whether there are two samples.
    """

    rows: tuple[BridgeRow, ...]
    unparsed: tuple[ParseError, ...]
    read: int
    unjudged: int
    is_filtered: bool = False
    remarks: tuple[str, ...] = ()
    unparsed_more: int = 0
    uncounted: int = 0
    ports: tuple[PortFinding, ...] = ()
    has_growth: bool = False

    @property
    def hw_share(self) -> float | None:
        """Share of packets of judged megaflows that the NIC forwarded (0-1); None before the first packet."""
        judged = [row for row in self.rows if row.is_judged]
        packets = sum(row.packets for row in judged)
        return sum(row.hw_packets for row in judged) / packets if packets else None

    @property
    def growth(self) -> Growth:
        """Packets of judged megaflows that came between two samples."""
        return sum((row.growth for row in self.rows if row.is_judged), NO_GROWTH)

    @property
    def judged_share(self) -> float | None:
        """The share that a requirement is compared with: of the growth if there is any, else as `hw_share`."""
        growth = self.growth
        return growth.hw_packets / growth.packets if growth.packets else self.hw_share

    @property
    def is_contradicted(self) -> bool:
        """Whether a port gave the CPU more packets than megaflows explain."""
        return any(port.is_contradicted for port in self.ports)

    @property
    def is_unparsed(self) -> bool:
        """Whether the dump has lines, but no megaflow among them."""
        return bool(self.unparsed) and not self.read

    def conclusion_for(self, required: float | None) -> Conclusion:
        """Return whether all judged megaflows are in hardware, or the share of packets that is `required` (0-1)."""
        judged = [row for row in self.rows if row.is_judged]
        is_software = any(row.verdict.is_software for row in judged)
        # Also without `-m` a dump shows the slow path.
        if self.is_unparsed or (self.unjudged and not (is_software and required is None)):
            return Conclusion.CHECK_FAILED
        if self.is_contradicted:
            return Conclusion.NOT_ALL_IN_HARDWARE
        share = self.judged_share
        # Without a packet to prove it, offloaded:yes is no success.
        if not judged or self.is_filtered or (share is None and (required is not None or not is_software)):
            return Conclusion.NOTHING_SEEN
        if required is None or share is None:
            is_unconfirmed = not is_software and any(row.verdict is Verdict.UNCONFIRMED for row in judged)
            return Conclusion.NOTHING_SEEN if is_unconfirmed else conclude(not is_software)
        return Conclusion.NOTHING_SEEN if share >= required and self.uncounted else conclude(share >= required)


def check_bridge(megaflows: Iterable[Megaflow | ParseError], context: CheckContext | None = None) -> BridgeFindings:
    """Count the megaflows of a dump, as `datapath.parse.scan_dump` reads it. Never raises.

    Args:
        megaflows: megaflows of the dump, errors in the place of unreadable lines.
        context: what is known beside the dump; None: nothing.
    """
    context = context or CheckContext()
    counter, hops = _RowCounter(context), list[tuple[Megaflow, MegaflowState]]()
    unparsed, read, unjudged, uncounted = UnparsedLines(), 0, 0, 0
    contradicted = context.contradicted
    for megaflow in megaflows:
        if isinstance(megaflow, ParseError):
            unparsed.add(megaflow)
            continue
        read += 1
        state = state_of(megaflow, context.filters, context.before, contradicted)
        if state is None:
            unjudged += 1
        elif context.ports is None or context.ports.has(megaflow.in_port):
            uncounted += not state.is_counted
            if is_hop(megaflow) and len(hops) < MAX_HOPS:
                hops.append((megaflow, state))
            else:
                counter.add(megaflow, state)
    counter.add_hops(hops)
    return BridgeFindings(
        counter.rows(),
        tuple(unparsed.listed),
        read,
        unjudged,
        unparsed_more=unparsed.more,
        uncounted=uncounted,
        ports=context.port_checks,
        has_growth=context.before is not None,
    )


class _RowCounter:
    """Sums up megaflows by port, verdict and reason."""

    def __init__(self, context: CheckContext) -> None:
        self.context = context
        self.counts: dict[tuple[str, Verdict, str, bool], list[int]] = {}
        self.growths: dict[tuple[str, Verdict, str, bool], Growth] = {}

    def add(self, megaflow: Megaflow, state: MegaflowState) -> None:
        """Count a megaflow."""
        reason, is_judged = _reason(megaflow, state.verdict, self.context.internal_ports)
        key = (megaflow.in_port or "", state.verdict, state.reason or reason, is_judged)
        if key not in self.counts and len(self.counts) >= _MAX_ROWS:
            key = (_OTHERS, state.verdict, "", is_judged)
        count = self.counts.setdefault(key, [0, 0, 0, 0])
        for i, more in enumerate((1, state.packets, state.bytes, state.hw_packets)):
            count[i] += more
        self.growths[key] = self.growths.get(key, NO_GROWTH) + (state.growth or NO_GROWTH)

    def add_hops(self, hops: Sequence[tuple[Megaflow, MegaflowState]]) -> None:
        """Count megaflows that recirculate packets, each by the worst hop of its chains."""
        kinds = [outside_kind_of(megaflow, self.context.internal_ports).is_judged for megaflow, _ in hops]
        judged = judge_chains(hop_of(*each, is_judged=kind) for each, kind in zip(hops, kinds, strict=True))
        for (megaflow, state), hop in zip(hops, judged, strict=True):
            self.add(megaflow, state.in_chain(hop))

    def rows(self) -> tuple[BridgeRow, ...]:
        """Return the sums in the order of a report."""
        ordered = sorted(self.counts, key=lambda key: (key[0], key[1].badness, not key[3], key[2]))
        return tuple(self._row(key) for key in ordered)

    def _row(self, key: tuple[str, Verdict, str, bool]) -> BridgeRow:
        megaflows, packets, size, hw_packets = self.counts[key]
        return BridgeRow(*key, megaflows, packets, size, hw_packets, self.growths[key])


def _reason(megaflow: Megaflow, verdict: Verdict, internal_ports: Set[str]) -> tuple[str, bool]:
    """Return why a megaflow is not in hardware, and whether it is judged."""
    if verdict is Verdict.HW:
        return "", True
    kind = outside_kind_of(megaflow, internal_ports)
    return (reason_of(megaflow), True) if kind.is_judged else (kind.value, False)
