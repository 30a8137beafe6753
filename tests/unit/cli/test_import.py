"""`xenoovs import`: from a file or the standard input to a config that validates."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.command_line import CommandLine

FLOWS = "ip,in_port=pf0hpf,actions=mod_dl_dst:02:00:00:00:00:01,output:p0\n"


def test_what_is_imported_validates(xenoovs: CommandLine, tmp_path: Path) -> None:
    source, config = tmp_path / "flows.txt", tmp_path / "my.yaml"
    source.write_text(FLOWS)
    result = xenoovs("import", "flows", source)
    assert (result.status, result.err) == (0, "1 service imported\n")
    config.write_text(result.out)
    assert xenoovs("validate", config).status == 0


def test_names_of_bridge_and_ports(xenoovs: CommandLine, tmp_path: Path) -> None:
    source = tmp_path / "backends.json"
    source.write_text('{"backends": [{"name": "a", "mac_address": "02:00:00:00:00:01"}]}')
    result = xenoovs(
        "import", "xenoflow", source, "--bridge", "br0", "--ingress", "a0", "--ingress", "a1", "--egress", "b0"
    )
    assert "  bridge: br0" in result.out
    assert "  ingress: [a0, a1]\n  egress: b0\n" in result.out


def test_from_the_standard_input(xenoovs: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(FLOWS.encode())))
    result = xenoovs("import", "flows", "-")
    assert result.out.startswith("# Imported from standard input.\n")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xfe", "is not UTF-8 text (byte 0)"),
        (b"x\n" * (9 << 20), "has more than 16 MiB"),
        (b"x", "source: column 1: expected flows"),
        (b"x 1\ny 2\n", "found 'x 1' in: 'x 1'"),
    ],
)
def test_other_files_are_refused_with_a_sentence(
    xenoovs: CommandLine, tmp_path: Path, content: bytes, message: str
) -> None:
    source = tmp_path / "source"
    source.write_bytes(content)
    result = xenoovs("import", "flows", source)
    assert (result.status, result.out) == (1, "")
    assert message in result.err


def test_a_file_without_a_service_is_an_error(xenoovs: CommandLine, tmp_path: Path) -> None:
    source = tmp_path / "my.yaml"
    source.write_text("version: 1\nswitch:\n")
    result = xenoovs("import", "keepalived", source)
    assert result.status == 1
    assert "my.yaml: no service was found, so nothing was imported; is it from keepalived?" in result.err
