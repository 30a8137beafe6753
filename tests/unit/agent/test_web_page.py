"""The status page as text: escaped, whole without JavaScript, drawn from the blocks alone."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from html.parser import HTMLParser
from itertools import pairwise
from random import Random
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.snapshots import NOW_S, blocks, lazy_snapshot, snapshot
from xenoovs.agent.web.html import Markup, element, join
from xenoovs.agent.web.page import MAX_SERVICES, asset, body, headers, page
from xenoovs.agent.web.service import COLUMNS, cells
from xenoovs.datapath.megaflow import Verdict
from xenoovs.show.agent import BlockView, Event, Override


class Elements(HTMLParser):
    """The tags of a document, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def read(text: str) -> Elements:
    found = Elements()
    found.feed(text)
    return found


@given(st.text(), st.text())
def test_no_text_becomes_markup(child: str, value: str) -> None:
    found = read(element("p", child, title=value))
    assert [tag for tag, _ in found.tags] == ["p"]
    assert "<" not in element("p", child).removeprefix("<p>").removesuffix("</p>")


def test_markup_is_preserved_and_omitted_values_are_not_written() -> None:
    assert element("p", Markup("<b>x</b>"), None, "&", class_="a", data_label=None) == '<p class="a"><b>x</b>&amp;</p>'
    assert join("a", None, "<") == "a&lt;"


@pytest.mark.parametrize("hostile", ['<img src=x onerror="alert(1)">', "'\"><script>1</script>", "</style>", "{{7*7}}"])
def test_text_from_any_source_stays_text(hostile: str) -> None:
    service = snapshot().services[0]
    backend = replace(service.backends[0], name=hostile, reason=hostile, mac=hostile)
    rude = replace(service, name=hostile, vips=(hostile,), backends=(backend, *service.backends[1:]))
    shown = replace(
        snapshot(),
        services=(rude,),
        bridge=hostile,
        last_error=hostile,
        config_problem=hostile,
        events=(Event(NOW_S, hostile, hostile, {hostile: hostile}, 1),),
        overrides=(Override(hostile, hostile, Fraction(1), NOW_S),),
    )
    tags = [tag for tag, _ in read(page(lazy_snapshot(shown))).tags]
    assert tags.count("script") == 1
    assert "img" not in tags
    assert not any(
        name.startswith("on") for _, attributes in read(page(lazy_snapshot(shown))).tags for name in attributes
    )
    assert read(body(lazy_snapshot(shown))).text.count(hostile) >= 8


def test_blocks_of_a_backend_that_the_config_no_longer_has_are_drawn() -> None:
    """As while a pause keeps the bridge as it was."""
    service = snapshot().services[0]
    shown = replace(snapshot(), services=(replace(service, backends=service.backends[1:]),))
    assert [attributes["class"] for tag, attributes in read(body(lazy_snapshot(shown))).tags if tag == "rect"][:8] == [
        "gone"
    ] * 8


def test_nothing_is_loaded_from_other_hosts() -> None:
    addresses = [
        value
        for _, attributes in read(page(lazy_snapshot())).tags
        for name, value in attributes.items()
        if name in ("src", "href", "action", "srcset", "data")
    ]
    assert all(str(value).startswith("data:") for value in addresses)
    assert not re.search(r"url\((?!#)|@import|https?:", asset("style.css") + asset("script.js"))


def test_no_style_or_handler_stands_in_an_element() -> None:
    assert not any("style" in attributes for _, attributes in read(page(lazy_snapshot())).tags)


def test_the_policy_names_the_very_script_and_style() -> None:
    policy = headers()["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert len(re.findall(r"'sha256-[A-Za-z0-9+/]{43}='", policy)) == 2
    assert asset("script.js") in page(lazy_snapshot())
    assert asset("style.css") in page(lazy_snapshot())


def test_drawings_are_well_formed() -> None:
    for drawing in re.findall(r"<svg.*?</svg>", page(lazy_snapshot())):
        ElementTree.fromstring(drawing)


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
    text = read(body(lazy_snapshot(replace(snapshot(), services=many)))).text
    assert "192.0.2.80" in text
    assert f"{101 - MAX_SERVICES} more services" in text


def test_commands_on_the_page_reach_its_agent() -> None:
    """With several agents, the commands on the page of one failed with `several agents run`."""
    paused = lazy_snapshot(replace(snapshot(), is_paused=True, pending_flow_mods=0))
    shown = read(body(replace(paused, command_options=" --bridge ovsbr1"))).text
    assert "nothing is changed until `xenoovs resume --bridge ovsbr1`" in shown
    assert "nothing is changed until `xenoovs resume`" in read(body(paused)).text
