"""The directory of a lab, and errors when its state is missing or unreadable."""

from __future__ import annotations

from pathlib import Path

import pytest

from xenoovs.errors import LabError
from xenoovs.lab.lab import directory_of, open_lab


def test_directories_parameter_before_environment_before_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XENOOVS_LAB_DIRECTORY", "/run/elsewhere")
    assert directory_of("a", Path("/run/given")) == Path("/run/given/a")
    assert directory_of("a", None) == Path("/run/elsewhere/a")
    monkeypatch.delenv("XENOOVS_LAB_DIRECTORY")
    assert directory_of("a", None) == Path("/run/xenoovs/lab/a")


def test_a_name_cannot_leave_the_directory() -> None:
    with pytest.raises(LabError, match=r"'\.\./a'"):
        directory_of("../a", Path("/run/given"))


@pytest.mark.parametrize("text", ["", "{}", "\0\0", '{"complete": true, "topology": {}}'])
def test_an_unreadable_state_is_reported_with_its_remedy(text: str, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "lab.json").write_text(text)
    with pytest.raises(LabError, match="lab down --lab a"):
        open_lab("a", directory=tmp_path)
