"""Builds a lab inside the guest: the one of `lab.up`, but its ports are the NIC's and its datapath is the kernel's.

`python -m xenoovs.lab.nic.guest.lab NAME MODULE`, the config on stdin; a line of JSON on stdout for each step.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from xenoovs.config.emit import render_config
from xenoovs.config.load import parse_config
from xenoovs.errors import XenoovsError
from xenoovs.lab.host import Netns, Progress
from xenoovs.lab.lab import CONFIG, Lab, State, directory_of, write_state
from xenoovs.lab.lifecycle import (
    configure_clients,
    configure_machine,
    link_line,
    port_words,
    prepare_namespace,
    start_responder,
)
from xenoovs.lab.nic.guest.prepare import start_kernel_ovs, wait_for_cores
from xenoovs.lab.topology import Link, plan_topology
from xenoovs.model.balancer import Balancer
from xenoovs.switch.process import run

# Emulated, everything takes its time: megaflows of traffic just sent should still be there for who looks at them.
_MAX_IDLE_MS = 300_000


def main() -> int:
    """Build, and tell how far it is."""
    name, module = sys.argv[1:]
    try:
        build(name, parse_config(sys.stdin.buffer.read(), file="config"), module=module, progress=_tell)
    except XenoovsError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def build(name: str, balancer: Balancer, *, module: str, progress: Progress) -> Lab:
    """Lab `name` in this guest, as `xenoovs lab` knows it. Nothing is undone on errors: the guest is thrown away."""
    topology = plan_topology(name, balancer)
    place = directory_of(name, None)
    place.mkdir(mode=0o700, parents=True)
    lab = Lab(place, topology)
    write_state(place, State(complete=False, topology=topology))
    (place / CONFIG).write_text(render_config(balancer))
    _Builder(lab, Netns(lab.marks), module, progress).build()
    write_state(place, State(complete=True, topology=topology))
    return lab


@dataclass(frozen=True, slots=True)
class _Builder:
    """The steps in their order."""

    lab: Lab
    netns: Netns
    module: str
    progress: Progress

    def build(self) -> None:
        topology = self.lab.topology
        total = 4 + len(topology.machines)
        self.progress("namespaces", 0, total)
        self._namespaces()
        self.progress("the NIC", 1, total)
        run(["insmod", self.module, f"ports={','.join(topology.bridges[0].ports)}"])
        self._links()
        self.progress("Open vSwitch", 2, total)
        self._switch()
        self.progress("clients", 3, total)
        configure_clients(self.netns, topology.clients)
        for i, machine in enumerate(topology.machines, start=4):
            self.progress(f"backend {'/'.join(machine.names)}", i, total)
            configure_machine(self.netns, machine)
            start_responder(self.netns, machine, log=self.lab.directory / f"{machine.label}.log")
        self.progress("ready", total, total)

    def _namespaces(self) -> None:
        topology = self.lab.topology
        # The switch is at home in the guest's first namespace, like that of a host.
        run(["ip", "netns", "attach", topology.switch_namespace, str(os.getpid())])
        others = [namespace for namespace in topology.namespaces if namespace != topology.switch_namespace]
        self.netns.batch(f"netns add {namespace}" for namespace in others)
        for namespace in topology.namespaces:
            prepare_namespace(self.netns, namespace)

    def _links(self) -> None:
        topology = self.lab.topology
        fabrics = [bridge.name for bridge in topology.bridges[1:]]
        # The switch behind a port is Linux's own: Open vSwitch has the ports of the config and nothing else.
        self.netns.batch(f"link add dev {fabric} type bridge mcast_snooping 0" for fabric in fabrics)
        ports = {link.near.interface: link for link in topology.links if link.near.bridge == topology.bridge}
        cables = [link for link in topology.links if link.near.interface not in ports]
        self.netns.batch(_plug_lines(ports.values(), home=topology.switch_namespace))
        self.netns.batch(map(link_line, cables))
        for link in cables:
            # Packets that stay inside the machine have no checksum unless the sender must make it (ethtool(8)).
            self.netns.execute(link.far.namespace, ["ethtool", "-K", link.far.interface, "tx", "off"])
        ends = [end for link in topology.links for end in (link.near, link.far)]
        self.netns.batch(f"link set dev {end.interface} master {end.bridge}" for end in ends if end.bridge in fabrics)
        for namespace in topology.namespaces:
            devices = [end.interface for end in ends if end.namespace == namespace]
            devices += fabrics if namespace == topology.switch_namespace else []
            quiet_and_up = (f"link set dev {device} addrgenmode none up" for device in devices)
            self.netns.batch(quiet_and_up, namespace=namespace)

    def _switch(self) -> None:
        wait_for_cores()
        ovs = start_kernel_ovs(self.lab.ovs, settings=["hw-offload=true", f"max-idle={_MAX_IDLE_MS}"])
        bridge = self.lab.topology.bridges[0]
        ports = [word for i, port in enumerate(bridge.ports, start=1) for word in port_words(bridge.name, port, i)]
        secure = ["--", "set", "bridge", bridge.name, "fail_mode=secure"]
        ovs.vsctl("add-br", bridge.name, *secure, *ports, timeout_s=120.0)


def _plug_lines(ports: Iterable[Link], *, home: str) -> Iterable[str]:
    """The wire end of each port gets the name, the MAC and the namespace of the far end of its cable."""
    for link in ports:
        wire, far = f"{link.near.interface}-w", link.far
        if far.mac:
            yield f"link set dev {wire} address {far.mac}"
        yield f"link set dev {wire} name {far.interface}"
        if far.namespace != home:
            yield f"link set dev {far.interface} netns {far.namespace}"


def _tell(what: str, done: int, total: int) -> None:
    print(json.dumps([what, done, total]), flush=True)


if __name__ == "__main__":
    sys.exit(main())
