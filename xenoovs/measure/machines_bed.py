"""Opens beds: the machines of a bed file, or those of a lab."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from xenoovs.dataclass import dataclass, replace
from xenoovs.errors import CommandFailed, LabError, MeasureError, first_names
from xenoovs.lab.host import check_root
from xenoovs.lab.lab import directory_of, machine_directory, open_lab, read_state
from xenoovs.lab.nic.call import guest_place
from xenoovs.lab.nic.machine import VirtualMachine
from xenoovs.lab.place import Place, machine_by_ssh, this_machine
from xenoovs.lab.probing import in_lab, machine_of
from xenoovs.lab.servers import find_machine
from xenoovs.lab.topology import Machine, Topology
from xenoovs.measure.bed import PKTGEN, TCPREPLAY, Bed, Station, last_line, lock_bed, service_under_test
from xenoovs.measure.samples import BedKind
from xenoovs.model import values
from xenoovs.model.balancer import Balancer, Service
from xenoovs.model.form import Listed, Mistakes, entry, keyed, read
from xenoovs.model.load import load_form
from xenoovs.model.values import Remark, accepts, show
from xenoovs.regex import ASCII, regex

# One command, as each round trip to the machine takes time.
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
    """One connection to each machine; the stack closes them."""

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
    """Return the namespace of a role in a lab, and environment variables for its commands."""
    lab = open_lab(role.host.name)
    if role.role in ("generator", "client"):
        return lab.topology.clients.namespace, {}
    if role.role == "dpu":
        return lab.topology.switch_namespace, {"OVS_RUNDIR": str(lab.ovs.directory)}
    return find_machine(lab, role.role).namespace, {}


@contextmanager
def open_machines_bed(path: Path, balancer: Balancer, service: str | None = None) -> Iterator[Bed]:
    """Open the bed of a file for a service, by default the first. Raises ConfigError, LabError, MeasureError."""
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
    backends = {role.role: places.station(role) for role in file.backends if role.role in names}
    stations = {
        each.name: {backend.name: backends[backend.name] for backend in each.backends}
        for each in balancer.services
        if all(backend.name in backends for backend in each.backends)
    }
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
        stations=stations,
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
        where = f"the {station.role} on {station.place.name}"
        raise MeasureError(f"{where} cannot be asked: {last_line(failed)}") from None
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


# The file of a bed. It is checked as strictly as a config: every mistake is reported with its line.

_HOST = regex(
    r"(?P<kind>ssh)://(?P<target>[A-Za-z0-9_][\w.@-]*|(?:[\w.-]+@)?\[[0-9a-fA-F:]+\])(?::(?P<port>[0-9]{1,5}))?"
    r"|(?P<netns>netns):(?P<name>[\w.-]+)|(?P<lab>lab):(?P<lab_name>[a-z0-9-]+)",
    ASCII,
)


@dataclass(frozen=True, slots=True)
class HostName:
    """The machine of a role. `kind`: `ssh`, `netns` or `lab`. `port`: None for the port in ssh's settings."""

    text: str
    kind: str
    name: str
    port: int | None = None


@accepts()
def _host(value: object) -> HostName:
    found = _HOST.fullmatch(value) if isinstance(value, str) else None
    if found is None or int(found["port"] or 1) > values.MAX_PORT:
        raise ValueError(f"{show(value)} is no host; write ssh://user@host, ssh://host:port, netns:NAME or lab:NAME")
    if found["kind"]:
        port = None if found["port"] is None else int(found["port"])
        return HostName(found[0], "ssh", found["target"].replace("[", "").replace("]", ""), port)
    return HostName(found[0], "netns" if found["netns"] else "lab", found["name"] or found["lab_name"])


_DRIVERS = {
    "trafgen": "trafgen sends the frames of a whole second at once when it is given a rate; use tcpreplay",
    "trex": "TRex is driven by its own console, with the profile of `xenoovs measure trex-profile`; use tcpreplay",
}


@accepts()
def _driver(value: object) -> str:
    if value not in (TCPREPLAY, PKTGEN):
        raise ValueError(_DRIVERS.get(str(value), f"{show(value)} is not known; use tcpreplay or pktgen"))
    return str(value)


_INTERFACE = accepts()(lambda value: (values.device(value),))
_ADDRESS = accepts()(lambda value: str(values.server_address(value)))
_MAC = accepts()(lambda value: str(values.mac(value)))


@keyed()
class BedRole:
    """One machine of a bed file. `role`: `generator`, `client`, `dpu`, or the name of a backend.

    `address`: Its IP address, or empty. `mac`: Destination of packets to it; empty for the MAC of its interface.
    """

    host: HostName = entry(_host)
    interfaces: tuple[str, ...] = entry(_INTERFACE, name="interface")
    address: str = entry(_ADDRESS, default="")
    mac: str = entry(_MAC, default="")
    driver: str = TCPREPLAY
    role: str = ""


@keyed()
class GeneratorRole(BedRole):
    """The machine that sends the load."""

    driver: str = entry(_driver, default=TCPREPLAY)


@keyed()
class DpuRole(BedRole):
    """The machine with Open vSwitch; its interfaces are the uplinks."""

    interfaces: tuple[str, ...] = entry(Listed(values.device, least=1), name="uplinks")


@accepts()
def _backends(value: object) -> tuple[BedRole, ...]:
    if not isinstance(value, dict) or not value:
        raise ValueError(
            f"{show(value)} names no backend; add `NAME: {{host: ..., interface: ...}}` with names of the config"
        )
    read_roles = {name: read(BedRole, tree) for name, tree in value.items()}
    wrong = [replace(each, path=(name, *each.path)) for name, (_, remarks) in read_roles.items() for each in remarks]
    if wrong:
        raise Mistakes(wrong)
    return tuple(replace(role, role=name) for name, (role, _) in read_roles.items())


@keyed(kw_only=True)
class BedFile:
    version: int = entry(values.version)
    generator: BedRole = entry(GeneratorRole)
    client: BedRole = entry(BedRole)
    dpu: BedRole = entry(DpuRole)
    backends: tuple[BedRole, ...] = entry(_backends)

    @property
    def roles(self) -> tuple[BedRole, ...]:
        return (self.generator, self.client, self.dpu, *self.backends)

    @property
    def document(self) -> dict[str, object]:
        return {
            role.role if role in (self.generator, self.client, self.dpu) else f"backends.{role.role}": {
                "host": role.host.text,
                "interfaces": list(role.interfaces),
                **({"address": role.address} if role.address else {}),
                **({"mac": role.mac} if role.mac else {}),
                **({"driver": role.driver} if role.driver != TCPREPLAY else {}),
            }
            for role in self.roles
        }


def load_bed_file(path: Path) -> BedFile:
    """Read a bed file. Raises FileUnusable, or ConfigError with every mistake and its line."""
    file = load_form(path, BedFile, _check)
    single = {name: replace(getattr(file, name), role=name) for name in ("generator", "client", "dpu")}
    return replace(file, **single)


def _check(file: BedFile) -> Iterator[Remark]:
    if not file.client.address:
        yield Remark(("client",), "`address` is missing: requests come from it; add `address: 10.3.10.42`")


# A lab as a bed: its clients send, its bridge balances, its backends receive.

_KINDS = {
    BedKind.LAB: "userspace datapath, in a lab on one machine",
    BedKind.EMULATED: "emulated NIC, in a virtual machine",
}


@contextmanager
def open_lab_bed(name: str, balancer: Balancer, service: str | None = None) -> Iterator[Bed]:
    """Open lab `name` as a bed for a service, by default the first. Raises LabError, MeasureError."""
    check_root()
    directory = directory_of(name, None)
    state = read_state(directory)
    with ExitStack() as stack:
        if state is not None and state.nic and state.complete and isinstance(state.topology, Topology):
            place = stack.enter_context(guest_place(VirtualMachine(machine_directory(directory)), name=f"lab {name}"))
            bed = _lab_bed(place, BedKind.EMULATED, state.topology, balancer, service)
        else:
            lab = open_lab(name)
            bed = _lab_bed(stack.enter_context(this_machine()), BedKind.LAB, lab.topology, balancer, service)
        lock_bed(bed)
        yield bed


def _lab_bed(place: Place, kind: BedKind, topology: Topology, balancer: Balancer, service_name: str | None) -> Bed:
    name = topology.name
    # The same in a virtual machine: the same code built the lab there.
    env = {"OVS_RUNDIR": str(directory_of(name, None if kind is BedKind.LAB else _GUEST_DIRECTORY) / "ovs")}
    clients = topology.clients
    links = {end.interface: end for link in topology.links for end in (link.near, link.far)}
    generator = Station(
        "generator", place, clients.interface, clients.namespace, mac=links[clients.interface].mac or "", env=env
    )
    versions = versions_of(place)
    balancer = in_lab(balancer, topology)
    service = service_under_test(balancer, service_name)
    stations = dict[str, dict[str, Station]]()
    for each in balancer.services:
        machines = {backend.name: machine_of(each, backend, topology) for backend in each.backends}
        found = {backend: _station(place, backend, machine) for backend, machine in machines.items() if machine}
        if len(found) == len(machines):
            stations[each.name] = found
        elif each is service:
            missing = min(machines.keys() - found.keys())
            raise LabError(
                f"lab {name} has no backend {missing}: build it again for this config (`xenoovs lab down --lab "
                f"{name}`, `xenoovs lab up`)"
            )
    return Bed(
        name=f"lab {name}",
        kind=kind,
        datapath=f"Open vSwitch {versions['ovs']}, {_KINDS[kind]}",
        balancer=balancer,
        service=service,
        generator=generator,
        client=Station("client", place, clients.interface, clients.namespace, mac=generator.mac),
        dpu=Station("dpu", place, balancer.uplinks.ingress[0], topology.switch_namespace, env=env),
        gateway_mac=clients.gateway_mac,
        document={"lab": name, "nic": "emulated" if kind is BedKind.EMULATED else "none"},
        stations=stations,
        versions=versions,
    )


def _station(place: Place, name: str, machine: Machine) -> Station:
    return Station(name, place, "eth0", machine.namespace, mac=machine.mac, address=machine.own_addresses[0])


_GUEST_DIRECTORY = Path("/run/xenoovs/lab")


def versions_of(place: Place) -> dict[str, str]:
    """Return what the figures of a lab on this machine depend on."""
    lines = place.run(["cat", "/proc/cpuinfo"]).stdout.splitlines()
    cpus = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "ovs": place.run(["ovs-vswitchd", "--version"]).stdout.splitlines()[0].rpartition(" ")[2],
        "kernel": place.run(["uname", "-r"]).stdout.strip(),
        "cpu": f"{len(cpus)} x {cpus[0]}" if cpus else "unknown",
    }
