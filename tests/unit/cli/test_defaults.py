"""Which config and lab a command uses by default, and that commands which change something name them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.command_line import SMALL_CONFIG, CommandLine
from tests.unit.balancer import balancer
from xenoovs.cli.main import COMMANDS
from xenoovs.lab.lab import LabState, write_state
from xenoovs.lab.nic.frames import GuestCommand
from xenoovs.lab.nic.machine import VirtualMachine
from xenoovs.lab.target import run_in_vm
from xenoovs.lab.topology import plan_topology
from xenoovs.terminal import defaults

UNIT = Path(__file__).parents[3] / "templates" / "xenoovs-agent.service"


@pytest.fixture
def labs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of labs, without one."""
    monkeypatch.setenv("XENOOVS_LAB_DIRECTORY", str(tmp_path / "labs"))
    return tmp_path / "labs"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "my.yaml"
    path.write_text(SMALL_CONFIG)
    return path


@pytest.fixture
def service_config(config: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The config of the service."""
    path = config.with_name("service.yaml")
    monkeypatch.setattr(defaults, "SERVICE_CONFIG", path)
    return path


def _add_lab(labs: Path, name: str) -> Path:
    (labs / name).mkdir(parents=True)
    write_state(labs / name, LabState(complete=True, topology=plan_topology(name, balancer())))
    return labs / name


def test_the_default_is_the_config_of_the_unit() -> None:
    assert re.findall(r"^ExecStart=\S+ agent (\S+)", UNIT.read_text(), re.MULTILINE) == [str(defaults.SERVICE_CONFIG)]


def test_a_config_of_the_environment(xenoovs: CommandLine, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XENOOVS_CONFIG", str(config))
    result = xenoovs("validate")
    assert (result.status, result.err) == (0, "")
    assert f"{config}: valid" in result.out


def test_the_config_of_the_service(xenoovs: CommandLine, service_config: Path) -> None:
    service_config.write_text(SMALL_CONFIG)
    assert f"{service_config}: valid" in xenoovs("validate").out


def test_a_file_overrides_the_environment(
    xenoovs: CommandLine, config: Path, service_config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service_config.write_text("version: 2")
    monkeypatch.setenv("XENOOVS_CONFIG", str(service_config))
    assert f"{config}: valid" in xenoovs("validate", config).out


def test_clients_alone_are_analysed_with_the_config_of_the_environment(
    xenoovs: CommandLine, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = config.with_name("clients")
    clients.write_text("198.51.100.1\n198.51.100.2\n")
    monkeypatch.setenv("XENOOVS_CONFIG", str(config))
    assert xenoovs("analyse", clients).status == 0
    assert "Missing argument 'CLIENTS'" in xenoovs("analyse").err


@pytest.mark.parametrize("command", ["validate", "compile", "plan", "apply", "remove", "lint", "why", "agent"])
def test_no_config_anywhere(xenoovs: CommandLine, command: str, service_config: Path) -> None:
    result = xenoovs(command)
    assert result.status == 64
    assert "No config: name the FILE" in result.err
    assert f"or set XENOOVS_CONFIG, or make {service_config}; `xenoovs new` prints templates." in result.err


def test_status_without_agent_and_config(xenoovs: CommandLine, labs: Path, service_config: Path) -> None:
    _add_lab(labs, "one")
    result = xenoovs("status", "--lab", "one")
    assert result.status == 1
    assert "no agent answers at" in result.err
    assert "Without an agent, use `xenoovs status FILE`, which reads the bridge." in result.err


def test_an_environment_that_names_no_file(xenoovs: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XENOOVS_CONFIG", "/no/such/file")
    result = xenoovs("plan")
    assert (result.status, result.out) == (64, "")
    assert "XENOOVS_CONFIG names /no/such/file, which does not exist." in result.err


def test_several_configs_are_for_controllers(
    xenoovs: CommandLine, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XENOOVS_CONFIG", f"{config}:{config}")
    assert "XENOOVS_CONFIG names 2 configs: name the FILE." in xenoovs("plan").err
    assert "my.yaml and " in (result := xenoovs("agent").err)
    assert "are both for bridge ovsbr1" in result


def test_a_change_names_its_defaults(
    xenoovs: CommandLine, labs: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _add_lab(labs, "one")
    monkeypatch.setenv("XENOOVS_CONFIG", str(config))
    monkeypatch.setenv("XENOOVS_LAB", "one")
    first, second, *_ = xenoovs("apply").err.splitlines()
    assert (first, second) == ("lab one (XENOOVS_LAB)", f"config {config} (XENOOVS_CONFIG)")
    assert xenoovs("drain", "dns", "fips2").err.startswith("lab one (XENOOVS_LAB)\n")
    assert "XENOOVS" not in xenoovs("plan").err
    assert "XENOOVS" not in xenoovs("apply", config, "--lab", "one").err


def test_the_only_lab(xenoovs: CommandLine, labs: Path, config: Path) -> None:
    assert "--lab needs a name: no lab is up; `xenoovs lab up` makes one." in xenoovs("apply", config, "--lab").err
    _add_lab(labs, "one")
    assert xenoovs("apply", config, "--lab").err.startswith("lab one (the only one)\n")
    _add_lab(labs, "two")
    result = xenoovs("apply", config, "--lab")
    assert result.status == 64
    assert "--lab needs a name: 2 labs are up: one, two." in result.err


def test_a_file_behind_lab_is_no_lab(xenoovs: CommandLine, labs: Path, config: Path) -> None:
    _add_lab(labs, "one")
    result = xenoovs("apply", "--lab", config)
    assert result.status == 64
    assert f"--lab {config}: that is a file. Write FILE before a --lab without a name." in result.err


def test_a_lab_that_is_not_up_is_answered_with_those_that_are(xenoovs: CommandLine, labs: Path, config: Path) -> None:
    _add_lab(labs, "tutorial")
    result = xenoovs("plan", config, "--lab", "tutoral")
    assert result.status == 1
    assert "labs here: tutorial (did you mean tutorial?)" in result.err
    _add_lab(labs, "other")
    assert "--lab needs a name: 2 labs are up: other, tutorial." in xenoovs("lab", "status").err


def test_a_lab_of_the_environment_that_is_not_up(
    xenoovs: CommandLine, labs: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _add_lab(labs, "one")
    monkeypatch.setenv("XENOOVS_LAB", "two")
    assert "XENOOVS_LAB names lab two, which is not up; labs: one." in xenoovs("plan", config).err


@pytest.mark.parametrize("option", ["--db", "--from-dump"])
def test_options_that_are_stronger_than_the_lab_of_the_environment(
    xenoovs: CommandLine, labs: Path, config: Path, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _add_lab(labs, "one")
    monkeypatch.setenv("XENOOVS_LAB", "one")
    result = xenoovs("verify-offload", config, option, "unix:/nowhere/db")
    assert result.status == 1
    assert "/nowhere" in result.err


def test_a_command_in_a_lab_uses_the_config_of_the_lab(xenoovs: CommandLine, labs: Path, config: Path) -> None:
    lab = _add_lab(labs, "one")
    (lab / "config.yaml").write_text(SMALL_CONFIG)
    assert f"config {lab}/config.yaml (of lab one)" in xenoovs("apply", "--lab").err
    (lab / "config.link").symlink_to(config)
    assert f"config {config} (of lab one)" in xenoovs("apply", "--lab").err
    config.unlink()
    assert f"config {lab}/config.yaml (of lab one)" in xenoovs("apply", "--lab").err


def test_labs_are_listed(xenoovs: CommandLine, labs: Path) -> None:
    assert xenoovs("lab", "list").out == "no lab is up; `xenoovs lab up` makes one\n"
    _add_lab(labs, "one")
    _add_lab(labs, "two")
    lines = xenoovs("lab", "list").out.splitlines()
    rows = [line.split()[:4] for line in lines[1:]]
    assert rows == [["one", "damaged", "none", "ovsbr1"], ["two", "damaged", "none", "ovsbr1"]]


@pytest.mark.parametrize("content", [b"", b"{", b'{"complete": true}', b"\xff"])
def test_a_lab_whose_state_is_broken_does_not_hide_the_others(xenoovs: CommandLine, labs: Path, content: bytes) -> None:
    (_add_lab(labs, "one") / "lab.json").write_bytes(content)
    _add_lab(labs, "two")
    result = xenoovs("lab", "list")
    assert result.status == 0
    rows = [line.split()[:4] for line in result.out.splitlines()[1:]]
    assert rows == [["one", "unreadable", "-", "-"], ["two", "damaged", "none", "ovsbr1"]]


def test_a_lab_that_does_not_exist_is_reported_before_its_config(xenoovs: CommandLine, labs: Path) -> None:
    _add_lab(labs, "one")
    result = xenoovs("plan", "--lab", "two")
    assert result.status == 64
    assert "There is no lab two; labs here: one." in result.err


def test_down_names_the_labs_that_are_up(xenoovs: CommandLine, labs: Path) -> None:
    _add_lab(labs, "one")
    assert xenoovs("lab", "down").out == "there is no lab default; up: one (--lab NAME chooses one)\n"


def test_a_virtual_machine_gets_what_the_environment_names(
    labs: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _add_lab(labs, "one")
    sent: list[GuestCommand] = []

    def attach(_machine: VirtualMachine, command: GuestCommand) -> int:
        sent.append(command)
        return 0

    monkeypatch.setattr("xenoovs.lab.target.attach", attach)
    (labs / "one" / "config.link").symlink_to(config)
    run_in_vm(VirtualMachine(labs), ["xenoovs", "apply"], name="one")
    assert sent[0].environment["XENOOVS_LAB"] == "one"
    assert sent[0].environment["XENOOVS_CONFIG"] == str(config)
    assert list(sent[0].files) == [str(config)]


def test_a_mistyped_bridge_of_an_agent_is_answered_with_those_that_have_one(xenoovs: CommandLine, labs: Path) -> None:
    sockets = _add_lab(labs, "one") / "ovs" / "xenoovs"
    sockets.mkdir(parents=True)
    (sockets / "ovsbr1.sock").touch()
    result = xenoovs("pause", "--bridge", "ovsbr", "--lab", "one")
    assert result.status == 1
    assert "there are agents for ovsbr1; did you mean ovsbr1?" in result.err


READS_ONLY = {"history", "status", "describe", "top", "logs", "verify-offload", "why", "plan", "schema", "explain"} | {
    *("new", "import", "validate", "compile", "lint", "analyse", "decision", "trace", "lab", "completion"),
    *("tunnels", "receive"),
}
USES_NEITHER = {"fleet"}
"""No config of the environment and no lab."""


def test_every_command_that_changes_something_announces_what_it_uses() -> None:
    assert {*COMMANDS} - READS_ONLY - USES_NEITHER <= {*defaults.CHANGING}
    assert not READS_ONLY & {*defaults.CHANGING}
