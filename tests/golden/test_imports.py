"""Configs of other load balancers beside the configs that they become (tests/golden/imports)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.command_line import CommandLine
from tests.golden.test_flows import compare
from xenoovs.cli.config import reader_of
from xenoovs.errors import ParseError
from xenoovs.migrate.draft import DraftSwitch, render
from xenoovs.model.load import parse_config

PAGES = sorted(
    page
    for page in (Path(__file__).parents[2] / "docs/how-to").glob("from-*.md")
    if "\nxenoovs new --from" in page.read_text(encoding="utf-8")
)
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FOLDER = Path(__file__).parent / "imports"
_SOURCES = {
    ".cfg": "haproxy",
    ".conf": "keepalived",
    ".flows": "flows",
    ".json": "xenoflow",
    ".txt": "ovn",
}
CASES = {path.name: _SOURCES[path.suffix] for path in sorted(FOLDER.iterdir()) if path.suffix != ".yaml"}
_COMMENT = {"haproxy": "#", "keepalived": "#!", "flows": "#", "ovn": "", "xenoflow": ""}


@pytest.mark.parametrize("name", CASES)
def test_an_imported_config_is_as_recorded_and_valid(name: str, *, update_golden: bool) -> None:
    draft = reader_of(CASES[name])((FOLDER / name).read_text())
    text = render(draft, source=name, switch=DraftSwitch())
    compare(FOLDER / f"{name}.yaml", text, update=update_golden)
    config = parse_config(text, file=name)
    assert (len(config.services), len(config.tunnels)) == (len(draft.services), len(draft.tunnels))


@pytest.mark.parametrize("name", CASES)
def test_every_word_of_a_source_is_used_or_named(name: str) -> None:
    """A word that neither the config nor a comment depends on could be changed without a trace in the output."""
    text = (FOLDER / name).read_text()
    output = _imported(name, text)
    blocks = [range(int(a), int(b) + 1) for a, b in re.findall(rf"# {re.escape(name)}:(\d+)-(\d+): ", output)]
    lost, offset = [], 0
    for number, line in enumerate(text.split("\n"), start=1):
        content = re.split(f"[{_COMMENT[CASES[name]]}]", line)[0] if _COMMENT[CASES[name]] else line
        for word in re.finditer(r"\S+", content) if not any(number in block for block in blocks) else ():
            end = offset + word.end()
            if _imported(name, f"{text[:end]}x{text[end:]}") == output:
                lost.append((number, word[0]))
        offset += len(line) + 1
    assert not lost


def _imported(name: str, text: str) -> str:
    try:
        return render(reader_of(CASES[name])(text), source=name, switch=DraftSwitch())
    except ParseError as error:
        return str(error)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_shows_what_its_command_prints(
    page: Path, xenoovs: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = [*_BLOCK.findall(page.read_text())]
    source = next(text for language, text in blocks if language == "text")
    command = next(text for language, text in blocks if "xenoovs new --from" in text).split()
    shown = next(text for language, text in blocks if language == "yaml")
    Path(command[4]).write_text(source)
    assert xenoovs(*command[1:5]).out == shown
    Path("my.yaml").write_text(shown)
    assert xenoovs("validate", "my.yaml").status == 0
