"""The systemd units use valid options of the commands, and every installer has all units."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from xenoovs.cli.main import cli
from xenoovs.store.rows import StoreDatabase
from xenoovs.store.servers import ServerFiles, files_of

ROOT = Path(__file__).parents[3]
UNITS = sorted((ROOT / "templates").glob("*.service"))
FLEET = Path("/var/lib/xenoovs/fleet")


def lines(unit: Path, key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", unit.read_text().replace("%i", "xenoovs_state"), re.MULTILINE)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_each_command_is_one_with_these_options(unit: Path) -> None:
    commands = [line for key in ("ExecStart", "ExecStop") for line in lines(unit, key)]
    assert commands
    for line in commands:
        program, *words = [word for word in shlex.split(line) if not word.startswith("$")]
        assert program == "/opt/xenoovs/bin/xenoovs"
        command: click.Command = cli
        while isinstance(command, click.Group):
            found = command.get_command(click.Context(command), words.pop(0))
            assert found is not None, line
            command = found
        command.make_context("xenoovs", words)  # a wrong option raises click.UsageError


def test_systemd_follows_the_process_that_serves() -> None:
    found = {unit.stem: lines(unit, "PIDFile") for unit in UNITS if lines(unit, "PIDFile")}
    assert found == {
        "xenoovs-fleet-relay": [str(ServerFiles(FLEET.with_name("relay"), "relay").pid)],
        "xenoovs-fleet-server@": [str(files_of(FLEET, StoreDatabase.STATES).pid)],
    }


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_the_installer_installs_and_the_package_stops_each(unit: Path) -> None:
    assert f"usr/lib/systemd/system/{unit.name}" in (ROOT / "packaging/install.sh").read_text()
    assert unit.name in (ROOT / "packaging/debian/prerm").read_text()
