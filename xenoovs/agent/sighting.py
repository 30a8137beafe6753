"""What one look at the hardware found, and how much has passed since the first one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from xenoovs.agent.snapshot import Counted, Rate, Traffic
from xenoovs.decision.desired import BackendName
from xenoovs.verify.findings import OffloadFindings


@dataclass(frozen=True, slots=True)
class Sighting:
    """One look.

    findings: verdicts and megaflows as they are; packets and bytes in it are those since the look before. None: the
              datapath is elsewhere, and only the counters of flows were read.
    traffic:  since the first look, although megaflows come and go. counted: likewise, by flows.
    rates:    since the look before; empty at the first one.
    seen_s:   when, UTC.
    """

    findings: OffloadFindings | None
    seen_s: float
    traffic: Mapping[BackendName, Traffic] = field(default_factory=dict)
    rates: Mapping[BackendName, Rate] = field(default_factory=dict)
    counted: Mapping[BackendName, Counted] = field(default_factory=dict)
