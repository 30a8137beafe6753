"""A tree of findings as lines, and the rule of traffic control at its ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from xenoovs.datapath.megaflow import Verdict
from xenoovs.datapath.tc import TcFilter
from xenoovs.errors import counted


@dataclass(frozen=True, slots=True)
class Node:
    """One line of the tree. `verdict`: shown between `name` and `text`; None: of a service."""

    name: str
    verdict: Verdict | None = None
    text: str = ""
    children: tuple[Node, ...] = ()


def tree_lines(nodes: Sequence[Node], *, indent: str = "") -> Iterator[tuple[str, Verdict | None, str]]:
    """Yield the lines of a tree, each as what is before its verdict, the verdict, and what is behind it."""
    for number, node in enumerate(nodes):
        is_last = number == len(nodes) - 1
        branch, below = ("└─ ", "   ") if is_last else ("├─ ", "│  ")
        yield f"{indent}{branch}{node.name}", node.verdict, node.text
        yield from tree_lines(node.children, indent=indent + below)


def filter_text(found: TcFilter, device: str) -> str:
    """Return a filter of traffic control with its counters, as one line."""
    state = {True: "in_hw", False: "not_in_hw", None: "neither in_hw nor not_in_hw"}[found.in_hw]
    counters = found.counters
    packets = "" if counters is None else f", {counted(counters.packets, 'packet')}, {counters.hw_packets} in hardware"
    return f"tc filter of {device}, pref {found.pref} handle {found.handle:#x}: {state}{packets}"


def tc_to_json(found: TcFilter) -> dict[str, object]:
    """Return a filter of traffic control for JSON."""
    counters = found.counters
    return {
        "pref": found.pref,
        "handle": found.handle,
        "in_hw": found.in_hw,
        "packets": None if counters is None else counters.packets,
        "hw_packets": None if counters is None else counters.hw_packets,
    }
