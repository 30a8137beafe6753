"""The output of pktgen after the signal that ends it."""

from __future__ import annotations

from pathlib import Path
from threading import Timer

import pytest

from xenoovs.measure import pktgen_program


def test_the_result_of_pktgen_is_read_again_until_its_thread_has_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load that ended on time failed with `pktgen: Result: Starting`."""
    monkeypatch.setattr(pktgen_program, "ROOT", tmp_path)
    shown = tmp_path / "cl1"
    shown.write_text("Params: count 0\nResult: Starting\n")
    later = Timer(0.1, shown.write_text, ["Result: OK: 406213(c406000+d213) usec, 29661 (64byte,0frags)\n"])
    later.start()
    assert pktgen_program.result("cl1") == (406_213, 29_661)
    later.join()


def test_a_thread_that_never_stops_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pktgen_program, "ROOT", tmp_path)
    monkeypatch.setattr(pktgen_program, "STOP_S", 0)
    (tmp_path / "cl1").write_text("Result: Starting\n")
    with pytest.raises(OSError, match="Result: Starting"):
        pktgen_program.result("cl1")
