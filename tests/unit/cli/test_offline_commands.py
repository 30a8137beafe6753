"""Commands that need no switch: their output, errors and exit statuses."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

from tests.command_line import CommandLine
from tests.compiled import compiled
from xenoovs import __version__
from xenoovs.cli.main import COMMANDS
from xenoovs.model.load import load_config
from xenoovs.model.templates import template_names
from xenoovs.openflow.text import parse_flow

TEMPLATES = Path(__file__).parents[3] / "templates"
SOURCE_PORT = Path(__file__).parents[3] / "flows" / "source-port" / "config.yaml"
MANY_SERVICES = Path(__file__).parents[3] / "templates" / "many-services.yaml"
QUICKSTART = TEMPLATES / "quickstart.yaml"


def test_version(xenoovs: CommandLine) -> None:
    assert xenoovs("--version").out == f"xenoovs {__version__}\n"


def test_help_lists_every_command(xenoovs: CommandLine) -> None:
    result = xenoovs("--help")
    assert result.status == 0
    assert all(f"  {name} " in result.out for name in COMMANDS)


def test_a_mistyped_command_is_guessed(xenoovs: CommandLine) -> None:
    result = xenoovs("verfy-offload")
    assert result.status == 64
    assert "Did you mean verify-offload?" in result.err


@pytest.mark.parametrize("words", [("lab", "statu"), ("measure", "rpeort"), ("statu",)])
def test_a_guess_of_a_command_has_one_form_in_all_groups(xenoovs: CommandLine, words: tuple[str, ...]) -> None:
    result = xenoovs(*words)
    nearest = {"statu": "status", "rpeort": "report"}[words[-1]]
    assert result.err.endswith(f"No such command {words[-1]!r}. Did you mean {nearest}?\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_helps(xenoovs: CommandLine, name: str) -> None:
    result = xenoovs(name, "--help")
    assert (result.status, result.err) == (0, "")
    assert result.out.startswith(f"Usage: xenoovs {name} ")


def test_help_imports_no_heavy_library() -> None:
    code = "import sys; from xenoovs.cli.main import run; run(['--help']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert loaded.isdisjoint({"pydantic", "numpy", "rich", "yaml", "ovs", "xenoovs.compile.program"})


@pytest.mark.parametrize("arguments", [("frobnicate",), ("validate",), ("compile", "--frob"), ("new", "nothing")])
def test_wrong_usage(xenoovs: CommandLine, arguments: tuple[str, ...]) -> None:
    result = xenoovs(*arguments)
    assert (result.status, result.out) == (64, "")
    assert result.err.startswith("Usage: xenoovs")


def test_every_template_is_good(xenoovs: CommandLine, tmp_path: Path) -> None:
    lines = xenoovs("new").out.splitlines()[1:]
    assert [line.split(maxsplit=1)[0] for line in lines] == list(template_names())
    assert all(line.endswith(".") for line in lines)
    for name in template_names():
        path = tmp_path / f"{name}.yaml"
        path.write_text(xenoovs("new", name).out)
        result = xenoovs("validate", path)
        assert (result.status, result.err) == (0, ""), name


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("quikstart", "There is no template 'quikstart'. Did you mean quickstart?"),
        ("zzz", "There is no template 'zzz'. There are bluefield-host, "),
    ],
)
def test_no_such_template(xenoovs: CommandLine, name: str, answer: str) -> None:
    result = xenoovs("new", name)
    assert result.status == 64
    assert answer in result.err


def test_validate_shows_what_a_config_needs(xenoovs: CommandLine) -> None:
    result = xenoovs("validate", QUICKSTART, "-o", "json")
    assert json.loads(result.out)["services"] == [
        {
            "service": "dns",
            "backends": 3,
            "source_bits": 6,
            "tolerance": 0.05,
            "blocks": 7,
            "hardware_entries": 7,
        }
    ]


def test_mistakes_go_to_stderr_all_at_once(xenoovs: CommandLine, tmp_path: Path) -> None:
    config = tmp_path / "bad.yaml"
    config.write_text(QUICKSTART.read_text().replace("weight: 50", "weight: -1").replace("egress: p1 ", "egres: p1 "))
    result = xenoovs("validate", config)
    assert (result.status, result.out) == (1, "")
    lines = result.err.splitlines()
    assert len(lines) == 3
    assert all(line.startswith(f"{config}:") for line in lines)


def test_a_missing_file(xenoovs: CommandLine, tmp_path: Path) -> None:
    result = xenoovs("validate", tmp_path / "none.yaml")
    assert (result.status, result.out) == (1, "")
    assert "none.yaml" in result.err


def test_compile_prints_the_program(xenoovs: CommandLine) -> None:
    result = xenoovs("compile", QUICKSTART)
    printed = {parse_flow(line) for line in result.out.splitlines()}
    assert printed == set(compiled(load_config(QUICKSTART)).flows)


def test_compile_reads_standard_input(xenoovs: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = xenoovs("compile", QUICKSTART).out
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(QUICKSTART.read_bytes())))
    assert xenoovs("compile", "-").out == wanted


def test_the_schema_takes_the_templates(xenoovs: CommandLine) -> None:
    schema = json.loads(xenoovs("schema").out)
    for name in template_names():
        jsonschema.validate(yaml.safe_load((TEMPLATES / f"{name}.yaml").read_text()), schema)


def test_trace_offline(xenoovs: CommandLine) -> None:
    result = xenoovs("trace", QUICKSTART, "--src", "198.51.100.7", "--offline")
    assert result.status == 0
    assert "service dns -> backend fips4 (02:00:5e:10:00:04 by p1)" in result.out


def test_trace_of_other_traffic(xenoovs: CommandLine) -> None:
    result = xenoovs("trace", QUICKSTART, "--src", "198.51.100.7", "--dport", "54", "--offline")
    assert "matches no service -> other traffic (" in result.out
    assert "by p1" in result.out


@pytest.mark.parametrize(("port", "backend"), [(50000, "ns1"), (50001, "ns2"), (50007, "ns3")])
@pytest.mark.parametrize("source", ["203.0.113.7", "2001:db8:c::7"])
def test_trace_of_a_service_by_source_port(xenoovs: CommandLine, source: str, port: int, backend: str) -> None:
    result = xenoovs("trace", SOURCE_PORT, "--src", source, "--sport", port, "--offline")
    assert result.out.splitlines()[0].endswith(f"IP protocol 17, port 53 from port {port}")
    assert f"service dns -> backend {backend} (" in result.out


@pytest.mark.parametrize(
    ("source", "way"), [("2001:db8::1", "2001:db8::1 -> 2001:db8::2,"), ("2001:db8::9", "2001:db8::9 -> 2001:db8::1,")]
)
def test_trace_of_an_ip_version_that_no_service_has_is_no_packet_to_itself(
    xenoovs: CommandLine, source: str, way: str
) -> None:
    result = xenoovs("trace", QUICKSTART, "--src", source, "--offline")
    assert (result.status, result.out.startswith(way)) == (0, True)


@pytest.mark.parametrize(
    ("options", "service"),
    [
        ((), "dns-udp"),
        (("--protocol", "tcp"), "dns-tcp"),
        (("--protocol", "icmp"), "ping"),
        (("--dport", "443"), "web"),
        (("--dst", "192.0.2.53", "--protocol", "tcp"), "dns-tcp"),
    ],
)
def test_trace_takes_the_service_that_such_a_packet_is_of(
    options: tuple[str, ...], service: str, xenoovs: CommandLine
) -> None:
    """It always took the first service and reported that the packet belonged to none."""
    result = xenoovs("trace", MANY_SERVICES, "--src", "198.51.100.7", "--offline", *options)
    assert f"service {service} -> backend" in result.out


def test_trace_requires_one_ip_version(xenoovs: CommandLine) -> None:
    result = xenoovs("trace", QUICKSTART, "--src", "198.51.100.7", "--dst", "2001:db8::1", "--offline")
    assert result.status == 64
    assert "have different IP versions" in result.err


BY_ADDRESS = """
version: 1
switch: {bridge: ovsbr1, ingress: [p0], egress: p1}
services:
  - name: web
    vip: 192.0.2.80
    protocol: tcp
    ports: [80]
    backends:
      - {name: web1, weight: 2, address: 192.0.2.2}
      - {name: web2, weight: 1, address: 192.0.2.3}
      - {name: web3, weight: 1, address: 192.0.2.4}
"""


@pytest.mark.parametrize("arguments", [("validate",), ("lint",), ("decision", "--offline"), ("analyse", "clients")])
def test_backends_by_address_need_no_network(
    xenoovs: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my.yaml").write_text(BY_ADDRESS)
    Path("clients").write_text("".join(f"198.51.100.{number}\n" for number in range(64)))
    name, *rest = arguments
    result = xenoovs(name, "my.yaml", *rest)
    assert (result.status, result.err) == (0, "")
    assert "02:ff:ff" not in result.out
