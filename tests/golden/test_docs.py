"""The documentation's links lead somewhere, its commands exist with their options, and its configs are valid."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click
import pytest
import yaml

from tests.unit.balancer import balancer, claim, service
from xenoovs.cli.main import cli
from xenoovs.config.load import parse_config
from xenoovs.decision.decide import decide
from xenoovs.decision.decision import Decision, DesiredState, shifts
from xenoovs.display import percent
from xenoovs.model.balancer import Churn

ROOT = Path(__file__).parents[2]
PAGES = sorted({*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")})
_FENCED = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_COMMAND = re.compile(r"^(?:\$ |sudo )*(xenoovs .*)$", re.MULTILINE)


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _prose(page: Path) -> str:
    return _FENCED.sub("", page.read_text(encoding="utf-8"))


def _anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes from headings: without punctuation, with hyphens for blanks."""
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in _HEADING.findall(_prose(page))}


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in _LINK.findall(_prose(page)):
        path, _, anchor = link.partition("#")
        if path.startswith("http"):
            continue
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if anchor:
            assert anchor in _anchors(target), link


def _shown() -> Iterator[tuple[str, str]]:
    """Yield (page, command line) for every call of xenoovs in a block of shell commands."""
    for page in PAGES:
        for language, block in _FENCED.findall(page.read_text(encoding="utf-8")):
            if language in ("sh", "console"):
                for line in _COMMAND.findall(block.replace("\\\n", " ")):
                    parts = re.split(r" && |; | \|\|? ", line.partition(" -- ")[0])
                    yield from ((_name(page), part) for part in parts if part.startswith("xenoovs "))


def _unknown(words: list[str]) -> str | None:
    """Return the first word that is no command or option of xenoovs; None if all are known."""
    command: click.Command = cli
    context = click.Context(cli)
    for position, word in enumerate(words):
        if word.startswith("-") and word != "-":
            options = {name for parameter in command.get_params(context) for name in parameter.opts}
            if word.partition("=")[0] not in options:
                return word
        elif isinstance(command, click.Group):
            found = command.get_command(context, words[position])
            if found is None:
                return word
            command = found
    return None


@pytest.mark.parametrize(("page", "line"), sorted(set(_shown())))
def test_commands_and_options_exist(page: str, line: str) -> None:
    words = shlex.split(line.partition(" > ")[0], comments=True)
    assert _unknown(words[1:]) is None, page


_SERVICE = {
    "name": "web",
    "vip": "192.0.2.80",
    "protocol": "tcp",
    "ports": [80],
    "backends": [{"name": "web1", "mac": "02:00:5e:10:00:02", "weight": 1, "address": "198.51.100.2"}],
}
_COMPLETE = {
    "version": 1,
    "switch": {"bridge": "ovsbr1", "ingress": ["p0"], "egress": "p1"},
    "services": [_SERVICE],
}


def _configs() -> Iterator[tuple[str, str]]:
    """Yield (page, YAML) for every config, or part of one, that a page shows."""
    for page in PAGES:
        for language, block in _FENCED.findall(page.read_text(encoding="utf-8")):
            if language == "yaml" and page.name != "metrics.md":
                yield _name(page), block


@pytest.mark.parametrize(("page", "block"), sorted(set(_configs())))
def test_configs_are_valid(page: str, block: str) -> None:
    """A part of a config is completed: with a bridge, and a service whose backends it may name."""
    part = yaml.safe_load(block)
    if "backends" in part:
        part = {"services": [{**_SERVICE, **part}]}
    assert parse_config(yaml.safe_dump({**_COMPLETE, **part}), file=page)


@pytest.mark.parametrize("churn", list(Churn), ids=lambda churn: churn.value)
def test_the_page_shows_what_churn_costs(churn: Churn) -> None:
    old = replace(service(claim(), 5, 4, 3, 3), churn=churn)
    new = replace(service(claim(), 2, 4, 3, 3), churn=churn)
    before = decide(Decision(), DesiredState(balancer(old)))
    after = decide(before, DesiredState(balancer(new)))
    (_, was), (_, now) = *before.services, *after.services
    moved = sum(shift.share for shift in shifts(was, now))
    page = (ROOT / "docs" / "how-to" / "which-do-i-want.md").read_text(encoding="utf-8")
    assert f"in {len(was.active.rows)} blocks" in page
    row = rf"\| `{churn.value}`.* \| {percent(moved)}.* \| {len(now.active.rows)} \|"
    assert re.search(row, page)
