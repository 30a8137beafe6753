"""Completions of a shell: commands, labs, templates, services and backends; none if there is an error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from tests.command_line import SMALL_CONFIG, CommandLine
from xenoovs.cli.main import COMMANDS, cli

LARGE = SMALL_CONFIG + "# \n" * (1 << 20)
HEAVY = {"ssl", "numpy", "aiohttp", "pydantic", "asyncio", "rich", "xenoovs.model.schema", "xenoovs.engine.engine"}


def offered(*words: str, incomplete: str = "") -> list[str]:
    completion = ShellComplete(cli, {}, "xenoovs", "_XENOOVS_COMPLETE")
    return [item.value for item in completion.get_completions([*words], incomplete)]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The config of the environment; two labs, of which one has a config."""
    path = tmp_path / "my.yaml"
    path.write_text(SMALL_CONFIG)
    monkeypatch.setenv("XENOOVS_CONFIG", str(path))
    monkeypatch.setenv("XENOOVS_LAB_DIRECTORY", str(tmp_path / "labs"))
    for name in ("one", "two"):
        (tmp_path / "labs" / name).mkdir(parents=True)
        (tmp_path / "labs" / name / "lab.json").touch()
    (tmp_path / "labs/one/config.yaml").write_text(SMALL_CONFIG.replace("dns", "web"))
    path.with_name("other.yaml").write_text(SMALL_CONFIG.replace("dns", "mail"))
    monkeypatch.chdir(tmp_path)
    return path


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell(xenoovs: CommandLine, shell: str) -> None:
    result = xenoovs("--completion", shell)
    assert result.status == 0
    assert "_XENOOVS_COMPLETE" in result.out
    assert "--version" in offered(incomplete="--")


@pytest.mark.usefixtures("config")
@pytest.mark.parametrize(
    ("words", "incomplete", "found"),
    [
        ("", "", " ".join(COMMANDS)),
        ("", "ver", "verify-offload"),
        ("new", "m", "many-services minimal"),
        ("weight", "", "dns"),
        ("weight dns", "", "fips2 fips3"),
        ("weight web", "", ""),
        ("drain", "", "dns fips2 fips3"),
        ("drain dns", "", "fips2 fips3"),
        *((words, "", "dns") for words in ("why --service", "verify-offload --service")),
        *((words, "", "fips2 fips3") for words in ("lab fail", "lab fail --end")),
        *((words, "", "one two") for words in ("apply --lab", "lab down --lab")),
        ("why other.yaml --service", "", "mail"),
    ],
)
def test_what_is_offered(words: str, incomplete: str, found: str) -> None:
    assert offered(*words.split(), incomplete=incomplete) == found.split()


def test_services_of_a_lab_and_none_where_it_has_no_config(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XENOOVS_CONFIG")
    assert [offered("weight", "--lab", name) for name in ("one", "two")] == [["web"], []]
    monkeypatch.setenv("XENOOVS_LAB_DIRECTORY", str(config))
    assert offered("apply", "--lab") == []


def test_services_of_included_files(config: Path) -> None:
    (config.parent / "more").mkdir()
    for name in ("web", "mail"):
        file = config.parent / "more" / f"{name}.yaml"
        file.write_text(f"include: ../my.yaml\nservices: [{{name: {name}, backends: [{{name: {name}1}}]}}]\n")
    config.write_text(f"include: more\n{SMALL_CONFIG}")
    assert offered("why", "--service") == ["dns", "mail", "web"]


def test_bug_a_name_that_is_a_number_to_yaml_ended_a_completion_with_a_traceback(config: Path) -> None:
    config.write_text("services: [{name: 443, backends: [{name: 1}]}, {name: web}]")
    assert (offered("weight"), offered("weight", "443")) == (["443", "web"], ["1"])


def test_a_config_that_is_a_pipe_offers_nothing(config: Path) -> None:
    """A read of the pipe would block for ever."""
    config.unlink()
    os.mkfifo(config)
    assert offered("why", "--service") == []


@pytest.mark.parametrize(
    "text",
    ["", "[", "services: 3", "services: [1]", "services: [{}]", "\0", "a: &a [*a]", pytest.param(LARGE, id="large")],
)
def test_a_wrong_config_offers_nothing(config: Path, text: str, capfd: pytest.CaptureFixture[str]) -> None:
    config.write_text(text)
    assert offered("weight") == []
    config.unlink()
    assert offered("weight") == []
    assert capfd.readouterr() == ("", "")


PROGRAM = """
import sys
from click.shell_completion import ShellComplete
from xenoovs.cli.main import cli
heavy, *words = sys.argv[1:]
found = ShellComplete(cli, {}, "xenoovs", "_XENOOVS_COMPLETE").get_completions(words, "")
print(len(found), *sorted({*heavy.split()} & {*sys.modules}))
"""


@pytest.mark.usefixtures("config")
@pytest.mark.parametrize(("words", "count"), [((), len(COMMANDS)), (("weight",), 1), (("weight", "dns"), 2)])
def test_an_answer_imports_no_heavy_room(words: tuple[str, ...], count: int) -> None:
    argv = [sys.executable, "-c", PROGRAM, " ".join(HEAVY), *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(count)]


@pytest.mark.usefixtures("config")
def test_bash_completes() -> None:
    """As bash calls it: the function of the script, with all words and the index of the current one."""
    script = """
        eval "$(xenoovs --completion bash)"
        COMP_WORDS=(xenoovs weight dns fip) COMP_CWORD=3
        _xenoovs_completion xenoovs
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    done = subprocess.run(
        ["bash", "-c", script], env={**os.environ, "PATH": path}, capture_output=True, text=True, check=True
    )
    assert (done.stdout.split(), done.stderr) == (["fips2", "fips3"], "")
