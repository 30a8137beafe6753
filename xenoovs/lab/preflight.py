"""What a lab needs of the machine it runs on, found out before anything is made."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from xenoovs.errors import LabError

TOOLS: Mapping[str, str] = {
    "ip": "iproute2",
    "ethtool": "ethtool",
    "tee": "coreutils",
    "ovs-vswitchd": "openvswitch-switch",
    "ovsdb-server": "openvswitch-switch",
    "ovsdb-tool": "openvswitch-common",
    "ovs-vsctl": "openvswitch-switch",
}
"""Program -> Debian package."""

_TUN = Path("/dev/net/tun")
_IPV6 = Path("/proc/sys/net/ipv6")


@dataclass(frozen=True, slots=True)
class Host:
    """Facts of a machine. `missing`: tools that are not installed. `ipv6`: whether the kernel has it switched on."""

    is_root: bool
    missing: tuple[str, ...]
    has_tun: bool
    has_ipv6: bool


def probe_host() -> Host:
    """Look at this machine; changes nothing."""
    return Host(
        is_root=os.geteuid() == 0,
        missing=tuple(tool for tool in TOOLS if shutil.which(tool) is None),
        has_tun=_TUN.exists() and os.access(_TUN, os.R_OK | os.W_OK),
        has_ipv6=_IPV6.exists(),
    )


def check_root(host: Host) -> None:
    """Raises LabError for anybody but root."""
    if not host.is_root:
        raise LabError("a lab is made of network namespaces, which takes root: run the same command with `sudo`")


def check_host(host: Host, *, needs_ipv6: bool) -> None:
    """Raises LabError with the first thing that is missing and what to do."""
    check_root(host)
    if host.missing:
        packages = " ".join(sorted({TOOLS[tool] for tool in host.missing}))
        raise LabError(f"{', '.join(host.missing)} not found; on Debian: `apt-get install {packages}`")
    if not host.has_tun:
        raise LabError(
            f"{_TUN} cannot be opened, which Open vSwitch needs for its userspace datapath: `modprobe tun`, "
            f"or give the container that device (`--device {_TUN}`)"
        )
    if needs_ipv6 and not host.has_ipv6:
        raise LabError("the config has IPv6 services and the kernel's IPv6 is off: boot without `ipv6.disable=1`")
