"""The bed of an experiment: which machine plays which role, and the services under test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol as Interface

from xenoovs.dataclass import dataclass, field, replace
from xenoovs.errors import MeasureError, did_you_mean, first_names
from xenoovs.lab.place import Place, RemoteCommand
from xenoovs.measure.frames import LoadProfile, load_profile
from xenoovs.measure.samples import BedKind
from xenoovs.model.balancer import Balancer, Protocol, Service
from xenoovs.model.emit import render_config
from xenoovs.switch.process import Completed

TCPREPLAY, PKTGEN = "tcpreplay", "pktgen"
"""Programs that send a load, as in a bed file."""


@dataclass(frozen=True, slots=True)
class Station:
    """A machine in a role.

    Attributes:
        interface: Where its packets leave and arrive; of the dpu the first uplink.
        netns: Network namespace of the interface; empty: that of the machine itself.
        mac: MAC of the interface; empty: not known before it is asked.
    """

    role: str
    place: Place
    interface: str
    netns: str = ""
    mac: str = ""
    address: str = ""
    env: Mapping[str, str] = field(default_factory=dict)

    def is_at(self, other: Station) -> bool:
        """Return whether both have the same interface of the same machine."""
        return (self.place, self.netns, self.interface) == (other.place, other.netns, other.interface)

    def argv(self, *argv: str) -> list[str]:
        """Return a command as it is run on the machine, so that it is in the namespace."""
        return [*(["ip", "netns", "exec", self.netns] if self.netns else []), *argv]

    def start(self, *argv: str, stdin: str | None = None) -> RemoteCommand:
        """Start a command there; see Place.start."""
        return self.place.start(self.argv(*argv), stdin=stdin, env=self.env)

    def run(self, *argv: str, stdin: str = "", timeout_s: float = 30.0) -> Completed:
        """Run a command there to its end; see Place.run."""
        return self.place.run(self.argv(*argv), stdin=stdin, timeout_s=timeout_s, env=self.env)

    def try_run(self, *argv: str, stdin: str = "", timeout_s: float = 30.0) -> Completed:
        """Run a command there to its end; see Place.try_run."""
        return self.place.try_run(self.argv(*argv), stdin=stdin, timeout_s=timeout_s, env=self.env)

    @contextmanager
    def undone_at_end(self, *argv: str, stdin: str = "") -> Iterator[None]:
        """Run a command there at the end of the block; also when this process is killed in it."""
        variables = [f"{name}={value}" for name, value in self.env.items()]
        with self.place.undone_at_end(["env", *variables, *self.argv(*argv)], stdin=stdin):
            yield


class AnyBed(Interface):
    """The description of a bed, for `run.json`."""

    @property
    def kind(self) -> BedKind: ...
    @property
    def datapath(self) -> str: ...
    @property
    def config(self) -> str: ...
    @property
    def document(self) -> Mapping[str, object]: ...
    @property
    def versions(self) -> Mapping[str, str]: ...


@dataclass(frozen=True, slots=True)
class Bed:
    """An open bed. Everything that was started on its machines ends with it.

    Attributes:
        backends: Those of the service, by name.
        gateway_mac: Next hop of packets to a VIP that has no MAC in the config.
        stations: All backends of this bed, by name; also those of other services.
    """

    name: str
    kind: BedKind
    datapath: str
    balancer: Balancer
    service: Service
    generator: Station
    client: Station
    dpu: Station
    backends: Mapping[str, Station]
    uplinks: Sequence[str]
    gateway_mac: str
    document: Mapping[str, object]
    versions: Mapping[str, str]
    driver: str = TCPREPLAY
    stations: Mapping[str, Station] = field(default_factory=dict)

    def testing(self, service: Service) -> Bed:
        """Return the same bed with another service under test, whose backends are `stations`."""
        return replace(self, service=service, backends={b.name: self.stations[b.name] for b in service.backends})

    def profile(self, *, clients: int, seed: int) -> LoadProfile:
        """Return the load for the service under test. Raises MeasureError when it serves no UDP."""
        macs = {"source_mac": self.generator.mac, "gateway_mac": self.gateway_mac}
        return load_profile(self.balancer, self.service, **macs, clients=clients, seed=seed)

    @property
    def config(self) -> str:
        return render_config(self.balancer)


def lock_bed(bed: Bed) -> None:
    """Refuse a second experiment on an interface or a switch of a bed: each would count the load of the other.

    The locks end with the connections to the machines, once all is undone there. Raises MeasureError.
    """
    locks = {(bed.dpu.place, f"switch {bed.dpu.env.get('OVS_RUNDIR', '')}"): bed.dpu}
    for station in (bed.generator, bed.client, bed.dpu, *bed.backends.values(), *bed.stations.values()):
        locks.setdefault((station.place, f"{station.netns} {station.interface}"), station)
    for (place, name), station in locks.items():
        hold_lock(place, name, f"the {station.role} of {bed.name}" if bed.kind is BedKind.MACHINES else bed.name)


def hold_lock(place: Place, name: str, what: str) -> None:
    """Refuse a second experiment with this lock on a machine. `what`: for the message. Raises MeasureError."""
    if not place.lock(f"measure {name}"):
        raise MeasureError(
            f"another `xenoovs measure` uses {what} now, or what a killed one changed is being undone: wait for its "
            "end, or measure on another bed"
        )


def service_under_test(balancer: Balancer, name: str | None) -> Service:
    """Return the service of that name; without a name the first that serves UDP. Raises MeasureError."""
    names = [service.name for service in balancer.services]
    if name is not None:
        for service in balancer.services:
            if service.name == name:
                return service
        raise MeasureError(f"the config has no service {name}, only {first_names(names)}.{did_you_mean(name, names)}")
    for service in balancer.services:
        if service.claim.protocol in (None, Protocol.UDP):
            return service
    raise MeasureError("the config has no service that serves UDP, which the generators send; add one")
