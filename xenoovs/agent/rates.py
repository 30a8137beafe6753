"""Rates of several backends as one number. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from xenoovs.agent.snapshot import Rate


def nic_share(rates: Iterable[Rate]) -> float | None:
    """Of the packets of these rates, 0..1, those that the NIC forwarded; None: no packets, or nobody can tell."""
    known = [(rate.pps, rate.hw_pps) for rate in rates if rate.hw_pps is not None]
    packets = sum(pps for pps, _ in known)
    return sum(hw_pps for _, hw_pps in known) / packets if packets else None
