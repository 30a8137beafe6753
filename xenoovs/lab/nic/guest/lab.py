"""Builds a lab inside the guest, with the ports of the NIC and the kernel's datapath.

`python -m xenoovs.lab.nic.guest.lab NAME MODULE`, the config on stdin; a line of JSON on stdout for each step.
"""

from __future__ import annotations

import json
import os
import sys
import time

from xenoovs.errors import XenoovsError
from xenoovs.lab.host import Progress
from xenoovs.lab.lab import CONFIG, Lab
from xenoovs.lab.lifecycle import LabBuilder, add_namespaces, isolate, link_line, new_lab
from xenoovs.lab.private_ovs import LAB_MAX_IDLE, Datapath, start_private_ovs
from xenoovs.lab.topology import End, Link, plan_topology
from xenoovs.model.balancer import Balancer
from xenoovs.model.emit import render_config
from xenoovs.model.load import parse_config
from xenoovs.switch.process import run


def main() -> int:
    name, module = sys.argv[1:]
    try:
        balancer = parse_config(sys.stdin.buffer.read(), file="config", for_lab=True)
        topology = plan_topology(name, balancer)
        with new_lab(topology) as place:
            (place / CONFIG).write_text(render_config(balancer))
            GuestLabBuilder(Lab(place, topology), balancer, _print_progress, module=module).build()
    except XenoovsError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _print_progress(what: str, done: int, total: int) -> None:
    print(json.dumps([what, done, total]), flush=True)


class GuestLabBuilder(LabBuilder):
    """Builds a lab on the emulated NIC, whose kernel module is `module`."""

    def __init__(self, lab: Lab, balancer: Balancer, progress: Progress, *, module: str) -> None:
        super().__init__(lab, balancer, progress)
        self._module = module

    def add_namespaces(self) -> None:
        # The namespace of the switch is the guest's first one, as on a host.
        switch, *others = self.topology.namespaces
        run(["ip", "netns", "attach", switch, str(os.getpid())])
        add_namespaces(self.netns, others)
        isolate(self.netns, self.topology.namespaces)

    def add_links(self) -> None:
        topology, switch = self.topology, self.topology.switch_namespace
        wires = [link for link in topology.links if link.near.interface in topology.nic_ports]
        run(["insmod", self._module, f"ports={','.join(topology.nic_ports)}"])
        # The switch behind a port is Linux's own: Open vSwitch has the ports of the config and nothing else.
        ends, fabrics = topology.ends, topology.fabrics
        self.netns.batch(f"link add dev {fabric} type bridge mcast_snooping 0" for fabric in fabrics)
        cables = [link for link in topology.links if link not in wires]
        self.netns.batch(line for wire in wires for line in _wire_lines(wire, home=switch))
        self.netns.batch(map(link_line, cables))
        self.compute_checksums(link.far for link in cables)
        self.netns.batch(f"link set dev {end.interface} master {end.bridge}" for end in ends if end.bridge in fabrics)
        self.set_up([*ends, *(End(switch, fabric) for fabric in fabrics)])

    def start_switch(self) -> None:
        wait_for_cores()
        settings = ["hw-offload=true", LAB_MAX_IDLE]
        directory, marks = self.lab.ovs.directory, self.lab.marks
        ovs = start_private_ovs(directory, datapath=Datapath.KERNEL, marks=marks, settings=settings)
        ovs.add_bridge(self.topology.bridge, self.topology.ports_of(self.topology.bridge), datapath=Datapath.KERNEL)


# ovs-vswitchd counts the cores every ten seconds, and assumes that it counted 0 at boot (lib/ovs-thread.c of 3.1,
# count_cpu_cores): when it starts earlier, it has no handlers and loses all packets that miss.
OVS_EARLIEST_S = 11.0


def wait_for_cores() -> None:
    """Wait until ovs-vswitchd can be started."""
    time.sleep(max(0.0, OVS_EARLIEST_S - time.monotonic()))


def _wire_lines(link: Link, *, home: str) -> list[str]:
    """Return the commands of ip(8) that set a port's wire end to the name, MAC and namespace of the far end."""
    port, far = link.near.interface, link.far
    wire = f"{port}-w"
    lines = [f"link set dev {wire} address {far.mac}"] if far.mac else []
    lines += [f"link set dev {device} mtu {link.mtu}" for device in (port, wire) if link.mtu]
    lines.append(f"link set dev {wire} name {far.interface}")
    return lines if far.namespace == home else [*lines, f"link set dev {far.interface} netns {far.namespace}"]


if __name__ == "__main__":
    sys.exit(main())
