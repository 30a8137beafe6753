"""Flows in a dump that are known by their text: a table of 16,000 flows need not be parsed to see that it is right."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from xenoovs.openflow.flow import Flow
from xenoovs.openflow.parse import parse_dump

# OpenFlow 1.4 has no mod_dl_*; there the same action is printed by its own name (ovs-actions(7), set_field).
_SET_FIELD = re.compile(r"set_field:([0-9a-f:]{17})->eth_(src|dst)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Recognised:
    """missing: known flows that the dump does not have, by text. others: what else it has."""

    missing: Mapping[str, Flow]
    others: tuple[Flow, ...]


def recognise(dump: str, known: Mapping[str, Flow]) -> Recognised:
    """Compare a dump without counters (`--no-stats`) with flows by their text, as `render_flow` writes it.

    Raises ParseError for a line that is neither known nor a flow.
    """
    lines = {line.strip() for line in _SET_FIELD.sub(r"mod_dl_\2:\1", dump).split("\n")}
    missing = {text: flow for text, flow in known.items() if text not in lines}
    unknown = "\n".join(sorted(lines - known.keys()))
    return Recognised(missing, tuple(seen.flow for seen in parse_dump(unknown)))
