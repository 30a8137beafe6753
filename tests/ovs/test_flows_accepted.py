"""A real ovs-vswitchd takes the flows of each case of flows/ and gives them back, byte for byte."""

from __future__ import annotations

import pytest

from tests.golden.cases import CASES, WITH_ORIGINAL, file_of
from tests.ovs.dummy import DummyBridge
from xenoovs.openflow.text import parse_flow, render_flow

pytestmark = pytest.mark.ovs


@pytest.mark.parametrize("case", CASES)
def test_program(dpu: DummyBridge, case: str) -> None:
    text = file_of(case, "program.txt").read_text()
    dpu.add_flows(text)
    assert in_our_order(dpu.dump_flows()) == text.splitlines()
    # OpenFlow 1.4 writes actions in other words (set_field for mod_dl_dst), which read back as the same flows.
    flows = {parse_flow(line) for line in text.splitlines()}
    assert {parse_flow(line) for line in dpu.dump_flows(version="OpenFlow14")} == flows


@pytest.mark.parametrize("case", WITH_ORIGINAL)
def test_original(dpu: DummyBridge, case: str) -> None:
    """Also after it has been through our parser."""
    lines = file_of(case, "original.txt").read_text().splitlines()
    dpu.add_flows("".join(f"{render_flow(parse_flow(line))}\n" for line in lines))
    assert in_our_order(dpu.dump_flows()) == lines


def in_our_order(lines: list[str]) -> list[str]:
    """By table, falling priority and text, as program.txt is."""
    return sorted(lines, key=lambda line: (parse_flow(line).table, -parse_flow(line).priority, line))
