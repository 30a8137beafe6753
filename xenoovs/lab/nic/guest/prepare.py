"""Prepares a new guest for Open vSwitch with the kernel's datapath."""

from __future__ import annotations

import os
import time
from pathlib import Path

from xenoovs.switch.process import run

_MODULES = (
    *("openvswitch", "sch_ingress", "cls_flower", "act_mirred", "act_pedit", "act_gact", "act_csum", "act_skbedit"),
    *("act_vlan", "act_police", "act_tunnel_key", "act_ct", "veth", "bridge", "tun"),
    # The kernel of the guest cannot load by itself what a tunnel port of Open vSwitch needs.
    *("geneve", "vxlan", "ip_gre", "vport-geneve", "vport-vxlan", "vport-gre"),
)
# ovs-vswitchd counts the cores every ten seconds, and assumes that it counted 0 at boot (lib/ovs-thread.c of 3.1,
# count_cpu_cores): when it starts earlier, it has no handlers and loses all packets that miss.
OVS_EARLIEST_S = 11.0


def prepare(kernel_root: str) -> None:
    """Mount file systems, set the loopback device up, load kernel modules."""
    run(["mount", "-t", "debugfs", "debugfs", "/sys/kernel/debug"])
    run(["mount", "-t", "devpts", "-o", "mode=600,ptmxmode=666", "devpts", _made("/dev/pts")])
    run(["mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", _made("/dev/shm")])  # noqa: S108 (the place of shm_overview(7))
    _made("/run/netns")
    run(["ip", "link", "set", "lo", "up"])
    # Ports and cables send nothing by themselves; namespaces made later have IPv6 again.
    for scope in ("all", "default"):
        Path(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6").write_text("1")
    # No gre0 and the like in every namespace (sysctl/net.rst of the kernel).
    Path("/proc/sys/net/core/fb_tunnels_only_for_init_net").write_text("2")
    run(["modprobe", "-d", kernel_root, "-a", *_MODULES], timeout_s=120.0)
    # So that modprobe(8) finds further modules without -d.
    modules = Path(_made("/lib/modules"), os.uname().release)
    if not modules.exists():
        modules.symlink_to(f"{kernel_root}/lib/modules/{modules.name}")


def wait_for_cores() -> None:
    """Wait until ovs-vswitchd can be started."""
    time.sleep(max(0.0, OVS_EARLIEST_S - time.monotonic()))


def _made(directory: str) -> str:
    Path(directory).mkdir(exist_ok=True)
    return directory
