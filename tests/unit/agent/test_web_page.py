"""The status page: its document, its policy, and the JSON that it draws."""

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
from xenoovs.agent.web.page import COLUMNS, MAX_SERVICES, agent_json, asset, cells, headers, page
from xenoovs.datapath.megaflow import Verdict
from xenoovs.show.agent import BlockView, LazySnapshot

FILES = ("page.html", "page.js", "agent.js", "fleet.js", "style.css")
PAGES = [("page.js", "agent.js"), ("page.js", "fleet.js")]


def shown_of(lazy: LazySnapshot) -> Any:
    return json.loads(agent_json(lazy))


@pytest.mark.parametrize("scripts", PAGES)
def test_nothing_is_loaded_from_other_hosts(scripts: tuple[str, ...]) -> None:
    text = page(*scripts).replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"url\((?!#)|@import|https?:|\bsrc=|srcset=|action=", text)
    assert all(value.startswith("data:") for value in re.findall(r'href="([^"]*)"', text))


@pytest.mark.parametrize("name", FILES)
def test_no_text_can_become_markup(name: str) -> None:
    """Nothing parses HTML, and no element has a style or a handler of its own."""
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacent|DOMParser|document\.write|eval\(| style=| on[a-z]+=", asset(name)
    )


@pytest.mark.parametrize("scripts", PAGES)
def test_the_policy_names_the_very_script_and_style(scripts: tuple[str, ...]) -> None:
    policy = headers(*scripts)["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert len(re.findall(r"'sha256-[A-Za-z0-9+/]{43}='", policy)) == 2
    for name in (*scripts, "style.css"):
        assert asset(name) in page(*scripts)


def test_few_blocks_are_drawn_as_they_are() -> None:
    made = blocks("0011", "hsa-")
    drawn = cells(made)
    assert [(cell.start, cell.size, cell.backend, cell.verdict) for cell in drawn] == [
        (block.start, block.size, block.backend, block.verdict) for block in made
    ]
    assert [cell.tip for cell in drawn[:2]] == [
        "b0 · HW · nw_src=0.0.0.0/0.0.0.3",
        "b0 · SW · nw_src=0.0.0.2/0.0.0.3",
    ]


@pytest.mark.parametrize(("field", "bits"), [("ipv6_src", "::1/::1"), ("tp_src", "0x1/0x1")])
def test_blocks_of_other_fields_are_shown_as_such(field: str, bits: str) -> None:
    made = replace(blocks("01", "hh")[1], field=field)
    assert cells([made])[0].tip == f"b1 · HW · {field}={bits}"


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
