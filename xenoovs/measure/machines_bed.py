"""The machines of a bed file as a bed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from xenoovs.dataclass import replace
from xenoovs.errors import CommandFailed, LabError, MeasureError, first_names
from xenoovs.lab.lab import open_lab
from xenoovs.lab.place import Place, machine_by_ssh, this_machine
from xenoovs.measure.bed import Bed, Station, lock_bed, service_under_test
from xenoovs.measure.bed_file import BedFile, BedRole, HostName, load_bed_file
from xenoovs.measure.samples import BedKind
from xenoovs.model.balancer import Balancer, Service

# One command, as each round trip to a machine takes time.
_FACTS = """\
echo "mac=$(cat /sys/class/net/{interface}/address)"
echo "speed=$(cat /sys/class/net/{interface}/speed 2>/dev/null)"
echo "kernel=$(uname -r)"
echo "cpus=$(nproc)"
echo "cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
echo "virtual=$(grep -c -m 1 -w hypervisor /proc/cpuinfo)"
ethtool -i {interface} 2>/dev/null | sed -n 's/^driver: /driver=/p; s/^firmware-version: /firmware=/p'
true
"""
_SWITCH_FACTS = """\
echo "ovs=$(ovs-vswitchd --version | sed -n '1s/.* //p')"
echo "type=$(ovs-vsctl get bridge {bridge} datapath_type)"
echo "offload=$(ovs-vsctl --if-exists get Open_vSwitch . other_config:hw-offload)"
"""


class OpenPlaces:
    """Connections to machines, one for each; all are closed at the end of the stack."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._places: dict[tuple[str, int | None], Place] = {}

    def station(self, role: BedRole) -> Station:
        """Return the station of a role. Raises MeasureError, LabError."""
        host, env, netns = role.host, dict[str, str](), ""
        if host.kind == "netns":
            netns = host.name
        elif host.kind == "lab":
            netns, env = _in_lab(role)
        place = self._place(host)
        return Station(role.role, place, role.interfaces[0], netns, mac=role.mac, address=role.address, env=env)

    def _place(self, host: HostName) -> Place:
        key = (host.name, host.port) if host.kind == "ssh" else ("", None)
        if key not in self._places:
            place = machine_by_ssh(host.text, target=host.name, port=host.port) if key[0] else this_machine()
            self._places[key] = self._stack.enter_context(place)
        return self._places[key]


def _in_lab(role: BedRole) -> tuple[str, dict[str, str]]:
    """Return the namespace of a role in a lab, and variables for its commands."""
    lab = open_lab(role.host.name)
    if role.role in ("generator", "client"):
        return lab.topology.clients.namespace, {}
    if role.role == "dpu":
        return lab.topology.switch_namespace, {"OVS_RUNDIR": str(lab.ovs.directory)}
    for machine in lab.topology.machines:
        if role.role in machine.names:
            return machine.namespace, {}
    raise LabError(f"lab {lab.name} has no backend {role.role}")


@contextmanager
def open_machines_bed(path: Path, balancer: Balancer, service: str | None = None) -> Iterator[Bed]:
    """Open the bed of a file for a service of a config; None: the first. Raises ConfigError, LabError, MeasureError."""
    file = load_bed_file(path)
    chosen = service_under_test(balancer, service)
    present = {role.role: role for role in file.backends}
    if missing := [backend.name for backend in chosen.backends if backend.name not in present]:
        raise MeasureError(
            f"{path} has no backend {missing[0]} of service {chosen.name}, only {first_names([*present])}; add it"
        )
    with ExitStack() as stack:
        bed = _bed(path, file, balancer, chosen, OpenPlaces(stack))
        lock_bed(bed)
        yield bed


def _bed(path: Path, file: BedFile, balancer: Balancer, service: Service, places: OpenPlaces) -> Bed:
    names = {backend.name for each in balancer.services for backend in each.backends}
    stations = {role.role: places.station(role) for role in file.backends if role.role in names}
    generator, facts = _with_mac(places.station(file.generator))
    dpu, dpu_facts = _with_mac(places.station(file.dpu))
    switch = _facts(dpu, _SWITCH_FACTS.format(bridge=balancer.uplinks.bridge))
    kind = BedKind.MACHINES if any(role.host.kind == "ssh" for role in file.roles) else BedKind.LAB
    datapath = "userspace" if switch["type"].strip('"') == "netdev" else "kernel"
    hosts = {role.host.name for role in file.roles if role.host.kind == "ssh"}
    where = f"on {len(hosts)} machines" if kind is BedKind.MACHINES else "in namespaces of one machine"
    virtual = ", virtual" if dpu_facts.get("virtual", "0") != "0" and kind is BedKind.MACHINES else ""
    offload = ", hw-offload" if switch["offload"].strip('"') == "true" else ""
    nic = f", {dpu_facts['driver']} {dpu_facts.get('firmware', '')}".rstrip() if "driver" in dpu_facts else ""
    speed = facts.get("speed", "")
    link = {"link_bps": int(speed) * 1_000_000} if speed.isdigit() and kind is BedKind.MACHINES else {}
    return Bed(
        name=str(path),
        kind=kind,
        datapath=f"Open vSwitch {switch['ovs']}, {datapath} datapath{offload}{nic}, {where}{virtual}",
        balancer=balancer,
        service=service,
        generator=generator,
        client=places.station(file.client),
        dpu=dpu,
        backends={backend.name: stations[backend.name] for backend in service.backends},
        stations=stations,
        uplinks=file.dpu.interfaces,
        gateway_mac=dpu.mac,
        driver=file.generator.driver,
        document={**file.document, **link},
        versions={
            "ovs": switch["ovs"],
            "kernel": dpu_facts["kernel"],
            "cpu": f"{dpu_facts['cpus']} x {dpu_facts['cpu'] or 'unknown'}",
            "generator": f"{facts['cpus']} x {facts['cpu'] or 'unknown'}, kernel {facts['kernel']}",
            **({"nic": nic.removeprefix(", ")} if nic else {}),
        },
    )


def _with_mac(station: Station) -> tuple[Station, Mapping[str, str]]:
    """Return a station with the MAC of its interface, and the facts of its machine. Raises MeasureError."""
    facts = _facts(station, _FACTS.format(interface=station.interface))
    if not facts["mac"]:
        where = f"namespace {station.netns} of {station.place.name}" if station.netns else station.place.name
        raise MeasureError(f"{where} has no interface {station.interface}, which the {station.role} uses")
    return replace(station, mac=station.mac or facts["mac"]), facts


def _facts(station: Station, script: str) -> dict[str, str]:
    try:
        text = station.run("sh", "-c", script).stdout
    except CommandFailed as failed:
        lines = failed.stderr.strip().splitlines() or ["no reason"]
        raise MeasureError(f"the {station.role} on {station.place.name} cannot be asked: {lines[-1]}") from None
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
