"""What a change does to a bridge, in one sentence: for a plan, and for what is saved of it."""

from __future__ import annotations

from fractions import Fraction

import click

from xenoovs.compile.plan import ChangeKind
from xenoovs.dataclass import dataclass
from xenoovs.display import percent
from xenoovs.engine.change import Change
from xenoovs.errors import counted, first_names, worded

SIGN_COLOURS = {"+": "green", "~": "yellow", "-": "red"}
_NAMES_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Summary:
    """What a change does to a bridge: services by name, and numbers of flows. `moved`: services of which clients move,
    with the share of these, the largest first. `shared`: flows to add, change or remove that belong to no service."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    moved: tuple[tuple[str, Fraction], ...]
    shared: int
    flows_before: int
    flows_after: int


def summarise(change: Change) -> Summary:
    """Return the summary of a change."""
    difference, flow_mods = change.difference, change.difference.flow_mods_by_service()
    new = change.new
    # Of many services that are all new, nothing is computed but their names.
    names = {ChangeKind.NEW: [each.service.name for each in change.program.services if each.service_id in new]}
    moved = list[tuple[str, Fraction]]()
    for service in change.services(but=new):
        if service.kind is not ChangeKind.SAME or flow_mods[service.service_id]:
            names.setdefault(service.kind, []).append(service.name)
        if service.moved:
            moved.append((service.name, service.moved))
    same = difference.unchanged + len(difference.changed)
    return Summary(
        added=tuple(names[ChangeKind.NEW]),
        changed=(*names.get(ChangeKind.CHANGED, ()), *names.get(ChangeKind.SAME, ())),
        removed=tuple(names.get(ChangeKind.REMOVED, ())),
        moved=tuple(sorted(moved, key=lambda each: -each[1])),
        shared=flow_mods[0],
        flows_before=same + len(difference.removed),
        flows_after=same + len(difference.added),
    )


def headline(summary: Summary) -> str:
    """Return which services a change adds, changes and removes, in words."""
    kinds = (("added", "+", summary.added), ("changed", "~", summary.changed), ("removed", "-", summary.removed))
    parts = [(how, sign, names) for how, sign, names in kinds if names]
    words = []
    for number, (how, sign, names) in enumerate(parts):
        count = counted(len(names), "service") if number == 0 else str(len(names))
        words.append(click.style(f"{count} {how} ({first_names(names, most=_NAMES_SHOWN)})", fg=SIGN_COLOURS[sign]))
    if not words:
        shared = counted(summary.shared, "flow")
        return f"no service changes; {shared} of other traffic and ARP {worded(summary.shared, 'does', 'do')}"
    return ", ".join(words)


def moved_text(summary: Summary) -> str:
    """Return the share of clients that get another backend, by service."""
    return first_names([f"{percent(share)} of {name}" for name, share in summary.moved], most=_NAMES_SHOWN) or "none"


def summary_document(summary: Summary) -> dict[str, object]:
    """Return a summary for JSON."""
    return {
        "added": list(summary.added),
        "changed": list(summary.changed),
        "removed": list(summary.removed),
        "clients_moved": [{"service": name, "clients": float(share)} for name, share in summary.moved],
        "flows_of_no_service": summary.shared,
        "flows_before": summary.flows_before,
        "flows_after": summary.flows_after,
    }
