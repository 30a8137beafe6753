"""The whole program: order, ids, and text."""

from __future__ import annotations

import os
import subprocess
import sys
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from tests.compiled import compiled
from tests.golden.cases import ROOT
from tests.unit.balancer import balancer, claim, program, service
from xenoovs.compile.program import sorted_flows
from xenoovs.model.balancer import OtherTraffic
from xenoovs.openflow.text import render_flow

_COMPILE = """
import sys
from pathlib import Path
from xenoovs.compile.program import compile_config
from xenoovs.compile.program import sorted_flows
from xenoovs.config.load import load_config
program = compile_config(load_config(Path(sys.argv[1])))
print(sorted_flows(program.flows))
print(program)
"""


def test_nothing_is_left_without_services_and_policy() -> None:
    assert compiled(balancer(other=OtherTraffic.LEAVE)).flows == ()


def test_sorted_means_table_then_falling_priority_then_text() -> None:
    services = [service(claim(IPv4Address(f"192.0.2.{i}")), 5, 2, 1, name=f"s{i}") for i in range(9)]
    flows = sorted_flows(program(*services).flows)
    keys = [(flow.table, -flow.priority, render_flow(flow)) for flow in flows]
    assert keys == sorted(keys)


def test_blocks_name_their_backend_and_rule() -> None:
    (only,) = program(service(claim(), 3, 1)).services
    assert [(block.backend.name, block.rule.depth, block.rule.value) for block in only.blocks] == [
        ("b0", 1, 0),
        ("b0", 2, 1),
        ("b1", 2, 3),
    ]


@pytest.mark.parametrize("case", ["several-services", "ipv6"])
def test_the_same_bytes_in_every_process(case: str) -> None:
    """Sets and dictionaries of another order, which PYTHONHASHSEED makes, must not show."""
    assert _compiled_with("1", case) == _compiled_with("4242", case)


def _compiled_with(seed: str, case: str) -> str:
    argv = [sys.executable, "-c", _COMPILE, str(ROOT / case / "config.yaml")]
    env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[3])}
    return subprocess.run(argv, env=env, check=True, capture_output=True, text=True).stdout
