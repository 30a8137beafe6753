"""Options of an agent of a fleet."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command_line import CommandLine


@pytest.mark.parametrize("name", ["", "a b", "x\ny", "-dpu1", "1" * 64])
def test_a_name_that_no_fleet_can_add_is_refused(xenoovs: CommandLine, tmp_path: Path, name: str) -> None:
    """The agent ran as a DPU that `fleet add-dpu` refuses."""
    said = xenoovs("agent", tmp_path / "dpu.yaml", "--fleet", "unix:/nowhere", "--dpu", name)
    assert (said.status, said.out) == (64, "")
    assert f"--dpu {name!r}: `xenoovs fleet add-dpu` takes letters, digits" in " ".join(said.err.split())
