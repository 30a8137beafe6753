"""Commands that need no switch, as far as tests/scenario/commands does not have them."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

from tests.command_line import CommandLine
from xenoovs import __version__
from xenoovs.cli.main import COMMANDS
from xenoovs.config.explain import all_keys
from xenoovs.config.templates import template_names

TEMPLATES = Path(__file__).parents[3] / "templates"
QUICKSTART = TEMPLATES / "quickstart.yaml"


def test_version(xenoovs: CommandLine) -> None:
    assert xenoovs("--version").out == f"xenoovs {__version__}\n"


def test_help_lists_every_command(xenoovs: CommandLine) -> None:
    result = xenoovs("--help")
    assert result.status == 0
    assert all(f"  {name} " in result.out for name in COMMANDS)


def test_every_template_is_good(xenoovs: CommandLine, tmp_path: Path) -> None:
    lines = xenoovs("new").out.splitlines()[1:]
    assert [line.split(maxsplit=1)[0] for line in lines] == list(template_names())
    assert all(line.endswith(".") for line in lines)
    for name in template_names():
        path = tmp_path / f"{name}.yaml"
        path.write_text(xenoovs("new", name).out)
        result = xenoovs("validate", path)
        assert (result.status, result.err) == (0, ""), name


def test_compile_reads_standard_input(xenoovs: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = xenoovs("compile", QUICKSTART).out
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(QUICKSTART.read_bytes())))
    assert xenoovs("compile", "-").out == wanted


def test_the_schema_takes_the_templates(xenoovs: CommandLine) -> None:
    schema = json.loads(xenoovs("schema").out)
    for name in template_names():
        jsonschema.validate(yaml.safe_load((TEMPLATES / f"{name}.yaml").read_text()), schema)


def test_every_key_has_a_meaning() -> None:
    assert [key.path for key in all_keys() if not key.meaning] == []


def test_flows_are_imported_from_the_standard_input(xenoovs: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    flows = b"ip,in_port=pf0hpf,actions=mod_dl_dst:02:00:00:00:00:01,output:p0\n"
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(flows)))
    assert xenoovs("import", "flows", "-").out.startswith("# Imported from standard input.\n")


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"\xff\xfe", "is not UTF-8 text (byte 0)"), (b"x\n" * (9 << 20), "has more than 16 MiB")],
    ids=["no text", "too large"],
)
def test_other_files_are_not_imported(xenoovs: CommandLine, tmp_path: Path, content: bytes, message: str) -> None:
    source = tmp_path / "source"
    source.write_bytes(content)
    result = xenoovs("import", "flows", source)
    assert (result.status, result.out, message in result.err) == (1, "", True)


def test_bits_that_analyse_suggests_are_valid_in_the_config(xenoovs: CommandLine, tmp_path: Path) -> None:
    clients, changed = tmp_path / "clients", tmp_path / "better.yaml"
    # Gateways of many sites: all addresses end with .1.
    clients.write_text("".join(f"10.{n % 7}.{n % 251}.1 {n % 5 + 1}\n" for n in range(1500)))
    (service,) = json.loads(xenoovs("analyse", QUICKSTART, clients, "-o", "json").out)["services"]
    better = service["better_bits"]["bits"]
    text = QUICKSTART.read_text()
    changed.write_text(text.replace("    tolerance:", f"    match: {{bits: {better}}}\n    tolerance:"))
    (again,) = json.loads(xenoovs("analyse", changed, clients, "-o", "json").out)["services"]
    assert again["bits"] == better
    assert again["depths"][-1]["selected"] < service["depths"][-1]["selected"] / 2
