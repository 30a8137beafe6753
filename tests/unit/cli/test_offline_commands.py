"""Commands without a switch, as far as tests/scenario/commands does not have them; defaults, error codes and units."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

from tests.command_line import SMALL_CONFIG, CommandLine
from tests.fake_switch import FakeSwitch, fake_bridge
from tests.unit.balancer import balancer
from xenoovs import __version__
from xenoovs.cli.main import COMMANDS, cli
from xenoovs.cli.status import _dead_ports, _reports
from xenoovs.decision.decision import DesiredState
from xenoovs.engine.engine import Engine
from xenoovs.errors import XenoovsError
from xenoovs.lab.lab import LabState, write_state
from xenoovs.lab.nic.machine import VirtualMachine
from xenoovs.lab.target import run_in_vm
from xenoovs.lab.topology import plan_topology
from xenoovs.model.explain import all_keys
from xenoovs.model.load import parse_config
from xenoovs.model.templates import template_names
from xenoovs.store.rows import StoreDatabase
from xenoovs.store.servers import OvsdbServer, server_of
from xenoovs.terminal import defaults
from xenoovs.terminal.output import echo

ROOT = Path(__file__).parents[3]
UNIT, QUICKSTART = ROOT / "templates/xenoovs-agent.service", ROOT / "templates/quickstart.yaml"


def test_the_default_is_the_config_of_the_unit() -> None:
    assert re.findall(r"^ExecStart=\S+ agent (\S+)", UNIT.read_text(), re.MULTILINE) == [str(defaults.SERVICE_CONFIG)]


def test_a_virtual_machine_gets_the_files_that_are_named_and_none_that_it_has_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, lab, sent = tmp_path / "my.yaml", tmp_path / "labs/one", list[dict[str, Any]]()
    config.write_text(SMALL_CONFIG)
    monkeypatch.setenv("XENOOVS_LAB_DIRECTORY", str(lab.parent))
    lab.mkdir(parents=True)
    write_state(lab, LabState(complete=True, topology=plan_topology("one", balancer())))
    (lab / "config.link").symlink_to(config)
    monkeypatch.setattr("xenoovs.lab.nic.call.attach", lambda *_, **order: sent.append(order))
    monkeypatch.chdir(tmp_path)
    Path("other.yaml").write_bytes(b"version: 1\r\n\xff")
    Path("dump").write_text("a dump")
    words = ["verify-offload", "other.yaml", f"--from-dump={tmp_path}/dump", "--lab", "one", "/", ""]
    of_its_own = ["/proc/self/status", "/sys/class/net/lo/mtu", "/bin/sh"]
    run_in_vm(VirtualMachine(lab.parent), ["xenoovs", *words, *of_its_own], name="one")
    assert {"XENOOVS_LAB": "one", "XENOOVS_CONFIG": str(config)}.items() <= sent[0]["environment"].items()
    texts = {"other.yaml": "version: 1\r\n\udcff", "dump": "a dump", "my.yaml": SMALL_CONFIG}
    assert sent[0]["files"] == {f"{tmp_path}/{name}": text for name, text in texts.items()}


READS_ONLY = {"history", "status", "describe", "top", "logs", "verify-offload", "why", "plan", "explain"} | {
    *("new", "validate", "lint", "decision", "trace", "lab"),
    *("tunnels", "record"),
}
USES_NEITHER = {"fleet"}
"""No config of the environment and no lab."""


def test_every_command_that_changes_something_announces_what_it_uses() -> None:
    assert {*COMMANDS} - READS_ONLY - USES_NEITHER <= {*defaults.CHANGING}
    assert not READS_ONLY & {*defaults.CHANGING}


def test_json_ends_with_the_command(xenoovs: CommandLine, capsys: pytest.CaptureFixture[str]) -> None:
    xenoovs("plan", "--no-such-option", "-o", "json")
    echo("a note", err=True)
    assert capsys.readouterr().err == "a note\n"


def _classes(root: type[XenoovsError] = XenoovsError) -> set[type[XenoovsError]]:
    return {root}.union(*(_classes(each) for each in root.__subclasses__()))


def test_every_code_is_documented_once() -> None:
    """A class with a new name would be a new code for programs: the page shows it."""
    codes = [found.code for found in _classes() if found.__module__ == "xenoovs.errors"]
    assert len(set(codes)) == len(codes)
    assert set(codes) <= set(re.findall(r"^\| `(\w+)`", (ROOT / "docs/reference/errors.md").read_text(), re.MULTILINE))


def test_help_lists_every_command_on_one_screen(xenoovs: CommandLine) -> None:
    result = xenoovs("--help")
    lines = result.out.splitlines()
    assert result.status == 0
    assert all(f"  {name} " in result.out for name in COMMANDS)
    assert (len(lines) <= 40, max(map(len, lines)) <= 80, len(COMMANDS) <= 30) == (True, True, True)
    assert xenoovs("--version").out == f"xenoovs {__version__}\n"


def _all_commands() -> list[click.Command]:
    context, commands, groups = click.Context(cli), list[click.Command](), list[click.Group]([cli])
    while groups:
        group = groups.pop()
        found = [group.get_command(context, name) for name in group.list_commands(context)]
        commands += [each for each in found if each is not None and not isinstance(each, click.Group)]
        groups += [each for each in found if isinstance(each, click.Group)]
    return commands


def test_the_surface_does_not_grow() -> None:
    """A command or an option that is added takes the place of another one."""
    commands = _all_commands()
    options = [each for command in commands for each in command.params if isinstance(each, click.Option)]
    assert (len(commands) <= 69, len(options) <= 444) == (True, True)


def test_each_option_that_is_read_from_the_context_is_one_of_a_command() -> None:
    """Of a misspelt name `option` returns None, as of one that this command does not have."""
    known = {each.name for command in _all_commands() for each in command.params}
    code = [file.read_text() for file in (Path(__file__).parents[3] / "xenoovs").rglob("*.py")]
    read = {name for text in code for name in re.findall(r'\boption\("(\w+)"\)', text)}
    assert (read >= {"control", "lab"}, read - known) == (True, set())


def test_every_template_is_good(xenoovs: CommandLine, tmp_path: Path) -> None:
    lines = xenoovs("new").out.splitlines()[1:]
    assert [line.split(maxsplit=1)[0] for line in lines] == list(template_names())
    assert all(line.endswith(".") for line in lines)
    schema = json.loads(xenoovs("explain", "--schema").out)
    for name in template_names():
        path, text = tmp_path / f"{name}.yaml", xenoovs("new", name).out
        path.write_text(text)
        jsonschema.validate(yaml.safe_load(text), schema)
        result = xenoovs("validate", path)
        assert (result.status, result.err) == (0, ""), name


def test_every_key_has_a_meaning() -> None:
    assert [key.path for key in all_keys() if not key.meaning] == []


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"\xff\xfe", "is not UTF-8 text (byte 0)"), (b"x\n" * (9 << 20), "has more than 16 MiB")],
    ids=["no text", "too large"],
)
def test_other_files_are_not_imported(xenoovs: CommandLine, tmp_path: Path, content: bytes, message: str) -> None:
    source = tmp_path / "source"
    source.write_bytes(content)
    result = xenoovs("new", "--from", "flows", source)
    assert (result.status, result.out, message in result.err) == (1, "", True)


def test_bits_that_analyse_suggests_are_valid_in_the_config(xenoovs: CommandLine, tmp_path: Path) -> None:
    clients, changed = tmp_path / "clients", tmp_path / "better.yaml"
    # Gateways of many sites: all addresses end with .1.
    clients.write_text("".join(f"10.{n % 7}.{n % 251}.1 {n % 5 + 1}\n" for n in range(1500)))
    (service,) = json.loads(xenoovs("decision", QUICKSTART, "--clients", clients, "-o", "json").out)["services"]
    better = service["better_bits"]["bits"]
    text = QUICKSTART.read_text()
    changed.write_text(text.replace("    tolerance:", f"    match: {{bits: {better}}}\n    tolerance:"))
    (again,) = json.loads(xenoovs("decision", changed, "--clients", clients, "-o", "json").out)["services"]
    assert again["bits"] == better
    assert again["depths"][-1]["selected"] < service["depths"][-1]["selected"] / 2


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
        "xenoovs-fleet-relay": [str(OvsdbServer(FLEET.with_name("relay"), "relay").pid)],
        "xenoovs-fleet-server@": [str(server_of(FLEET, StoreDatabase.STATES).pid)],
    }


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_the_installer_installs_and_the_package_stops_each(unit: Path) -> None:
    assert f"usr/lib/systemd/system/{unit.name}" in (ROOT / "packaging/install.sh").read_text()
    assert unit.name in (ROOT / "packaging/debian/prerm").read_text()


def test_bug_status_read_and_compiled_the_flows_of_groups_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    text = SMALL_CONFIG.replace("egress: p1", "egress: p1, failover: in_switch").replace(
        "weight: 30", "weight: 30, egress: p2"
    )
    config = parse_config(text, file="c.yaml")
    bridge = fake_bridge("ovsbr1", ["p0", "p1", "p2"])
    switch = FakeSwitch(bridge)
    Engine(switch).round(DesiredState(config), now_s=0.0)
    dead = [replace(port, link_up=False) if port.name == "p2" else port for port in bridge.ports]
    switch.set_ports(replace(bridge, ports=tuple(dead)))
    report, program = next(_reports(config, switch, interval_s=0.0))
    monkeypatch.setattr(switch, "dump_flows", None)
    ports, moved = _dead_ports(switch, config, program)
    assert report.is_as_configured
    assert (list(ports), [each.backend for each in moved]) == (["p2"], ["fips3"])
