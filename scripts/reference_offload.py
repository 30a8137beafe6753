"""Renders docs/reference/offload.md, the table behind `xenoovs lint`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from xenoovs.compile.offloadable.table import OLDEST, TOPICS, Profile, TableRow, Topic, TopicKind, render_version

_HEADINGS = {
    TopicKind.MATCH: "What a flow matches",
    TopicKind.ACTION: "What a flow does",
    TopicKind.COMBINATION: "What comes together",
    TopicKind.ENVIRONMENT: "Ports, drivers and settings",
}
_INTRODUCTION = f"""# What can be offloaded

The table behind `xenoovs lint`, `xenoovs validate` and `xenoovs why`. A row says what Open vSwitch can offer to the
NIC, from version {render_version(OLDEST)} on. The NIC's driver may refuse more. For a flow the worst row counts.

| verdict | means |
|---|---|
| HW | in the NIC, if its driver accepts it and its table has room |
| DEPENDS | on something that the flow does not show |
| PARTIAL | the NIC matches and marks, the CPU acts |
| TC_SW | in the kernel's traffic control: Open vSwitch translates it, drivers refuse it |
| SW | in software: Open vSwitch does not translate it |

Profiles: `tc` is the kernel's datapath with traffic control, `doca` NVIDIA's OVS-DOCA, `dpdk` the userspace datapath
with rte_flow. Rows of `doca` name no version, as NVIDIA numbers its releases differently. Open vSwitch 3.7 moved the
code of the profiles `tc` and `dpdk` to other files; their names are in parentheses.
"""


def offload_page(generated: str) -> str:
    """Return the page. `generated`: the note that the page must not be edited."""
    parts = [generated, _INTRODUCTION]
    for kind in TopicKind:
        parts.append(f"## {_HEADINGS[kind]}\n")
        parts += (part for topic in TOPICS if topic.kind is kind for part in _topic(topic))
    return "\n".join(parts)


def _topic(topic: Topic) -> Iterator[str]:
    yield f"### {topic.name}\n"
    yield f"{topic.what}.\n"
    if topic.example:
        yield f"```\n{topic.example}\n```\n"
    yield "\n".join(
        ("| profile | versions | verdict | why, and what to do | source | log says |", "|---|---|---|---|---|---|")
    )
    yield "\n".join(_rows(topic.rows)) + "\n"


def _rows(rows: Iterable[TableRow]) -> Iterator[str]:
    order = {profile: number for number, profile in enumerate(Profile)}
    for row in sorted(rows, key=lambda row: (order[row.profile], row.first or OLDEST)):
        message = f"`{row.message.strip()}`" if row.message else ""
        cells = (row.profile.value, _versions(row), row.offload.value, row.text, row.source, message)
        yield f"| {' | '.join(cells)} |"


def _versions(row: TableRow) -> str:
    match row.first, row.last:
        case None, None:
            return "all"
        case None, last if last is not None:
            return f"to {render_version(last)}"
        case first, None if first is not None:
            return f"from {render_version(first)}"
        case first, last:
            return f"{render_version(first or OLDEST)} to {render_version(last or OLDEST)}"
