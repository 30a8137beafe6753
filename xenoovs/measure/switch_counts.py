"""What Open vSwitch counted of a load: the packets that flows of the service matched, and those of its megaflows.

The counters of interfaces say what was sent and received. These say whether the service's flows forwarded it, and how
much of it the NIC did.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence

from xenoovs.compile.pipeline import Stage, of_service
from xenoovs.dataclass import dataclass
from xenoovs.datapath.megaflow import Verdict, verdict_of
from xenoovs.datapath.parse import parse_dump
from xenoovs.errors import MeasureError, ParseError
from xenoovs.measure.bed import Bed
from xenoovs.measure.counters import CountedFrames
from xenoovs.model.balancer import service_ids

# The revalidator adds what megaflows counted to the flows that they are made of.
_SCRIPT = """\
ovs-appctl revalidator/wait || exit
ovs-ofctl -O OpenFlow14 dump-aggregate "$1" "$2" || exit
ovs-appctl dpctl/dump-flows -m | grep -E "$3"
true
"""
_AGGREGATE = re.compile(r"^OFPST_AGGREGATE reply .*packet_count=(\d+) byte_count=\d+ flow_count=\d+$", re.MULTILINE)
_TIMEOUT_S = 60.0
_LATE_S = 3.0
"""Drivers ask their NIC for counters of rules about once a second (mlx5_core: MLX5_FC_STATS_PERIOD)."""


@dataclass(frozen=True, slots=True)
class SwitchCounts:
    """Counters of the switch at one time.

    Attributes:
        matched: Packets that the flows matched by which a packet is found to be of the service.
        megaflows: Packets of each megaflow from an uplink, by ufid.
        offloaded: The same of those megaflows alone that the NIC forwards.
    """

    matched: int
    megaflows: Mapping[str, int]
    offloaded: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class SwitchedFrames:
    """What the switch counted of a load; the attributes are those of `SwitchCounts`."""

    matched: int
    megaflows: int
    offloaded: int

    @property
    def values(self) -> dict[str, int]:
        return {"matched": self.matched, "megaflow_packets": self.megaflows, "offloaded_packets": self.offloaded}

    def doubts(self, frames: CountedFrames) -> Iterator[str]:
        """Yield why these numbers and those of the interfaces cannot both be right."""
        if self.matched + frames.slack < frames.received:
            yield (
                f"the backends received {frames.received} frames, and the flows of the service matched {self.matched}: "
                "others come another way"
            )
        if self.matched > frames.sent + frames.slack:
            yield (
                f"the flows of the service matched {self.matched} packets, and the generator sent {frames.sent}: "
                "others send too"
            )


class SwitchCounters:
    """Reads the counters of the switch of a bed for some flows: those of its service, or those of an experiment."""

    def __init__(self, bed: Bed, *, cookie: str = "", ports: Sequence[str] = ()) -> None:
        """`cookie`: of the flows, with its mask; empty: the service's. `ports`: of the load; empty: the uplinks."""
        self._bed = bed
        self._ports = [*ports] or [*bed.balancer.uplinks.ingress]
        self._filter = f"cookie={cookie or _service_cookie(bed)}"

    def read(self) -> SwitchCounts:
        """Return the counters. Raises MeasureError."""
        ports = "|".join(rf"in_port\({re.escape(port)}\)" for port in self._ports)
        bridge = self._bed.balancer.uplinks.bridge
        done = self._bed.dpu.try_run("sh", "-c", _SCRIPT, "sh", bridge, self._filter, ports, timeout_s=_TIMEOUT_S)
        if done.exit_code != 0:
            lines = done.stderr.strip().splitlines() or [f"status {done.exit_code}"]
            raise MeasureError(f"the counters of {bridge} on {self._bed.dpu.place.name} cannot be read: {lines[-1]}")
        return parse_switch_counts(done.stdout)

    def frames_since(self, before: SwitchCounts, *, received: int) -> SwitchedFrames:
        """Return what was counted since then, once it is as much as was received, but not much later."""
        deadline_s = time.monotonic() + _LATE_S
        while True:
            found = switched_frames(before, self.read())
            if found.matched >= received or time.monotonic() > deadline_s:
                return found


def _service_cookie(bed: Bed) -> str:
    ids = service_ids(service.claim for service in bed.balancer.services)
    (cookie,) = of_service(ids[bed.service.claim], (Stage.CLASSIFY,))
    return f"{cookie.value:#x}/{cookie.mask:#x}"


def parse_switch_counts(text: str) -> SwitchCounts:
    """Return the counters that the script prints. Raises MeasureError."""
    aggregate = _AGGREGATE.search(text)
    if aggregate is None:
        raise MeasureError(f"ovs-ofctl dump-aggregate printed no counters: {shlex.quote(text[:80])}")
    try:
        megaflows = parse_dump(text[aggregate.end() :])
    except ParseError as error:
        raise MeasureError(f"the megaflows of the switch cannot be read: {error}") from None
    first = [flow for flow in megaflows if flow.recirc_id == 0 and flow.ufid]
    return SwitchCounts(
        int(aggregate[1]),
        {str(flow.ufid): flow.packets for flow in first},
        {str(flow.ufid): flow.packets for flow in first if verdict_of(flow) is Verdict.HW},
    )


def switched_frames(before: SwitchCounts, after: SwitchCounts) -> SwitchedFrames:
    """Return the differences. A megaflow that was deleted and came back counts from 0."""
    return SwitchedFrames(
        max(0, after.matched - before.matched),
        _grown(before.megaflows, after.megaflows),
        _grown(before.offloaded, after.offloaded),
    )


def _grown(before: Mapping[str, int], after: Mapping[str, int]) -> int:
    grown = 0
    for ufid, packets in after.items():
        known = before.get(ufid, 0)
        grown += packets - known if packets >= known else packets
    return grown
