"""The file of overrides."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from xenoovs.agent import runtime_file
from xenoovs.agent.runtime_file import RuntimeFile, parse_runtime, render_runtime
from xenoovs.agent.state import Runtime
from xenoovs.errors import StateUnusable
from xenoovs.show.agent import Override
from xenoovs.switch.process import run

SAVED = Runtime((Override("dns", "fips2", Fraction(1, 2), 1.5, Fraction(70)),), is_paused=True)


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    file = RuntimeFile(tmp_path / "state" / "br.json")
    assert file.load() == Runtime()
    file.save(SAVED)
    assert file.load() == SAVED
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in file.path.parent.iterdir()] == ["br.json"]


def test_nothing_set_is_no_file(tmp_path: Path) -> None:
    file = RuntimeFile(tmp_path / "br.json")
    file.save(SAVED)
    file.save(Runtime())
    assert not file.path.exists()


def test_a_failed_save_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RuntimeFile(tmp_path / "br.json")
    file.save(SAVED)

    def full(_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        file.save(Runtime(is_paused=True))
    assert file.load() == SAVED
    assert [path.name for path in tmp_path.iterdir()] == ["br.json"]


TEXT = render_runtime(SAVED)
BROKEN = [
    b"",
    b"{}",
    b"[1]",
    b"\xff",
    b"[" * 5000,
    TEXT.replace('"version": 1', '"version": 2').encode(),
    TEXT.replace("true", "1").encode(),
    TEXT.replace('"0.5"', "0.5").encode(),
    TEXT.replace('"0.5"', '"1e999999999"').encode(),
    TEXT.replace('"0.5"', '"1/0"').encode(),
    TEXT.replace('"0.5"', '"-1"').encode(),
    TEXT.replace('"70"', '"99999999999"').encode(),
    TEXT.replace("1.5", "NaN").encode(),
    TEXT.replace('"fips2"', '""').encode(),
    TEXT.replace('"backend"', '"server"').encode(),
    TEXT.replace(
        "[", '[{"service": "dns", "backend": "fips2", "weight": "1", "configured": "1", "since_s": 1},'
    ).encode(),
]


@pytest.mark.parametrize("data", BROKEN)
def test_a_broken_file_is_set_aside(tmp_path: Path, data: bytes) -> None:
    file = RuntimeFile(tmp_path / "br.json")
    file.path.write_bytes(data)
    with pytest.raises(StateUnusable, match="cannot be used"):
        file.load()
    assert (tmp_path / "br.json.broken").read_bytes() == data
    assert file.load() == Runtime()


def test_one_third_comes_back() -> None:
    third = Runtime((Override("s", "b", Fraction(1, 3), 0.0, Fraction(2, 7)),))
    assert parse_runtime(render_runtime(third).encode()) == third


def timed(until_s: float) -> Runtime:
    return Runtime((Override("s", "b", Fraction(0), 0.0, Fraction(1), until_s, is_maintenance=True),))


def reread(monkeypatch: pytest.MonkeyPatch, *, boot: str, monotonic_s: float, utc_s: float) -> float:
    """Save 100 s before the end at 1,000 s on the clock and 5,000 s UTC; what is left by these clocks."""
    clocks = runtime_file._clocks
    monkeypatch.setattr(runtime_file, "_clocks", lambda: {"boot": "one", "monotonic_s": 1000.0, "utc_s": 5000.0})
    text = render_runtime(timed(1100.0))
    monkeypatch.setattr(runtime_file, "_clocks", lambda: {**clocks(), "boot": boot})
    monkeypatch.setattr("time.monotonic", lambda: monotonic_s)
    monkeypatch.setattr("time.time", lambda: utc_s)
    (override,) = parse_runtime(text.encode()).overrides
    assert override.until_s is not None
    assert override.is_maintenance
    return override.until_s - monotonic_s


@pytest.mark.parametrize(
    ("boot", "monotonic_s", "utc_s", "left_s"),
    [
        ("one", 1030.0, 5030.0, 70.0),
        ("one", 1030.0, 0.0, 70.0),
        ("one", 1030.0, 1e9, 70.0),
        ("two", 7.0, 5030.0, 70.0),
        ("two", 7.0, 4000.0, 100.0),
        ("two", 7.0, 9000.0, -7.0),
    ],
)
def test_the_clock_counts_within_a_boot_and_the_date_after_another(
    monkeypatch: pytest.MonkeyPatch, boot: str, monotonic_s: float, utc_s: float, left_s: float
) -> None:
    assert reread(monkeypatch, boot=boot, monotonic_s=monotonic_s, utc_s=utc_s) == left_s


def test_what_never_ends_is_readable_by_earlier_versions() -> None:
    assert "clocks" not in TEXT
    assert "until" not in TEXT
    assert "maintenance" not in TEXT


def test_a_broken_file_on_a_read_only_disk_stays(tmp_path: Path) -> None:
    (tmp_path / "br.json").write_text("{")
    run(["mount", "--bind", "-o", "ro", str(tmp_path), str(tmp_path)])
    try:
        with pytest.raises(StateUnusable, match="cannot be used: it is not JSON") as raised:
            RuntimeFile(tmp_path / "br.json").load()
    finally:
        run(["umount", str(tmp_path)])
    assert raised.value.renamed is None
