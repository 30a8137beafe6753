"""An agent that may not run the programs of its config does not start: all of their probes would fail."""

from __future__ import annotations

from pathlib import Path

from tests.command_line import SMALL_CONFIG, CommandLine

HEALTH = "health: {probe: exec, command: [/bin/true]}\nservices:"


def test_programs_have_to_be_allowed(xenoovs: CommandLine, tmp_path: Path) -> None:
    config = tmp_path / "my.yaml"
    text = SMALL_CONFIG.replace("services:", HEALTH).replace("weight: 70", "weight: 70, address: 198.51.100.2")
    config.write_text(text.replace("weight: 30", "weight: 30, address: 198.51.100.3"))
    for command in ("agent", "controller"):
        result = xenoovs(command, config, "--db", f"unix:{tmp_path}/none.sock", "--once")
        assert result.status == 64
        assert "add --allow-exec" in result.err
