"""Renders docs/reference/offload.md, the table behind `xenoovs lint`."""

from __future__ import annotations

from xenoovs.compile.offloadable.table import OLDEST, TOPICS, Profile, TableRow, Topic, TopicKind, render_version

_HEADINGS = {
    TopicKind.MATCH: "What a flow matches",
    TopicKind.ACTION: "What a flow does",
    TopicKind.COMBINATION: "What comes together",
    TopicKind.ENVIRONMENT: "Ports, drivers and settings",
}
_INTRODUCTION = f"""# What can be offloaded

The table behind `xenoovs lint`, `xenoovs validate` and `xenoovs why`, which also print the reasons. It says what Open
vSwitch can offer to the NIC, from version {render_version(OLDEST)} on. The NIC's driver may refuse more. For a flow
the worst row counts.

| verdict | means |
|---|---|
| HW | in the NIC, if its driver accepts it and its table has room |
| DEPENDS | on something that the flow does not show |
| PARTIAL | the NIC matches and marks, the CPU acts |
| TC_SW | in the kernel's traffic control: Open vSwitch translates it, drivers refuse it |
| SW | in software: Open vSwitch does not translate it |

Profiles: `tc` is the kernel's datapath with traffic control, `doca` NVIDIA's OVS-DOCA, `dpdk` the userspace datapath
with rte_flow. `SW to 2.13 (7)`: software up to version 2.13, for [reason 7](#reasons); an empty cell: it cannot occur.
Verdicts of `doca` name no version, as NVIDIA numbers its releases differently. `doca-ct` and `doca-no-ct` are OVS-DOCA
that offloads connections and that does not (`other_config:hw-offload-ct-size=0`, as some images and HBN set it); where
they have no verdict of their own, that of `doca` counts.
"""


def offload_page(generated: str) -> str:
    """Return the page. `generated`: the note that the page must not be edited."""
    reasons: dict[str, dict[str, None]] = {}
    parts = [generated, _INTRODUCTION]
    for kind in TopicKind:
        rows = [_topic(topic, reasons) for topic in TOPICS if topic.kind is kind]
        parts += [f"## {_HEADINGS[kind]}\n", "| topic | tc | doca | dpdk |", "|---|---|---|---|", *rows, ""]
    sources = {s: f"S{n}" for n, s in enumerate(dict.fromkeys(s for each in reasons.values() for s in each), start=1)}
    parts += ["## Reasons\n"]
    parts += [
        f"{n}. {text} ({','.join(sources[s] for s in each)})" for n, (text, each) in enumerate(reasons.items(), 1)
    ]
    parts += [""]
    parts += ["What Open vSwitch logs of these: `xenoovs why --from-log` reads it.\n", "## Sources\n"]
    parts += ["Open vSwitch 3.7 moved the code of `tc` and `dpdk`; the new places are in parentheses.\n"]
    parts += [f"- {name}: {source}" for source, name in sources.items()]
    return "\n".join((*parts, ""))


def _topic(topic: Topic, reasons: dict[str, dict[str, None]]) -> str:
    cells = [f"`{topic.name}`: {topic.what}"]
    for profile in (Profile.TC, Profile.DOCA, Profile.DPDK):
        fitting = (row for row in topic.rows if row.profile is profile or (profile.is_doca and row.profile.is_doca))
        rows = sorted(fitting, key=lambda row: row.first or OLDEST)
        cells.append("<br>".join(_verdict(row, reasons) for row in rows))
    return f"| {' | '.join(cells)} |"


def _verdict(row: TableRow, reasons: dict[str, dict[str, None]]) -> str:
    reasons.setdefault(row.text, {})[row.source] = None
    setting = "" if row.profile in (Profile.TC, Profile.DOCA, Profile.DPDK) else f" with `{row.profile.value}`"
    return f"{row.offload.value}{setting}{_versions(row)} ({list(reasons).index(row.text) + 1})"


def _versions(row: TableRow) -> str:
    """Return the versions as a range: ` 2.14-3.0`, ` from 2.14`, ` to 2.13`; empty for all."""
    match row.first, row.last:
        case None, None:
            return ""
        case None, last if last is not None:
            return f" to {render_version(last)}"
        case first, None if first is not None:
            return f" from {render_version(first)}"
        case first, last:
            return f" {render_version(first or OLDEST)}-{render_version(last or OLDEST)}"
