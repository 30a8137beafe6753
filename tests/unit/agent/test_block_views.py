"""The blocks of a service as the agent shows them: matched field, position in the key space, and verdict."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit import balancer as small
from xenoovs.agent.snapshot_builder import block_views
from xenoovs.datapath.megaflow import Verdict
from xenoovs.judge.expected import expected_services
from xenoovs.judge.findings import BlockOffload
from xenoovs.model.balancer import BlockKey, KeyField, Protocol


@pytest.mark.parametrize(
    ("key", "field", "masks"),
    [
        (BlockKey(), "nw_src", [(0, 1), (1, 3), (3, 3)]),
        (BlockKey(KeyField.SOURCE_PORT), "tp_src", [(0, 1), (1, 3), (3, 3)]),
        (BlockKey(KeyField.SOURCE_PORT, (9, 8)), "tp_src", [(0, 0x200), (0x200, 0x300), (0x300, 0x300)]),
    ],
)
def test_blocks_are_described_by_their_field(key: BlockKey, field: str, masks: list[tuple[int, int]]) -> None:
    service = replace(small.service(small.claim(protocol=Protocol.UDP), 2, 1, 1), key=key)
    program = small.program(service).services[0]
    (expected,) = expected_services(small.program(service))
    verdicts = list(Verdict)[:3]
    found = [
        BlockOffload(block, verdict, (), 0, 0, 0, 0) for block, verdict in zip(expected.blocks, verdicts, strict=True)
    ]
    views = block_views(program, found)
    assert [(view.field, view.value, view.mask) for view in views] == [(field, *mask) for mask in masks]
    assert [(view.start, view.size) for view in views] == [(0, 0.5), (0.5, 0.25), (0.75, 0.25)]
    assert [view.verdict for view in views] == verdicts
    assert [view.verdict for view in block_views(program, ())] == [None] * 3
