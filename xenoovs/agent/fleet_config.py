"""The config of an agent in a fleet: the file of its DPU, joined with the services and blocks of one view of the store.

Both are taken together, so a change of the store is one change of the bridge.
"""

from __future__ import annotations

import time
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from xenoovs.agent.config_file import DIGEST_DIGITS, ConfigFile, ConfigVersion
from xenoovs.decision.decision import Stored
from xenoovs.fleet.plan import seconds_to_wait
from xenoovs.fleet.services import ViewReader
from xenoovs.model.include import ConfigSources
from xenoovs.store.view import FleetView


class FleetConfig(ConfigFile):
    """A file without services, which come from the store."""

    def __init__(self, path: Path, view: FleetView, dpu: str) -> None:
        """Read the file, with the services that a view has for a DPU.

        Raises:
            ConfigError, ConfigUnreadable, StoredServiceUnusable.
        """
        self._newest_view: tuple[FleetView, float | None] = (view, None)
        self._taken: tuple[FleetView, float | None] = self._newest_view
        self._used = view
        self._dpu = dpu
        self._reader = ViewReader()
        super().__init__(path)

    @property
    def newest(self) -> FleetView:
        """The view of the store that the next `poll` takes."""
        return self._newest_view[0]

    def offer(self, view: FleetView) -> None:
        """Let the next `poll` take a new view, with the time of its change."""
        waits_s = seconds_to_wait(view.switch_at_ms, now_ms=time.time() * 1000)
        # One value, because another thread may be reading it.
        self._newest_view = (view, time.monotonic() + waits_s if waits_s else None)

    @property
    def is_touched(self) -> bool:
        """Whether the file has changed since the last `poll`, or there is another view."""
        return self._newest_view is not self._taken or super().is_touched

    @property
    def _digest(self) -> str:
        view = self._used
        identity = f"{self._sources.digest}\n{view.generation} {view.store_id} {view.commit}"
        return sha256(identity.encode()).hexdigest()[:DIGEST_DIGITS]

    def stored_in(self, view: FleetView) -> Stored:
        """Return what a view has for this DPU, also one that is not taken.

        Raises:
            ConfigError, ConfigUnreadable, StoredServiceUnusable.
        """
        sources = ConfigSources(self.path)
        services = view.of_dpu(self._dpu).services.values()
        return ViewReader().read(services, sources.read(self.path), file=str(self.path), sources=sources)[1]

    def _read(self) -> ConfigVersion:
        self._taken = self._newest_view
        view, commit_at_s = self._taken
        own = self._used.dpus.get(self._dpu)
        if own is not None and self._dpu not in view.dpus:
            # A DPU that was removed from the fleet still serves its groups until its agent is stopped.
            view = replace(view, dpus={self._dpu: own})
        self._used = view = view.of_dpu(self._dpu)
        balancer, stored = self._reader.read(
            view.services.values(), self._sources.read(self.path), file=str(self.path), sources=self._sources
        )
        return ConfigVersion(balancer, self._digest, stored, view, commit_at_s)
