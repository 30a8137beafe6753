"""The config of an agent in a fleet: the file of its DPU, joined with the services and blocks of one view of the store.

Both are taken together, so a change of the store is one change of the bridge.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from xenoovs.agent.config_file import DIGEST_DIGITS, ConfigFile, ConfigVersion
from xenoovs.fleet.services import ViewReader
from xenoovs.store.view import FleetView


class FleetConfig(ConfigFile):
    """A file without services, which come from the store.

    Attributes:
        newest: The view of the store that the next `poll` takes.
    """

    def __init__(self, path: Path, view: FleetView, dpu: str) -> None:
        """Read the file, with the services that a view has for a DPU.

        Raises:
            ConfigError, ConfigUnreadable, StoredServiceUnusable.
        """
        self.newest = self._taken = self._used = view
        self._dpu = dpu
        self._reader = ViewReader()
        super().__init__(path)

    @property
    def is_touched(self) -> bool:
        """Whether the file has changed since the last `poll`, or there is another view."""
        return self.newest is not self._taken or super().is_touched

    @property
    def _digest(self) -> str:
        view = self._used
        rows = "".join(f"{name} {view.services[name].generation}\n" for name in sorted(view.services))
        return sha256(f"{self._sources.digest}\n{view.generation}\n{rows}".encode()).hexdigest()[:DIGEST_DIGITS]

    def _read(self) -> ConfigVersion:
        self._taken = view = self.newest
        own = self._used.dpus.get(self._dpu)
        if own is not None and self._dpu not in view.dpus:
            # A DPU that the fleet has forgotten still serves its groups until its agent is stopped.
            view = replace(view, dpus={self._dpu: own})
        self._used = view = view.of_dpu(self._dpu)
        balancer, stored = self._reader.read(
            view.services.values(), self._sources.read(self.path), file=str(self.path), sources=self._sources
        )
        return ConfigVersion(balancer, self._digest, stored, view)
