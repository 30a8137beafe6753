"""The cases of flows/ compile to the bytes that are committed; `pytest --update-golden` rewrites them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.cases import CASES, ROOT, WITH_ORIGINAL, Example, examples_of, file_of, program_of
from tests.predicted import predict_megaflows
from xenoovs.compile.encoding import arrives
from xenoovs.compile.program import sorted_flows
from xenoovs.judge.simulate.megaflows import PredictedMegaflow
from xenoovs.judge.simulate.walk import Walk, headers_of, tables_of, walk
from xenoovs.model.balancer import Balancer
from xenoovs.model.load import load_config
from xenoovs.model.packet import service_of
from xenoovs.openflow.flow import match_of
from xenoovs.openflow.text import parse_flow, render_flow, render_match


def test_the_cases_are_those_of_the_table_of_contents() -> None:
    listed = [
        line.split("](")[1].split("/)")[0] for line in (ROOT / "README.md").read_text().splitlines() if "](" in line
    ]
    assert sorted(listed) == list(CASES)


@pytest.mark.parametrize("case", CASES)
def test_program(case: str, *, update_golden: bool) -> None:
    text = "".join(f"{render_flow(flow)}\n" for flow in sorted_flows(program_of(case).flows))
    compare(file_of(case, "program.txt"), text, update=update_golden)


@pytest.mark.parametrize("case", CASES)
def test_megaflows(case: str, *, update_golden: bool) -> None:
    """Those that the packets of packets.yaml make Open vSwitch install."""
    packets = [example.packet for example in examples_of(case)]
    text = "".join(f"{render_megaflow(m)}\n" for m in predict_megaflows(program_of(case).flows, packets))
    compare(file_of(case, "megaflows.txt"), text, update=update_golden)


@pytest.mark.parametrize("case", CASES)
def test_packets(case: str) -> None:
    program, balancer = program_of(case), load_config(file_of(case, "config.yaml"))
    tables = tables_of(program.flows)
    for example in examples_of(case):
        assert went(walk(tables, example.packet), example, balancer) == (example.backend or example.other), example


@pytest.mark.parametrize("case", WITH_ORIGINAL)
def test_the_original_text_reads_back(case: str) -> None:
    """Unknown conditions and actions are preserved; unknown conditions come last in the text."""
    for line in file_of(case, "original.txt").read_text().splitlines():
        flow = parse_flow(line)
        assert parse_flow(render_flow(flow)) == flow
        assert sorted(words(render_flow(flow))) == sorted(words(line))


def words(line: str) -> list[str]:
    return line.replace(" actions=", ",").split(",")


def render_megaflow(megaflow: PredictedMegaflow) -> str:
    match = render_match(match_of(megaflow.match, in_port=megaflow.in_port))
    return f"{match} actions={','.join(megaflow.actions) or 'NORMAL'}"


def went(outcome: Walk, example: Example, balancer: Balancer) -> str:
    """The name of the backend that got the packet, or what became of it otherwise."""
    service = service_of(balancer, example.packet)
    if service is None:
        if not outcome.flows:
            return "left"
        return outcome.copies[0].port or "normal" if outcome.copies else "drop"
    (copy,) = outcome.copies
    assert copy.dl_src == (service.source_mac or example.packet.dl_src).value
    return next(
        b.name
        for b in service.backends
        if arrives(b.next_hop, port=copy.port, sent=copy.headers.get, original=headers_of(example.packet).get)
    )


def compare(path: Path, text: str, *, update: bool) -> None:
    if update:
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text
