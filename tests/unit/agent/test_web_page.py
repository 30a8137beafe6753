"""The status page: its document, its policy, the JSON that it draws; a snapshot on its way through JSON."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.snapshots import blocks, lazy_snapshot, snapshot
from xenoovs.agent.web.page import COLUMNS, MAX_SERVICES, agent_json, cells, page
from xenoovs.datapath.megaflow import Verdict
from xenoovs.errors import ParseError
from xenoovs.show.codec import to_json
from xenoovs.show.snapshot import BlockView, LazySnapshot, parse_snapshot


def shown_of(lazy: LazySnapshot) -> Any:
    return json.loads(agent_json(lazy))


@pytest.mark.parametrize("script", ["agent.js", "fleet.js"])
def test_the_page_loads_nothing_from_other_hosts_and_no_text_can_become_markup(script: str) -> None:
    """Nothing parses HTML, and no element has a style or a handler of its own."""
    document, headers = page(script)
    text = document.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"url\((?!#)|@import|https?:|\bsrc=|srcset=|action=", text)
    assert all(value.startswith("data:") for value in re.findall(r'href="([^"]*)"', text))
    parsers = r"innerHTML|outerHTML|insertAdjacent|DOMParser|document\.write|eval\("
    assert not re.search(rf"{parsers}| style=| on[a-z]+=", text)
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert len(re.findall(r"'sha256-[A-Za-z0-9+/]{43}='", policy)) == 2


@pytest.mark.parametrize(
    ("field", "bits"), [("nw_src", "0.0.0.2/0.0.0.3"), ("ipv6_src", "::2/::3"), ("tp_src", "0x2/0x3")]
)
def test_few_blocks_are_drawn_as_they_are(field: str, bits: str) -> None:
    made = [replace(block, field=field) for block in blocks("0011", "hsa-")]
    drawn = cells(made)
    assert [(cell.start, cell.size, cell.backend, cell.verdict) for cell in drawn] == [
        (block.start, block.size, block.backend, block.verdict) for block in made
    ]
    assert drawn[1].tip == f"b0 · SW · {field}={bits}"


@given(st.integers(0, 4), st.integers())
def test_many_blocks_become_runs_that_fill_the_strip(backends: int, seed: int) -> None:
    depth, random = 11, Random(seed)
    owners = [f"b{random.randint(0, backends)}" for _ in range(1 << depth)]
    made = [
        BlockView(number, (1 << depth) - 1, number / (1 << depth), 1 / (1 << depth), owner, "nw_src", Verdict.HW)
        for number, owner in enumerate(owners)
    ]
    drawn = cells(made)
    assert len(drawn) <= COLUMNS
    assert drawn[0].start == 0
    assert all(abs(a.start + a.size - b.start) < 1e-9 for a, b in pairwise(drawn))
    assert drawn[-1].start + drawn[-1].size == 1
    assert all(a.backend != b.backend for a, b in pairwise(drawn))


def test_of_very_many_services_those_in_trouble_are_shown() -> None:
    calm = snapshot().services[1]
    many = (*(replace(calm, name=f"calm{number}") for number in range(100)), snapshot().services[0])
    shown = shown_of(lazy_snapshot(replace(snapshot(), services=many)))
    assert shown["snapshot"]["services"][0]["vips"] == ["192.0.2.80"]
    assert shown["left"].startswith(f"{101 - MAX_SERVICES} more services")


def test_commands_on_the_page_reach_its_agent() -> None:
    """With several agents, the commands on the page of one failed with `several agents run`."""
    paused = lazy_snapshot(replace(snapshot(), is_paused=True, pending_flow_mods=0))
    shown = agent_json(replace(paused, command_options=" --bridge ovsbr1"))
    assert "nothing is changed until `xenoovs resume --bridge ovsbr1`" in shown
    assert "nothing is changed until `xenoovs resume`" in agent_json(paused)


def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(to_json(snapshot()))
    return found


def test_a_snapshot_comes_back_from_json_with_keys_of_a_newer_agent_and_without_those_that_an_older_one_lacks() -> None:
    assert parse_snapshot(document()) == parse_snapshot({**document(), "moon_phase": "full"}) == snapshot()
    older = document()
    del older["overrides"]
    assert parse_snapshot(older) == replace(snapshot(), overrides=())


@pytest.mark.parametrize("other", [None, 3, [], {}, {"bridge": "b"}, {**document(), "services": 3}])
def test_anything_else_is_a_parse_error(other: object) -> None:
    with pytest.raises(ParseError, match="the status of an agent"):
        parse_snapshot(other)
