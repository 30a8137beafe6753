"""Facts that the kernel shows in files, from directories made for the test."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from xenoovs.datapath.fact import Unknown
from xenoovs.switch.devices import device_pci, read_kernel, read_tc_chains

RELEASE = "6.1.0-49-arm64"
NAMES = ("cls_flower", "act_mirred")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _modules(root: Path) -> object:
    return read_kernel(NAMES, root=root, release=RELEASE).modules


def test_loaded_built_in_and_on_disk(tmp_path: Path) -> None:
    library = tmp_path / "lib/modules" / RELEASE
    _write(tmp_path / "proc/modules", "openvswitch 200704 0 - Live 0x0000000000000000\n")
    _write(library / "modules.builtin", "kernel/net/sched/act_mirred.ko\n")
    _write(library / "modules.dep", "kernel/net/sched/cls-flower.ko.zst: kernel/net/core/x.ko.zst\n")
    assert _modules(tmp_path) == {"cls_flower": True, "act_mirred": True}


def test_a_loaded_module_needs_no_library(tmp_path: Path) -> None:
    _write(tmp_path / "proc/modules", "cls_flower 61440 0 - Live 0x0\n")
    assert _modules(tmp_path) == {"cls_flower": True}


def test_a_module_that_is_nowhere(tmp_path: Path) -> None:
    library = tmp_path / "lib/modules" / RELEASE
    _write(library / "modules.builtin", "kernel/net/sched/act_mirred.ko\n")
    _write(library / "modules.dep", "")
    assert _modules(tmp_path) == {"cls_flower": False, "act_mirred": True}


@pytest.mark.parametrize("compressed", [False, True])
def test_a_kernel_without_modules_is_read_by_its_configuration(tmp_path: Path, compressed: bool) -> None:
    text = "CONFIG_NET_ACT_MIRRED=y\n# CONFIG_NET_CLS_FLOWER is not set\n"
    if compressed:
        (tmp_path / "proc").mkdir()
        (tmp_path / "proc/config.gz").write_bytes(gzip.compress(text.encode()))
    else:
        _write(tmp_path / "boot" / f"config-{RELEASE}", text)
    assert _modules(tmp_path) == {"cls_flower": False, "act_mirred": True}


def test_a_broken_configuration_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/config.gz").write_bytes(b"\x1f\x8bnonsense")
    assert isinstance(_modules(tmp_path), Unknown)


def test_nothing_to_read_is_unknown(tmp_path: Path) -> None:
    kernel = read_kernel(NAMES, root=tmp_path, release=RELEASE)
    assert isinstance(kernel.modules, Unknown)
    assert isinstance(kernel.hugepages_bytes, Unknown)


def test_hugepages_of_all_sizes(tmp_path: Path) -> None:
    pools = tmp_path / "sys/kernel/mm/hugepages"
    _write(pools / "hugepages-2048kB/nr_hugepages", "3072\n")
    _write(pools / "hugepages-1048576kB/nr_hugepages", "2\n")
    assert read_kernel(NAMES, root=tmp_path, release=RELEASE).hugepages_bytes == (3072 << 21) + (2 << 30)


def test_pci_device_behind_a_network_device(tmp_path: Path) -> None:
    function = tmp_path / "sys/devices/pci0000:00/0000:03:00.0"
    function.mkdir(parents=True)
    (tmp_path / "sys/class/net/p0").mkdir(parents=True)
    (tmp_path / "sys/class/net/p0/device").symlink_to(function)
    assert device_pci("p0", root=tmp_path) == "0000:03:00.0"
    assert device_pci("lo", root=tmp_path) is None


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
