"""A lab as a bed: its clients send, its bridge balances, its backends count."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from xenoovs.errors import LabError
from xenoovs.lab.host import check_root
from xenoovs.lab.lab import directory_of, machine_directory, open_lab, read_state
from xenoovs.lab.nic.call import guest_place
from xenoovs.lab.nic.machine import VirtualMachine
from xenoovs.lab.place import Place, this_machine
from xenoovs.lab.probing import in_lab
from xenoovs.lab.topology import Topology
from xenoovs.measure.bed import Bed, Station, lock_bed, service_under_test
from xenoovs.measure.samples import BedKind
from xenoovs.model.balancer import Balancer

_KINDS = {
    BedKind.LAB: "userspace datapath, in a lab on one machine",
    BedKind.EMULATED: "emulated NIC, in a virtual machine",
}


@contextmanager
def open_lab_bed(name: str, balancer: Balancer, service: str | None = None) -> Iterator[Bed]:
    """Open lab `name` as a bed for a service of a config; None: the first one. Raises LabError, MeasureError."""
    check_root()
    directory = directory_of(name, None)
    state = read_state(directory)
    with ExitStack() as stack:
        if state is not None and state.nic and state.complete and isinstance(state.topology, Topology):
            place = stack.enter_context(guest_place(VirtualMachine(machine_directory(directory)), name=f"lab {name}"))
            bed = _bed(place, BedKind.EMULATED, state.topology, balancer, service)
        else:
            lab = open_lab(name)
            bed = _bed(stack.enter_context(this_machine()), BedKind.LAB, lab.topology, balancer, service)
        lock_bed(bed)
        yield bed


def _bed(place: Place, kind: BedKind, topology: Topology, balancer: Balancer, service_name: str | None) -> Bed:
    name = topology.name
    # Also in a virtual machine: the lab in there was built by the same code.
    env = {"OVS_RUNDIR": str(directory_of(name, None if kind is BedKind.LAB else _GUEST_DIRECTORY) / "ovs")}
    uplinks = balancer.uplinks
    clients = topology.clients
    links = {end.interface: end for link in topology.links for end in (link.near, link.far)}
    generator = Station(
        "generator", place, clients.interface, clients.namespace, mac=links[clients.interface].mac or "", env=env
    )
    version = place.run(["ovs-vswitchd", "--version"], env=env).stdout.splitlines()[0].rpartition(" ")[2]
    kernel = place.run(["uname", "-r"]).stdout.strip()
    balancer = in_lab(balancer, topology)
    machines = {name: machine for machine in topology.machines for name in machine.names}
    backends = {
        backend: Station(backend, place, "eth0", machine.namespace, mac=machine.mac, address=machine.own_addresses[0])
        for backend, machine in machines.items()
    }
    service = service_under_test(balancer, service_name)
    named = [backend.name for backend in service.backends]
    if missing := sorted(set(named) - set(backends)):
        raise LabError(
            f"lab {name} has no backend {missing[0]}: build it again for this config (`xenoovs lab down --lab {name}`, "
            "`xenoovs lab up`)"
        )
    return Bed(
        name=f"lab {name}",
        kind=kind,
        datapath=f"Open vSwitch {version}, {_KINDS[kind]}",
        balancer=balancer,
        service=service,
        generator=generator,
        client=Station("client", place, clients.interface, clients.namespace, mac=generator.mac),
        dpu=Station("dpu", place, uplinks.ingress[0], topology.switch_namespace, env=env),
        backends={name: backends[name] for name in named},
        uplinks=tuple(dict.fromkeys((*uplinks.ingress, uplinks.egress))),
        gateway_mac=clients.gateway_mac,
        document={"lab": name, "nic": "emulated" if kind is BedKind.EMULATED else "none"},
        stations=backends,
        versions={"ovs": version, "kernel": kernel, "cpu": cpu_of(place)},
    )


_GUEST_DIRECTORY = Path("/run/xenoovs/lab")


def cpu_of(place: Place) -> str:
    lines = place.run(["cat", "/proc/cpuinfo"]).stdout.splitlines()
    cpus = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{len(cpus)} x {cpus[0]}" if cpus else "unknown"
