"""Is the other side alive, and has it done all until here? (OpenFlow 1.4.0, 7.5.2, 7.5.3 and 7.3.7)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EchoRequest:
    """The other side sends `data` back."""

    data: bytes = b""


@dataclass(frozen=True, slots=True)
class EchoReply:
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class BarrierRequest:
    """All before is done before all behind; answered when it is."""


@dataclass(frozen=True, slots=True)
class BarrierReply:
    pass
