"""Faults before a lab runs in a machine: each is reported with its remedy, and nothing is left behind."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier, BrokenBarrierError

import pytest

from xenoovs.errors import LabError
from xenoovs.lab.host import marked_processes
from xenoovs.lab.lab import LabState, open_lab, write_state
from xenoovs.lab.nic import machine, up
from xenoovs.lab.nic.machine import GuestKernel
from xenoovs.lab.topology import plan_topology
from xenoovs.model.balancer import Balancer
from xenoovs.model.load import parse_config

CONFIG = """\
version: 1
switch: {bridge: ovsbr1, ingress: [PORTS], egress: p1, other_traffic: drop}
services:
  - {name: dns, vip: 10.3.10.45, backends: [{name: one, mac: 02:00:5e:10:00:02, weight: 1}]}
"""
# Stands in for QEMU: finds its files in its arguments, and runs the fault in $QEMU_DOES.
FAKE_QEMU = """\
#!/bin/sh
while [ $# -gt 0 ]; do
    case $1 in -pidfile) pid=$2 ;; -serial) console=${2#file:} ;; -chardev) sock=${2#*path=}; sock=${sock%%,*} ;; esac
    shift
done
echo "Kernel panic - not syncing" >"$console"
case $QEMU_DOES in
refuse) echo "qemu: cannot set up guest memory" >&2; exit 1 ;;
die) true & echo $! >"$pid"; wait ;;
esac
"""


@pytest.fixture
def labs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory for labs, and a host on which everything is there but a QEMU that works."""
    with tempfile.TemporaryDirectory() as directory:
        programs = Path(directory) / "bin"
        programs.mkdir()
        (programs / "qemu-system-x86_64").write_text(FAKE_QEMU)
        (programs / "qemu-system-x86_64").chmod(0o755)
        path = os.environ["PATH"]
        monkeypatch.setenv("PATH", f"{programs}:{path}")
        monkeypatch.setattr(up, "check_root", lambda: None)
        monkeypatch.setattr(up, "check_needs", lambda: None)
        monkeypatch.setattr(up, "unpacked_kernel", lambda: GuestKernel(Path("/nowhere"), "6.1"))
        monkeypatch.setattr(up, "build_module", lambda kernel: kernel.root / "eswitch.ko")
        monkeypatch.setattr(machine, "build_initrd", lambda *_, start: Path("/nowhere/initrd"))
        yield Path(directory) / "labs"


@pytest.mark.parametrize(
    ("does", "message"),
    [
        ("refuse", "QEMU does not start: qemu: cannot set up guest memory"),
        ("die", "the virtual machine does not run; its console .* said last:\nKernel panic - not syncing"),
    ],
)
def test_a_machine_that_does_not_boot_is_removed_again(
    labs: Path, monkeypatch: pytest.MonkeyPatch, does: str, message: str
) -> None:
    monkeypatch.setenv("QEMU_DOES", does)
    with pytest.raises(LabError, match=message):
        up.up("one", balancer(), guest="guest", directory=labs)
    assert not (labs / "one").exists()
    assert marked_processes(machine.MACHINE_MARK, str(labs / "one" / "vm")) == ()


def test_a_lab_of_that_name_stays_as_it_is(labs: Path) -> None:
    place = labs / "one"
    place.mkdir(parents=True)
    with pytest.raises(LabError, match=r"lab one exists already .* another --lab makes a second one"):
        up.up("one", balancer(), guest="guest", directory=labs)
    assert place.is_dir()


def test_on_this_host_the_error_names_the_command_into_the_machine(labs: Path) -> None:
    (labs / "one").mkdir(parents=True)
    write_state(labs / "one", LabState(complete=True, topology=plan_topology("one", balancer()), nic=True))
    with pytest.raises(LabError, match="lab one is in a virtual machine: `xenoovs lab exec --lab one -- COMMAND`"):
        open_lab("one", directory=labs)


def test_ports_that_the_nic_cannot_have(labs: Path) -> None:
    for ports, message in (
        (", ".join(f"p{i}" for i in range(2, 10)), "the emulated NIC has 8 ports, the config needs 10"),
        ("a-name-of-14-ch", "'a-name-of-14-ch' cannot be a port of the emulated NIC"),
    ):
        with pytest.raises(LabError, match=message):
            up.up("one", balancer(ports), guest="guest", directory=labs)
        assert not labs.exists()


def test_all_missing_programs_are_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    debian = "on Debian: `apt-get install --no-install-recommends make qemu-system-x86`"
    for missing, message in (
        (("make", "qemu-system-x86_64"), f"needs qemu-system-x86_64, make; {debian}"),
        (("apt-get", "apt-cache"), "runs on a kernel from Debian's archive"),
    ):
        monkeypatch.setattr(
            "xenoovs.lab.nic.machine.shutil.which", lambda name, missing=missing: None if name in missing else name
        )
        with pytest.raises(LabError, match=message):
            machine.check_needs()


def test_two_at_once_download_one_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """apt-get refused the second download, and `lab up` failed."""
    both, downloaded = Barrier(2), []

    def download(release: str) -> GuestKernel:
        downloaded.append(release)
        with suppress(BrokenBarrierError):
            both.wait(0.5)
        root = machine.cache_directory() / f"kernel-{release}"
        root.mkdir()
        return GuestKernel(root, release)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(machine, "run", lambda *_, **__: None)
    monkeypatch.setattr(machine, "_current_release", lambda: "6.1")
    monkeypatch.setattr(machine, "_download", download)
    with ThreadPoolExecutor(2) as threads:
        kernels = [call.result() for call in [threads.submit(machine.unpacked_kernel) for _ in range(2)]]
    assert kernels[0] == kernels[1]
    assert downloaded == ["6.1"]


def balancer(ingress: str = "p0") -> Balancer:
    """One service and one backend, whose packets come in by these ports."""
    return parse_config(CONFIG.replace("PORTS", ingress).encode(), file="test.yaml")
