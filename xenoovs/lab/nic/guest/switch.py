"""A real Open vSwitch with the kernel's datapath, in the guest's first namespace."""

from __future__ import annotations

from collections.abc import Sequence

from xenoovs.lab.private_ovs import Datapath, PrivateOvs, start_database, start_vswitchd


def start_kernel_ovs(ovs: PrivateOvs, *, settings: Sequence[str]) -> PrivateOvs:
    """Start `ovs`. `settings`: other_config of Open_vSwitch from the first moment, as `key=value`."""
    ovs.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    start_database(ovs)
    ovs.vsctl("--no-wait", "set", "Open_vSwitch", ".", *(f"other_config:{setting}" for setting in settings))
    start_vswitchd(ovs, datapath=Datapath.KERNEL)
    return ovs
