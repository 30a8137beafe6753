"""The config of an agent in a fleet: the file of its DPU, and the services and blocks of one view of the store.

Services and blocks come from the same view, so that a change of the store is one change of the bridge.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from xenoovs.agent.config_file import DIGEST_DIGITS, ConfigFile, ConfigVersion
from xenoovs.decision.decision import Stored
from xenoovs.errors import FleetCacheUnusable, StoreMalformed
from xenoovs.fleet.plan import Memo, ViewReader, seconds_to_wait
from xenoovs.model.include import ConfigSources
from xenoovs.store.rows import DPUS, SERVICES, WATCHES, StoreTable, plain_row
from xenoovs.store.view import FORMAT, FleetView
from xenoovs.switch.tape import asked
from xenoovs.switch.undo_journal import replace_file


class FleetConfig(ConfigFile):
    """A config file without services, which come from the store."""

    def __init__(self, path: Path, view: FleetView, dpu: str) -> None:
        """Read the file, with the services of a DPU in a view. Raises ConfigError, ConfigUnreadable,
        StoredServiceUnusable."""
        self._newest_view: tuple[FleetView, float | None] = (view, None)
        self._taken: tuple[FleetView, float | None] = self._newest_view
        self._used = view
        self._dpu = dpu
        self._reader = ViewReader()
        super().__init__(path)

    @property
    def newest(self) -> FleetView:
        """The view of the store that the next `poll` uses."""
        return self._newest_view[0]

    def offer(self, view: FleetView) -> None:
        """Let the next `poll` use a new view, with the time of its change."""
        waits_s = seconds_to_wait(view.switch_at_ms, now_ms=time.time() * 1000)
        # One value, because another thread may be reading it.
        self._newest_view = (view, time.monotonic() + waits_s if waits_s else None)

    @property
    def is_touched(self) -> bool:
        """Return whether the file has changed since the last `poll`, or there is another view."""
        return self._newest_view is not self._taken or super().is_touched

    @property
    def _digest(self) -> str:
        view = self._used
        identity = f"{self._sources.digest}\n{view.generation} {view.store_id} {view.commit}"
        return sha256(identity.encode()).hexdigest()[:DIGEST_DIGITS]

    def stored_in(self, view: FleetView) -> Stored:
        """Return the stored decisions of a view for this DPU, also of an unused view. Raises ConfigError,
        ConfigUnreadable, StoredServiceUnusable."""
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


# The last view of the store in a file, so that a DPU that boots without the store forwards packets.


_MAX_SIZE_BYTES = 64 * 1024 * 1024
"""A thousand services of 16 blocks take 1.5 MB."""
_FACTS, _IDENTITY = ("name", "generation", "intent"), ("store_id", "commit_id", "content")
_TABLES: Mapping[str, StoreTable[Any]] = {"dpus": DPUS, "services": SERVICES, "watches": WATCHES}


class FleetCache:
    """The file: the SHA-256 of the rest on its first line, then JSON; mode 0600, replaced atomically."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._memo = Memo()

    def load(self) -> FleetView | None:
        """Return the saved view; None if there is none. Raises FleetCacheUnusable."""
        # Without the directory: a record may be read by another user, whose agents have another directory.
        document = asked(("cat", self.path.name), self._document)
        try:
            return None if document is None else _parse(json.loads(document))
        except (StoreMalformed, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise FleetCacheUnusable(path=str(self.path), reason="it is of another version of xenoovs") from None

    def _document(self) -> str | None:
        try:
            with self.path.open("rb") as file:
                data = file.read(_MAX_SIZE_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise FleetCacheUnusable(path=str(self.path), reason=error.strerror or str(error)) from None
        checksum, _, document = data.partition(b"\n")
        if sha256(document).hexdigest().encode() != checksum:
            raise FleetCacheUnusable(path=str(self.path), reason="its checksum is wrong")
        return document.decode()

    def save(self, view: FleetView) -> None:
        """Save a view atomically, also if the machine loses power. Blocks; raises OSError."""
        facts = {"format": FORMAT, **{name: getattr(view, name) for name in (*_FACTS, *_IDENTITY)}}
        parts = [_json(facts)[1:-1]]
        for name, table in _TABLES.items():
            values = {key: (table, value) for key, value in getattr(view, name).items()}
            parts.append(f'"{name}":[{",".join(self._memo.part(name).each(_row_json, values).values())}]')
        document = f"{{{','.join(parts)}}}".encode()
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(self.path, sha256(document).hexdigest().encode() + b"\n" + document)


def _row_json(table: StoreTable[Any], value: object) -> str:
    return _json(plain_row(table.row(value)))


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _parse(document: dict[str, object]) -> FleetView:
    """Return the view of a document with the right checksum. Raises the errors that `load` catches for another form."""
    if document["format"] != FORMAT:
        raise ValueError(document["format"])
    # Files of earlier versions do not have the watches and the identity.
    listed: dict[str, Any] = {"watches": (), **document}
    rows = {name: {table.key(each): table.value(each) for each in listed[name]} for name, table in _TABLES.items()}
    facts = {name: document[name] for name in _FACTS} | {name: str(document.get(name, "")) for name in _IDENTITY}
    return FleetView(**facts, format=FORMAT, ack=0, **rows)  # type: ignore[arg-type]
