"""`xenoovs analyse`: real clients beside the config."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command_line import CommandLine

SOURCE_PORT = Path(__file__).parents[3] / "flows" / "source-port" / "config.yaml"
CONFIG = Path(__file__).parents[3] / "templates" / "quickstart.yaml"


@pytest.fixture
def clients(tmp_path: Path) -> Path:
    """Gateways of many sites: all addresses end with .1."""
    path = tmp_path / "clients"
    path.write_text("".join(f"10.{n % 7}.{n % 251}.1 {n % 5 + 1}\n" for n in range(1500)) + "garbage\n")
    return path


def test_for_people(xenoovs: CommandLine, clients: Path) -> None:
    result = xenoovs("analyse", CONFIG, clients)
    assert (result.status, result.err) == (0, "")
    assert "suggested bits: match: {bits: [" in result.out
    assert "lines without an address (1)" in result.out


def test_the_suggested_bits_are_valid_in_the_config(xenoovs: CommandLine, clients: Path, tmp_path: Path) -> None:
    (service,) = json.loads(xenoovs("analyse", CONFIG, clients, "-o", "json").out)["services"]
    better = service["better_bits"]["bits"]
    changed = tmp_path / "better.yaml"
    changed.write_text(CONFIG.read_text().replace("    tolerance:", f"    match: {{bits: {better}}}\n    tolerance:"))
    (again,) = json.loads(xenoovs("analyse", changed, clients, "-o", "json").out)["services"]
    assert again["bits"] == better
    assert again["depths"][-1]["selected"] < service["depths"][-1]["selected"] / 2


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "no client of any service"), ("::1\n", "no client of any service")],
    ids=["empty", "ipv6"],
)
def test_no_client_at_all(xenoovs: CommandLine, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "none").write_text(text)
    result = xenoovs("analyse", CONFIG, tmp_path / "none")
    assert (result.status, message in result.err) == (1, True)


def test_services_by_source_port_are_skipped(xenoovs: CommandLine, clients: Path) -> None:
    result = xenoovs("analyse", SOURCE_PORT, clients)
    assert (result.status, result.err) == (0, "")
    assert "dns: skipped, as it balances by source port, which a list of addresses does not contain" in result.out
    document = json.loads(xenoovs("analyse", SOURCE_PORT, clients, "-o", "json").out)
    assert [spread["service"] for spread in document["services"]] == ["quic"]
    assert document["skipped"] == ["dns"]
    alone = xenoovs("analyse", SOURCE_PORT, clients, "--service", "dns")
    assert (alone.status, "no service balances by the addresses" in alone.err) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "status"),
    [((CONFIG, "/nowhere"), 1), ((CONFIG, "/dev/null", "--service", "x"), 64), (("-", "-"), 64)],
)
def test_wrong_usage(xenoovs: CommandLine, arguments: tuple[object, ...], status: int) -> None:
    assert xenoovs("analyse", *arguments).status == status
