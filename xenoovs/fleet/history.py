"""The history of a fleet, whose entries are written with their changes and stay after an undo; and freezes."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import NamedTuple

from xenoovs.dataclass import fields, replace
from xenoovs.display import decimal, moment, printable
from xenoovs.errors import first_names
from xenoovs.store.view import Action, Changes, Dpu, FleetView, Intent

MAX_ENTRIES, _SPARE = 1000, 100
"""The controller deletes older entries than these, a hundred at a time: each deletion makes a generation."""
MAX_COMMENT, _MAX_TEXT = 200, 1000
_NAMED = 6
"""Most backends, DPUs and services that an entry names."""


def with_entry(view: FleetView, changes: Changes, entry: Action, *, changed: str = "") -> Changes:
    """Return changes with an entry, after setting its number, config and `changed`. `changed`: more for it."""
    number = max((*view.actions, *changes.actions), default=0) + 1
    given = changes.intents.keys() - view.intents.keys() - {each.config for each in changes.actions.values() if each}
    texts = first_names([*_changed(view, changes), *filter(None, [changed])], most=_NAMED)
    config = given.pop() if len(given) == 1 else 0
    words, comment = entry.text[:MAX_COMMENT], entry.comment[:MAX_COMMENT]
    entry = replace(entry, number=number, text=words, comment=comment, changed=texts[:_MAX_TEXT], config=config)
    return replace(changes, actions={**changes.actions, number: entry})


def oldest_entries(view: FleetView) -> dict[int, Action | None]:
    """Return the entries to delete; empty while fewer than `_SPARE` are too many."""
    surplus = len(view.actions) - MAX_ENTRIES
    return dict.fromkeys(sorted(view.actions)[:surplus]) if surplus >= _SPARE else {}


def _changed(view: FleetView, changes: Changes) -> Iterator[str]:
    """Yield what changes do to backends and DPUs, in words."""
    for name, after in changes.overrides.items():
        before = view.overrides.get(name)
        old = before.weight if before else after.configured if after else None
        new = after.weight if after else before.configured if before else None
        if old is not None and new is not None:
            yield f"{'/'.join(name)} {decimal(old)} -> {decimal(new)}"
    for freeze in changes.freezes.values():
        yield f"frozen until {moment(freeze.until_ms)}" if freeze else "freeze ended"
    for key, dpu in changes.dpus.items():
        was = view.dpus.get(key) or Dpu(key, frozenset())
        differs = [
            f"{each.name.removeprefix('is_')} {_shown(getattr(was, each.name))} -> {_shown(getattr(dpu, each.name))}"
            for each in fields(Dpu)
            if dpu is not None and each.name != "is_unfit" and getattr(was, each.name) != getattr(dpu, each.name)
        ]
        if differs:
            yield f"{key} {', '.join(differs)}"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return (",".join(sorted(value)) if isinstance(value, frozenset) else str(value)) or "none"


class HistoryEntry(NamedTuple):
    """An entry, and the config that it wrote; None if it wrote none, or the store no longer has it."""

    action: Action
    intent: Intent | None = None


def history(view: FleetView) -> list[HistoryEntry]:
    """Return all entries, the newest first. Configs of earlier versions have no entry in the store."""
    given = {each.config for each in view.actions.values()}
    earlier = (
        Action(0, each.created_ms, each.author, "apply", config=each.number)
        for each in view.intents.values()
        if each.number not in given
    )
    actions = sorted((*view.actions.values(), *earlier), key=attrgetter("at_ms", "number", "config"), reverse=True)
    return [HistoryEntry(each, view.intents.get(each.config)) for each in actions]


def freeze_text(view: FleetView, *, now_ms: int) -> str:
    """Return the message that the fleet is frozen, until when, by whom and why; empty if it is not."""
    for each in view.freezes.values():
        if now_ms < each.until_ms:
            said = printable(f"by {each.author}: {each.reason or 'no comment'}")
            return f"the fleet is frozen until {moment(each.until_ms)}, {said}"
    return ""
