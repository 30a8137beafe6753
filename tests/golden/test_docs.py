"""The links of the documentation have targets, its commands exist with their options, and its configs are valid."""

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
from xenoovs.decision.decide import decide
from xenoovs.decision.decision import Decision, DesiredState, shifts
from xenoovs.display import percent
from xenoovs.measure.machines_bed import load_bed_file
from xenoovs.model.balancer import Churn
from xenoovs.model.load import parse_config

ROOT = Path(__file__).parents[2]
PAGES = sorted({*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")})
_FENCED = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_TYPED = {"sh": re.compile(r"^(.*)$", re.MULTILINE), "console": re.compile(r"^\$ (.*)$", re.MULTILINE)}


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _prose(page: Path) -> str:
    return _FENCED.sub("", page.read_text(encoding="utf-8"))


def _anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes from headings: without punctuation, with hyphens for blanks."""
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in _HEADING.findall(_prose(page))}


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_have_targets(page: Path) -> None:
    for link in _LINK.findall(_prose(page)):
        path, _, anchor = link.partition("#")
        if path.startswith("http"):
            continue
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if anchor:
            assert anchor in _anchors(target), link


_INLINE = re.compile(r"`(xenoovs [^`\n{]+)`")
_IN_CODE = re.compile(r"`(xenoovs [^`\n\"\\]+)`")
_EXAMPLE = re.compile(r"^\s+(xenoovs \S.*)$", re.MULTILINE)
_REST = re.compile(r" && |; | \|\|? | > | < | -- |  +#|  +\(|\)$| #")
"""What ends a call of xenoovs in a line."""
_OPTIONS = re.compile(r"(?<=[a-z])\{(?:\w*\.?command_options\(\)|options)\}")
"""Options that reach an agent or an Open vSwitch, after a space of their own."""
_PLACEHOLDER = re.compile(r"\{.*?\}|\[[^]]*\]|\.\.\.$")


def _calls(text: str) -> Iterator[str]:
    """Yield every call of xenoovs in a line of shell."""
    for part in re.split(r" && |; | \|\|? |\$\(", text):
        if found := re.search(r"(?:^| )(xenoovs .*)", part.partition(" #")[0]):
            yield _REST.split(found[1])[0].strip()


def _shown() -> Iterator[tuple[str, str]]:
    """Yield (page, command line) for every call in a block of shell commands, and in the sentences of a page."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for language, block in _FENCED.findall(text):
            if language in ("sh", "console"):
                for line in _TYPED[language].findall(block.replace("\\\n", " ")):
                    yield from ((_name(page), call) for call in _calls(line))
        if page.name != "CHANGELOG.md":
            for line in _INLINE.findall(_prose(page)):
                yield from ((_name(page), _named(call)) for call in _calls(line))


def _named(call: str) -> str:
    """Return a call of a sentence, which may name an option without its value, as in `xenoovs apply --confirm`."""
    words = shlex.split(call)
    is_short = words[-1].startswith("--") and "requires an argument" in (_problem(words[1:]) or "")
    return f"{call} VALUE" if is_short else call


def _calls_in_code() -> Iterator[tuple[str, str]]:
    """Yield (file, command line) for every call that a help text, a message, a comment or a template names."""
    for module in sorted((*(ROOT / "xenoovs").glob("**/*.py"), *(ROOT / "templates").glob("*.*"))):
        text = module.read_text(encoding="utf-8")
        for shown in (*_IN_CODE.findall(text), *_EXAMPLE.findall(text)):
            for call in _calls(shown):
                if not (line := _PLACEHOLDER.sub("X", _OPTIONS.sub("", call))).startswith("xenoovs X"):
                    yield _name(module), _named(line)


def _problem(words: list[str]) -> str | None:
    """Return what is wrong with a command line; None: nothing. `TIME` stands for any value, `on|off` for both."""
    command: click.Command = cli
    context = click.Context(cli, info_name="xenoovs")
    while isinstance(command, click.Group):
        if words and any(words[0] in each.opts for each in command.params):
            if len(words) == 1:
                return None
            try:
                _, words, _ = command.make_parser(context).parse_args(words)
            except click.UsageError as error:
                return error.format_message()
        name, *words = words or [""]
        if name in ("", "COMMAND", "--help", "--version", "--completion"):
            return None
        found = command.get_command(context, name)
        if found is None:
            return f"there is no command {name}"
        command, context = found, click.Context(found, info_name=name, parent=context)
    if "--help" in words:
        return None
    try:
        given, rest, _ = command.make_parser(context).parse_args(words)
    except click.UsageError as error:
        return error.format_message()
    for parameter in command.params:
        value = given.get(parameter.name or "")
        try:
            if isinstance(value, str) and not value.isupper() and value != "...":
                parameter.type.convert(value.partition("|")[0], parameter, context)
        except click.BadParameter as error:
            return error.format_message()
    return f"{rest} are too many" if rest else None


def test_commands_and_options_exist() -> None:
    lines = sorted({*_shown(), *_calls_in_code()})
    assert lines
    problems = ((page, line, _problem(shlex.split(line, comments=True)[1:])) for page, line in lines)
    assert [f"{page}: {line}: {problem}" for page, line, problem in problems if problem is not None] == []


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("nothing", "there is no command nothing"),
        ("lab nothing", "there is no command nothing"),
        ("plan FILE --no-such-option", "No such option"),
        ("plan --lab one --db", "requires an argument"),
        ("plan one two", "['two'] are too many"),
        ("new --no-such", "No such option"),
        ("status --interval 2", "is not a time"),
        ("apply FILE --confirm TIME", None),
        ("verify-offload my.yaml --wait 30s --require 95%", None),
    ],
)
def test_a_wrong_command_is_found(line: str, problem: str | None) -> None:
    found = _problem(line.split())
    assert found is None if problem is None else problem in (found or "")


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
def test_configs_are_valid(page: str, block: str, tmp_path: Path) -> None:
    """A part of a config is completed: with a bridge, and a service whose backends it may name."""
    part = yaml.safe_load(block)
    if "generator" in part:
        (tmp_path / "bed.yaml").write_text(block)
        assert load_bed_file(tmp_path / "bed.yaml")
        return
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
