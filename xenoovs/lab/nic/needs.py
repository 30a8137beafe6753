"""What the virtual machine needs of the machine it runs on, found out before anything is made."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Mapping

from xenoovs.errors import LabError

COMPILER = "gcc-12"
"""The compiler of Debian's kernel 6.1, as modules need it."""

PROGRAMS: Mapping[str, str] = {
    "apt-get": "apt",
    "apt-cache": "apt",
    "dpkg": "dpkg",
    "qemu-system-x86_64": "qemu-system-x86",
    "busybox": "busybox-static",
    "modprobe": "kmod",
    "depmod": "kmod",
    COMPILER: "gcc-12",
    "make": "make",
    "ovs-vswitchd": "openvswitch-switch",
    "ovsdb-server": "openvswitch-switch",
    "ovs-vsctl": "openvswitch-switch",
    "ip": "iproute2",
    "tc": "iproute2",
    "ethtool": "ethtool",
}
"""Program -> the package of Debian 12 that brings it. The guest uses the same files."""


def missing_programs() -> tuple[str, ...]:
    """Those that are not installed here."""
    return tuple(program for program in PROGRAMS if shutil.which(program) is None)


def missing_packages() -> tuple[str, ...]:
    """What to install to have them all, sorted."""
    return tuple(sorted({PROGRAMS[program] for program in missing_programs()}))


def check_needs() -> None:
    """Raises LabError with everything that is missing and the command that installs it."""
    if platform.machine() != "x86_64":
        raise LabError(f"the emulated NIC runs on x86_64 alone, this machine is {platform.machine()}")
    missing = missing_programs()
    if {"apt-get", "dpkg"} & set(missing):
        raise LabError("the emulated NIC runs on a kernel from Debian's archive: apt-get and dpkg are not here")
    if missing:
        install = f"apt-get install --no-install-recommends {' '.join(missing_packages())}"
        raise LabError(f"the emulated NIC needs {', '.join(missing)}; on Debian: `{install}`")
