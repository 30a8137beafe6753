"""The last view of a fleet's store in a file, so that a DPU that boots without the store forwards."""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from xenoovs.agent.runtime_file import replace_file
from xenoovs.errors import FleetCacheUnusable, StoreMalformed
from xenoovs.fleet.services import Memo
from xenoovs.store.rows import DPUS, SERVICES, WATCHES
from xenoovs.store.view import FORMAT, FleetView, StoredService, Watch

_MAX_SIZE_BYTES = 64 * 1024 * 1024
"""A thousand services of 16 blocks are 1.5 MB."""
_FACTS, _IDENTITY = ("name", "generation", "intent"), ("store_id", "commit_id", "content")


class FleetCache:
    """The file: the SHA-256 of the rest on its first line, then JSON; mode 0600, replaced as a whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._memo = Memo()

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
        services = self._memo.each(_service_json, {name: (each,) for name, each in view.services.items()})
        watches = self._memo.each(_watch_json, {name: (each,) for name, each in view.watches.items()})
        document = _document(view, services.values(), watches.values()).encode()
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(self.path, sha256(document).hexdigest().encode() + b"\n" + document)


def _document(view: FleetView, services: Iterable[str], watches: Iterable[str]) -> str:
    facts = {"format": FORMAT, **{name: getattr(view, name) for name in (*_FACTS, *_IDENTITY)}}
    dpus = [{**DPUS.row(each), "groups": sorted(each.groups)} for each in view.dpus.values()]
    lists = f'"dpus":{_json(dpus)},"services":[{",".join(services)}],"watches":[{",".join(watches)}]'
    return f"{_json(facts)[:-1]},{lists}}}"


def _service_json(service: StoredService) -> str:
    return _json({**SERVICES.row(service), "groups": sorted(service.groups)})


def _watch_json(watch: Watch) -> str:
    return _json({**WATCHES.row(watch), "witnesses": sorted(watch.witnesses)})


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _parse(document: dict[str, object]) -> FleetView:
    """Return the view of a document with the right checksum. Raises what a document of another form raises."""
    if document["format"] != FORMAT:
        raise ValueError(document["format"])
    services = {each["name"]: SERVICES.value(each) for each in document["services"]}  # type: ignore[attr-defined]
    dpus = {each["name"]: DPUS.value(each) for each in document["dpus"]}  # type: ignore[attr-defined]
    watches = {each["target"]: WATCHES.value(each) for each in document.get("watches", ())}  # type: ignore[attr-defined]
    # Files of earlier versions do not have the identity.
    facts = {name: document[name] for name in _FACTS} | {name: str(document.get(name, "")) for name in _IDENTITY}
    return FleetView(**facts, format=FORMAT, ack=0, services=services, dpus=dpus, watches=watches)  # type: ignore[arg-type]
