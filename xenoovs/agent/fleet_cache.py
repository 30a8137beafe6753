"""The last view of a fleet's store in a file, so that a DPU that boots without the store forwards."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

from xenoovs.agent.runtime_file import replace_file
from xenoovs.errors import FleetCacheUnusable, StoreMalformed
from xenoovs.store.rows import DPUS, SERVICES, WATCHES
from xenoovs.store.view import FORMAT, FleetView

_MAX_SIZE_BYTES = 64 * 1024 * 1024
"""A thousand services of 16 blocks are 1.5 MB."""


class FleetCache:
    """The file: the SHA-256 of the rest on its first line, then JSON; mode 0600, replaced as a whole."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> FleetView | None:
        """Return the view that was saved; None: there is none. Raises FleetCacheUnusable."""
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
        try:
            return _parse(json.loads(document))
        except (StoreMalformed, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise FleetCacheUnusable(path=str(self.path), reason="it is of another version of xenoovs") from None

    def save(self, view: FleetView) -> None:
        """Save all of it or nothing, also when the machine loses power. Blocks; raises OSError."""
        document = json.dumps(_document(view), separators=(",", ":")).encode()
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(self.path, sha256(document).hexdigest().encode() + b"\n" + document)


def _document(view: FleetView) -> dict[str, object]:
    services = [{**SERVICES.row(each), "groups": sorted(each.groups)} for each in view.services.values()]
    dpus = [{**DPUS.row(each), "groups": sorted(each.groups)} for each in view.dpus.values()]
    watches = [{**WATCHES.row(each), "witnesses": sorted(each.witnesses)} for each in view.watches.values()]
    return {
        "format": FORMAT,
        "name": view.name,
        "generation": view.generation,
        "intent": view.intent,
        "services": services,
        "dpus": dpus,
        "watches": watches,
    }


def _parse(document: dict[str, object]) -> FleetView:
    """Return the view of a document with the right checksum. Raises what a document of another form raises."""
    if document["format"] != FORMAT:
        raise ValueError(document["format"])
    services = {each["name"]: SERVICES.value(each) for each in document["services"]}  # type: ignore[attr-defined]
    dpus = {each["name"]: DPUS.value(each) for each in document["dpus"]}  # type: ignore[attr-defined]
    watches = {each["target"]: WATCHES.value(each) for each in document.get("watches", ())}  # type: ignore[attr-defined]
    generation, intent = int(str(document["generation"])), int(str(document["intent"]))
    return FleetView(
        str(document["name"]), FORMAT, generation, intent, 0, services=services, dpus=dpus, watches=watches
    )
