"""`lab up --nic emulated`: a lab inside a virtual machine, built by the same code as any lab."""

from __future__ import annotations

import json
from pathlib import Path

from xenoovs.errors import LabError
from xenoovs.lab.host import Progress, check_root, no_progress
from xenoovs.lab.lab import machine_directory, marks_of
from xenoovs.lab.lifecycle import new_lab
from xenoovs.lab.nic.call import guest_place, run_inside
from xenoovs.lab.nic.machine import VirtualMachine, boot, build_module, check_needs, unpacked_kernel
from xenoovs.lab.topology import Topology, plan_topology
from xenoovs.model.balancer import Balancer
from xenoovs.model.emit import render_config

MAX_PORTS = 8
"""The same as MAX_PORTS in eswitch/ports.c."""

MAX_PORT_NAME = 13
"""The wire end of a port has its name and `-w`; IFNAMSIZ is 16 with the closing zero (netdevice(7))."""

BOOT_TIMEOUT_S = 900.0
_BUILD_TIMEOUT_S = 900.0
_STEPS = 3


def up(
    name: str, balancer: Balancer, *, guest: str, directory: Path | None = None, progress: Progress = no_progress
) -> VirtualMachine:
    """Boot a machine and build lab `name` in it; its bridge has no flows yet.

    The first call downloads a kernel and builds a module for it, which stay in `machine.cache_directory`.

    `guest`: the first Python module of the machine, which calls `run_guest` of guest/agent.py with its commands. Raises
    LabError if something is missing or fails. After any error, also Ctrl-C, the machine is removed again.
    """
    topology = plan_topology(name, balancer)
    check_ports(topology)
    check_root()
    check_needs()
    with new_lab(topology, directory=directory, nic=True) as place:
        progress("Debian's kernel (the first time a minute)", 0, _STEPS)
        kernel = unpacked_kernel()
        progress("the NIC's module", 1, _STEPS)
        module = build_module(kernel)
        progress("booting (half a minute)", 2, _STEPS)
        here = machine_directory(place)
        here.mkdir(mode=0o700)
        machine = boot(kernel, here, module=guest, marks=marks_of(place))
        wait_until_ready(machine)
        argv = ("python", "-m", "xenoovs.lab.nic.guest.lab", name, str(module))
        with guest_place(machine) as inside:
            command = inside.start(argv, stdin=render_config(balancer))
            command.close_input()
            for line in command.lines(_BUILD_TIMEOUT_S):
                what, done, total = json.loads(line)
                progress(what, _STEPS + done, _STEPS + total)
            if command.wait(1.0).exit_code:
                raise LabError(f"the lab cannot be built in the virtual machine: {' '.join(command.errors)}")
        return machine


def check_ports(topology: Topology) -> None:
    """Raise LabError if the NIC cannot have these ports."""
    if topology.clients.vlans:
        raise LabError("the switches beside the emulated NIC know no VLANs; build the lab without --nic")
    ports = topology.nic_ports
    if len(ports) > MAX_PORTS:
        raise LabError(f"the emulated NIC has {MAX_PORTS} ports, the config needs {len(ports)}: {', '.join(ports)}")
    for port in ports:
        if len(port) > MAX_PORT_NAME or "," in port:
            raise LabError(f"{port!r} cannot be a port of the emulated NIC: {MAX_PORT_NAME} characters, no comma")


def wait_until_ready(machine: VirtualMachine, *, timeout_s: float = BOOT_TIMEOUT_S) -> None:
    """Wait until the guest runs commands. Raises LabError if it stops, or is not ready in time."""
    run_inside(machine, ["true"], timeout_s=timeout_s, begin_timeout_s=timeout_s)
