"""Findings as a tree of lines, with filters of traffic control at its leaves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from xenoovs.dataclass import dataclass
from xenoovs.datapath.megaflow import Verdict, match_of
from xenoovs.display import duration
from xenoovs.errors import counted
from xenoovs.judge.expected import OutsideKind, match_of_fields
from xenoovs.judge.findings import BlockOffload, ListedMegaflow, OffloadFindings
from xenoovs.judge.links import Node, filter_text, tc_to_json
from xenoovs.judge.report import NO_ANSWERS, block_to_json
from xenoovs.openflow.text import render_match

_MAX_MEGAFLOWS = 10
"""Most megaflows of one block that are shown as text."""


@dataclass(frozen=True, slots=True)
class _Grouped:
    """Listed megaflows by what they belong to, each in the order of the dump."""

    blocks: dict[int, list[ListedMegaflow]]
    outside: dict[tuple[OutsideKind, str, tuple[str, ...]], list[ListedMegaflow]]
    has_tc: bool


def _grouped(findings: OffloadFindings) -> _Grouped:
    blocks, outside = defaultdict[int, list[ListedMegaflow]](list), defaultdict[object, list[ListedMegaflow]](list)
    for each in findings.listed:
        if each.block is not None:
            blocks[id(each.block)].append(each)
        else:
            outside[each.outside].append(each)
    return _Grouped(blocks, outside, any(each.tc for each in findings.listed))  # type: ignore[arg-type]


def offload_tree(findings: OffloadFindings) -> tuple[Node, ...]:
    """Return a node for each service, for answers that several services may share, and for other traffic."""
    grouped = _grouped(findings)
    answers = {key: found for key, found in grouped.outside.items() if key[0] is OutsideKind.ANSWERS}
    services = (
        Node(
            service.name,
            children=(
                *(_block(block, grouped) for block in findings.blocks if block.block.service == service.name),
                *(
                    _outside(f"answers from {key[1]}", found, grouped)
                    for key, found in answers.items()
                    if key[2] == (service.name,)
                ),
                *([Node("answers", Verdict.ABSENT, NO_ANSWERS)] if service.name in findings.unanswered else ()),
            ),
        )
        for service in findings.services
    )
    shared = (
        _outside(f"answers of {', '.join(key[2])} from {key[1]}", found, grouped)
        for key, found in answers.items()
        if len(key[2]) > 1
    )
    other = (
        _outside(f"other traffic, {key[0].value}, from {key[1]}", found, grouped)
        for key, found in grouped.outside.items()
        if key not in answers
    )
    return (*services, *shared, *other)


def tree_to_json(findings: OffloadFindings) -> dict[str, object]:
    grouped = _grouped(findings)
    services = [
        {
            "service": service.name,
            "blocks": [
                {**block_to_json(block), "megaflow_list": _megaflows(grouped.blocks.get(id(block.block), ()))}
                for block in findings.blocks
                if block.block.service == service.name
            ],
        }
        for service in findings.services
    ]
    outside = [
        {"kind": key[0].value, "in_port": key[1], "services": list(key[2]), "megaflow_list": _megaflows(found)}
        for key, found in grouped.outside.items()
    ]
    return {"services": services, "outside": outside}


def _block(found: BlockOffload, grouped: _Grouped) -> Node:
    name = f"{found.block.backend}  {render_match(found.block.flow.match)}"
    text = counted(found.packets, "packet") if found.megaflows else ""
    return Node(name, found.verdict, text, _nodes(grouped.blocks.get(id(found.block), ()), grouped))


def _outside(name: str, found: Sequence[ListedMegaflow], grouped: _Grouped) -> Node:
    worst = max((each.verdict for each in found), key=lambda verdict: verdict.badness)
    packets = counted(sum(each.packets for each in found), "packet")
    return Node(name, worst, packets, _nodes(found, grouped))


def _nodes(found: Sequence[ListedMegaflow], grouped: _Grouped) -> tuple[Node, ...]:
    nodes = [_megaflow(each, has_tc=grouped.has_tc) for each in found[:_MAX_MEGAFLOWS]]
    if len(found) > _MAX_MEGAFLOWS:
        nodes.append(Node(f"and {counted(len(found) - _MAX_MEGAFLOWS, 'more megaflow')} (all with -o json)"))
    return tuple(nodes)


def _megaflow(found: ListedMegaflow, *, has_tc: bool) -> Node:
    megaflow = found.megaflow
    used = "never used" if megaflow.used_s is None else f"used {duration(megaflow.used_s)} ago"
    packets = f"{counted(found.packets, 'packet')}, {found.hw_packets} in hardware, {used}"
    children: tuple[Node, ...] = (Node(f"{_match(found)} -> {','.join(megaflow.actions)}"),)
    if found.tc is not None:
        children = (*children, Node(filter_text(found.tc, megaflow.in_port or "-")))
    elif has_tc and megaflow.layer == "tc":
        children = (*children, Node("no tc filter has its cookie"))
    return Node(f"megaflow {megaflow.ufid or '(no ufid)'}", found.verdict, packets, children)


def _match(found: ListedMegaflow) -> str:
    return render_match(match_of_fields(found.megaflow.in_port, match_of(found.megaflow)))


def _megaflows(found: Iterable[ListedMegaflow]) -> list[dict[str, object]]:
    return [
        {
            "ufid": each.megaflow.ufid,
            "in_port": each.megaflow.in_port,
            "match": _match(each),
            "actions": ",".join(each.megaflow.actions),
            "verdict": each.verdict.value,
            "packets": each.packets,
            "hw_packets": each.hw_packets,
            "used_s": each.megaflow.used_s,
            "tc": None if each.tc is None else tc_to_json(each.tc),
        }
        for each in found
    ]
