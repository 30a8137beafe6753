"""How an agent works: what its command line says."""

from __future__ import annotations

from dataclasses import dataclass

from xenoovs.agent.runtime_file import RuntimeFile


@dataclass(frozen=True, slots=True)
class Settings:
    """How an agent works.

    resync_s:  between two rounds for which nothing but time gives a reason; they find foreign changes.
    confirm_s: how long a new config waits to be confirmed before it is taken back; None: it need not be.
    runtime:   where overrides outlive a restart; None: nowhere.
    """

    resync_s: float = 10.0
    confirm_s: float | None = None
    runtime: RuntimeFile | None = None
