"""Makes a fresh guest fit for Open vSwitch with the kernel's datapath."""

from __future__ import annotations

import time
from pathlib import Path

from xenoovs.switch.process import run

_MODULES = (
    *("openvswitch", "sch_ingress", "cls_flower", "act_mirred", "act_pedit", "act_gact", "act_csum", "act_skbedit"),
    *("act_vlan", "act_police", "act_tunnel_key", "act_ct", "veth", "bridge", "tun"),
)
# ovs-vswitchd counts the cores anew ten seconds after the last time, and takes boot for a time at which it counted 0
# (lib/ovs-thread.c of 3.1, count_cpu_cores): started earlier it has no handlers, and loses all packets that miss.
OVS_EARLIEST_S = 11.0


def prepare(kernel_root: str) -> None:
    """File systems, the loopback device, kernel modules."""
    run(["mount", "-t", "debugfs", "debugfs", "/sys/kernel/debug"])
    run(["mount", "-t", "devpts", "-o", "mode=600,ptmxmode=666", "devpts", _made("/dev/pts")])
    run(["mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", _made("/dev/shm")])  # noqa: S108 (the place of shm_overview(7))
    _made("/run/netns")
    run(["ip", "link", "set", "lo", "up"])
    # Ports and cables say nothing by themselves; namespaces made later have IPv6 again.
    for scope in ("all", "default"):
        Path(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6").write_text("1")
    run(["modprobe", "-d", kernel_root, "-a", *_MODULES], timeout_s=120.0)


def wait_for_cores() -> None:
    """Return when ovs-vswitchd may be started."""
    time.sleep(max(0.0, OVS_EARLIEST_S - time.monotonic()))


def _made(directory: str) -> str:
    Path(directory).mkdir(exist_ok=True)
    return directory
