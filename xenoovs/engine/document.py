"""A change as JSON: what is written of it into saved plans and into the history. `engine/saved.py` reads both."""

from __future__ import annotations

from datetime import datetime, timezone
from hashlib import sha256
from pathlib import Path
from typing import Any

from pydantic_core import to_json

from xenoovs import __version__
from xenoovs.decision.decision import decision_document
from xenoovs.engine.change import Change, summary_of
from xenoovs.errors import FileUnusable
from xenoovs.evidence.dump_file import MAX_TEXT_BYTES
from xenoovs.model.balancer import service_ids
from xenoovs.model.emit import render_config
from xenoovs.model.remote import every_service
from xenoovs.switch.undo_journal import replace_file

MAX_TEXT = 4096


def facts_of(change: Change, *, file: str, partial: bool, user: str) -> dict[str, Any]:
    """Return what a saved plan and an entry of the history have in common. Raises FileUnusable."""
    balancer = change.asked.balancer
    try:
        text = render_config(balancer)
    except ValueError as error:
        raise FileUnusable(file=file, reason=str(error)) from None
    services = every_service(balancer)
    ids = service_ids(service.claim for service in services)
    names = {ids[service.claim]: service.name for service in services}
    return {
        "xenoovs": __version__,
        "at": datetime.now(timezone.utc).replace(microsecond=0),
        "user": _storable(user),
        "bridge": change.bridge,
        "partial": partial,
        "config": {"file": _storable(file), "sha256": digest(text), "lines": text.splitlines()},
        "decision": decision_document(change.target.decision, names),
    }


def entry_of(change: Change, *, file: str, partial: bool, user: str, number: int, command: str) -> dict[str, Any]:
    """Return an entry of the history. Raises FileUnusable."""
    summary = summary_of(change)
    moved = "; clients moved: " + summary.moved_text if summary.moved else ""
    changed = f"{summary.headline()}{moved}" if change.difference.flow_mods else "nothing differed"
    facts = facts_of(change, file=file, partial=partial, user=user)
    words = {"number": number, "command": _storable(command), "changed": changed, "summary": summary.document}
    return {"xenoovs_history": 1, **facts, **words}


def save(path: Path, values: dict[str, Any]) -> None:
    """Write a file of mode 0600, completely or not at all. Raises OSError, FileUnusable."""
    # First, so that the kind of the file can be seen at its start.
    first = {key: values[key] for key in values if key.startswith("xenoovs_")}
    data = to_json({**first, **values}, indent=1) + b"\n"
    if len(data) > MAX_TEXT_BYTES:
        raise FileUnusable(file=str(path), reason=f"it would have more than {MAX_TEXT_BYTES >> 20} MiB")
    replace_file(path, data)


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _storable(name: str) -> str:
    """Return a name as JSON can have it: without bytes that are no UTF-8, and not too long."""
    return name.encode(errors="backslashreplace").decode()[:MAX_TEXT]
