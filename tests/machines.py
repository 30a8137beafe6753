"""Prepares the host for the machines of tests/nic and tests/systemd: `python -m tests.machines`, as root.

Installs Debian's packages that are missing, unpacks the kernel, and builds the emulated NIC's module.
"""

from __future__ import annotations

from pathlib import Path

from xenoovs.lab.nic.machine import PROGRAMS, build_module, unpacked_kernel
from xenoovs.switch.process import missing_programs, run

SYSTEMD = "/lib/systemd/systemd"
IPSEC_MONITOR = "/usr/share/openvswitch/scripts/ovs-monitor-ipsec"
IPSEC_PACKAGES = ("openvswitch-ipsec", "strongswan-charon", "libstrongswan-standard-plugins")
"""From Debian 13 on, openvswitch-ipsec alone brings charon-systemd, which does not read what the monitor writes."""
_IPSEC_FILES = (IPSEC_MONITOR, "/usr/lib/ipsec/charon", "/usr/lib/ipsec/plugins/libstrongswan-gcm.so")


def prepare() -> None:
    """Do nothing where all is there; else this needs root and the network."""
    install_packages()
    build_module(unpacked_kernel())


def install_packages() -> None:
    """Install what is missing."""
    # For `xenoovs measure compare designs`, which compares with IPVS.
    packages = set(missing_programs((*PROGRAMS, "ipvsadm", "tcpreplay")).values())
    if not Path(SYSTEMD).exists():
        packages.add("systemd")
    if not list(Path("/usr/lib").glob("python3*/ensurepip")):
        packages.add("python3-venv")
    # ovs-monitor-ipsec(8) starts the IKE daemon, in the machine alone. Its proposals need AES-GCM, which is a plugin of
    # a package that strongSwan only recommends.
    if not all(Path(file).exists() for file in _IPSEC_FILES):
        packages |= {*IPSEC_PACKAGES}
    if packages:
        run(["apt-get", "update", "-qq"], timeout_s=600.0)
        install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *sorted(packages)]
        run(install, timeout_s=600.0, env={"DEBIAN_FRONTEND": "noninteractive"})


if __name__ == "__main__":
    prepare()
