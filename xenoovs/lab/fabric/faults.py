"""A spine that swallows every packet, without any sign at its links."""

from __future__ import annotations

from xenoovs.lab.fabric.plan import Fabric

SILENT_QUEUE = "pfifo"


def silence_lines(fabric: Fabric, spine: str) -> str:
    """Return the input of `tc -batch -` in a spine that silences it: queues of no packets drop all (tc-pfifo(8))."""
    return _queue_lines(fabric, spine, f"{SILENT_QUEUE} limit 0")


def forward_lines(fabric: Fabric, spine: str) -> str:
    """Return the input of `tc -batch -` in a spine that lets it forward again."""
    return _queue_lines(fabric, spine, "noqueue")


def _queue_lines(fabric: Fabric, spine: str, queue: str) -> str:
    devices = (here.interface for here, _ in fabric.ports_of(spine))
    return "".join(f"qdisc replace dev {device} root {queue}\n" for device in devices)
