"""Whether the kernel was built for chains of rules, by the files that distributions have."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from xenoovs.datapath.fact import Unknown
from xenoovs.switch.kernel_config import read_tc_chains

_ON, _OFF = "CONFIG_NET_SCHED=y\nCONFIG_NET_TC_SKB_EXT=y\n", "# CONFIG_NET_TC_SKB_EXT is not set\n"


@pytest.mark.parametrize("place", ["boot/config-6.1", "lib/modules/6.1/config", "lib/modules/6.1/build/.config"])
@pytest.mark.parametrize(("text", "is_on"), [(_ON, True), (_OFF, False), ("CONFIG_NET_TC_SKB_EXT_X=y\n", False)])
def test_files_of_distributions(place: str, text: str, is_on: bool, tmp_path: Path) -> None:
    path = tmp_path / place
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert read_tc_chains(root=tmp_path, release="6.1") is is_on


def test_the_kernel_itself(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/config.gz").write_bytes(gzip.compress(_ON.encode()))
    assert read_tc_chains(root=tmp_path, release="6.1") is True


def test_a_host_without_a_kernel_configuration(tmp_path: Path) -> None:
    found = read_tc_chains(root=tmp_path, release="6.1")
    assert isinstance(found, Unknown)
    assert found.reason == "neither /boot/config-6.1 nor /proc/config.gz shows how the kernel was built"
