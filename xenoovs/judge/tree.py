"""Findings as a tree of lines, with filters of traffic control at its leaves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from xenoovs.datapath.megaflow import Verdict
from xenoovs.errors import counted
from xenoovs.judge.expected import OutsideKind, match_text
from xenoovs.judge.findings import BlockOffload, MegaflowState, OffloadFindings, OutsideKey
from xenoovs.judge.links import Node, counts_text, filter_text, tc_to_json
from xenoovs.judge.report import NO_ANSWERS, block_to_json
from xenoovs.openflow.text import render_match

_MAX_MEGAFLOWS = 10
"""Most megaflows of one block that are shown as text."""


class OffloadTree:
    """Has a node for each service, for answers that several services may share, and for other traffic."""

    def __init__(self, findings: OffloadFindings) -> None:
        self._findings, self._has_tc = findings, any(each.tc for each in findings.listed)
        self._blocks = defaultdict[int, list[MegaflowState]](list)
        self._outside = defaultdict[OutsideKey, list[MegaflowState]](list)
        for each in findings.listed:
            if each.outside is not None:
                self._outside[each.outside].append(each)
            else:
                self._blocks[id(each.block)].append(each)

    def nodes(self) -> tuple[Node, ...]:
        answers = {key: found for key, found in self._outside.items() if key[0] is OutsideKind.ANSWERS}
        services = (
            Node(
                service.name,
                children=(
                    *map(self._block, self._blocks_of(service.name)),
                    *(
                        self._traffic(f"answers from {key[1]}", found)
                        for key, found in answers.items()
                        if key[2] == (service.name,)
                    ),
                    *(
                        [Node("answers", Verdict.ABSENT, NO_ANSWERS)]
                        if service.name in self._findings.unanswered
                        else ()
                    ),
                ),
            )
            for service in self._findings.services
        )
        shared = (
            self._traffic(f"answers of {', '.join(key[2])} from {key[1]}", found)
            for key, found in answers.items()
            if len(key[2]) > 1
        )
        other = (
            self._traffic(f"other traffic, {key[0].value}, from {key[1]}", found)
            for key, found in self._outside.items()
            if key not in answers
        )
        return (*services, *shared, *other)

    def to_json(self) -> dict[str, object]:
        services = [
            {
                "service": service.name,
                "blocks": [
                    {**block_to_json(block), "megaflow_list": _megaflows(self._blocks[id(block.block)])}
                    for block in self._blocks_of(service.name)
                ],
            }
            for service in self._findings.services
        ]
        outside = [
            {"kind": key[0].value, "in_port": key[1], "services": list(key[2]), "megaflow_list": _megaflows(found)}
            for key, found in self._outside.items()
        ]
        return {"services": services, "outside": outside}

    def _blocks_of(self, service: str) -> list[BlockOffload]:
        return [each for each in self._findings.blocks if each.block.service == service]

    def _block(self, found: BlockOffload) -> Node:
        name = f"{found.block.backend}  {render_match(found.block.flow.match)}"
        text = counted(found.packets, "packet") if found.megaflows else ""
        return Node(name, found.verdict, text, self._some(self._blocks[id(found.block)]))

    def _traffic(self, name: str, found: Sequence[MegaflowState]) -> Node:
        worst = max((each.verdict for each in found), key=lambda verdict: verdict.badness)
        return Node(name, worst, counted(sum(each.packets for each in found), "packet"), self._some(found))

    def _some(self, found: Sequence[MegaflowState]) -> tuple[Node, ...]:
        nodes = list(map(self._megaflow, found[:_MAX_MEGAFLOWS]))
        if len(found) > _MAX_MEGAFLOWS:
            nodes.append(Node(f"and {counted(len(found) - _MAX_MEGAFLOWS, 'more megaflow')} (all with -o json)"))
        return tuple(nodes)

    def _megaflow(self, state: MegaflowState) -> Node:
        megaflow = state.megaflow
        children = [Node(f"{match_text(megaflow)} -> {','.join(megaflow.actions)}")]
        if state.tc is not None:
            children.append(Node(filter_text(state.tc, megaflow.in_port or "-")))
        elif self._has_tc and megaflow.layer == "tc":
            children.append(Node("no tc filter has its cookie"))
        name = f"megaflow {megaflow.ufid or '(no ufid)'}"
        return Node(name, state.verdict, counts_text(state), tuple(children))


def _megaflows(found: Iterable[MegaflowState]) -> list[dict[str, object]]:
    return [
        {
            "ufid": state.megaflow.ufid,
            "in_port": state.megaflow.in_port,
            "match": match_text(state.megaflow),
            "actions": ",".join(state.megaflow.actions),
            "verdict": state.verdict.value,
            "packets": state.packets,
            "hw_packets": state.hw_packets,
            "used_s": state.megaflow.used_s,
            "tc": tc_to_json(state.tc),
        }
        for state in found
    ]
