"""Where one megaflow runs and what it counted: the word of the dump, held against the filter of traffic control."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xenoovs.datapath.megaflow import Megaflow
from xenoovs.datapath.tc import TcFilter, cookie_of_ufid
from xenoovs.verify.findings import Oddity
from xenoovs.verify.verdict import Verdict, verdict_of


@dataclass(frozen=True, slots=True)
class Seen:
    """hw_packets, hw_bytes: what the NIC forwarded, by the filter's own counters where it has them."""

    verdict: Verdict
    packets: int
    bytes: int
    hw_packets: int
    hw_bytes: int
    oddities: tuple[Oddity, ...] = ()


def seen_of(megaflow: Megaflow, filters: Mapping[str, TcFilter] | None) -> Seen | None:
    """None: the dump was made without `-m`. `filters`: by cookie; None: traffic control was not read."""
    verdict = verdict_of(megaflow)
    if verdict is None:
        return None
    if filters is None or megaflow.layer != "tc":
        return _by_dump(megaflow, verdict)
    cookie = cookie_of_ufid(megaflow.ufid) if megaflow.ufid else None
    found = filters.get(cookie) if cookie else None
    if found is None:
        return _by_dump(megaflow, verdict, Oddity.WITHOUT_FILTER)
    if verdict is Verdict.HW and found.in_hw is False:
        return _by_dump(megaflow, Verdict.TC_SW, Oddity.CONTRADICTED)
    odd = (Oddity.UNCONFIRMED,) if verdict is Verdict.HW and found.in_hw is None else ()
    counters = found.counters
    if counters is None or counters.hw_packets is None:
        return _by_dump(megaflow, verdict, *odd)
    hw_bytes = counters.hw_bytes or 0
    return Seen(verdict, counters.packets, counters.bytes, counters.hw_packets, hw_bytes, odd)


def _by_dump(megaflow: Megaflow, verdict: Verdict, *oddities: Oddity) -> Seen:
    packets, size = megaflow.packets, megaflow.bytes
    if verdict is Verdict.HW:
        return Seen(verdict, packets, size, packets, size, oddities)
    return Seen(verdict, packets, size, 0, 0, oddities)
