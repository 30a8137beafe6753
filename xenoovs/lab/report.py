"""What came of the traffic: for each service and backend, counted from the packets and never from the flows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from xenoovs.lab.load import Trial
from xenoovs.lab.machines import Machine
from xenoovs.model.next_hop import mac_and_port
from xenoovs.model.service import Protocol, Service

MOST_LOST = Fraction(1, 100)
"""Of the packets of a service: a busy machine drops some where buffers are full."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How many packets of one client one backend answered."""

    client: str
    backend: str
    packets: int


@dataclass(frozen=True, slots=True)
class BackendTraffic:
    """wanted: the share its weight asks for; share: of the answered packets, None when none was."""

    name: str
    wanted: Fraction
    answered: int
    share: Fraction | None


@dataclass(frozen=True, slots=True)
class ServiceTraffic:
    """One service. sent = answered + lost. `strangers`: answers of machines that are no backend of it."""

    service: str
    protocol: Protocol
    clients: int
    sent: int
    backends: tuple[BackendTraffic, ...]
    strangers: tuple[tuple[str, int], ...]
    answers: tuple[Answer, ...]

    @property
    def answered(self) -> int:
        return sum(answer.packets for answer in self.answers)

    @property
    def lost(self) -> int:
        return self.sent - self.answered

    @property
    def is_served(self) -> bool:
        """Whether its own backends answered, up to the few packets that a busy machine loses."""
        return not self.strangers and self.lost <= MOST_LOST * self.sent


@dataclass(frozen=True, slots=True)
class TrafficReport:
    """skipped: services not tried and why. duplicates: second answers to one packet. failures: reason -> not sent."""

    services: tuple[ServiceTraffic, ...]
    skipped: tuple[tuple[str, str], ...]
    duplicates: int
    failures: tuple[tuple[str, int], ...]
    duration_s: float

    @property
    def is_sent(self) -> bool:
        """Whether there was anything to answer."""
        return any(service.sent for service in self.services)

    @property
    def is_served(self) -> bool:
        """Whether all that was to be sent was, and answered by whom it should be, once."""
        return all(service.is_served for service in self.services) and not self.failures and not self.duplicates


def service_traffic(
    trial: Trial, machines: Sequence[Machine], *, sent: int, answers: Counter[tuple[str, str]]
) -> ServiceTraffic:
    """Name who answered; `answers`: (client, label of a machine or its MAC) -> packets."""
    service, named = trial.service, Counter[tuple[str, str]]()
    names = {who: _name(service, machines, who) for _, who in answers}
    for (client, who), packets in answers.items():
        named[client, names[who]] += packets
    per_backend = Counter[str]()
    for (_, name), packets in named.items():
        per_backend[name] += packets
    own = {backend.name for backend in service.backends}
    return ServiceTraffic(
        service.name,
        trial.protocol,
        trial.clients,
        sent,
        backends=tuple(_backends(service, per_backend)),
        strangers=tuple(sorted((name, packets) for name, packets in per_backend.items() if name not in own)),
        answers=tuple(Answer(client, name, packets) for (client, name), packets in sorted(named.items())),
    )


def _backends(service: Service, per_backend: Counter[str]) -> Iterable[BackendTraffic]:
    weights, answered = sum(service.weights, Fraction(0)), per_backend.total()
    for backend in service.backends:
        wanted = backend.weight / weights if weights else Fraction(0)
        packets = per_backend[backend.name]
        yield BackendTraffic(backend.name, wanted, packets, Fraction(packets, answered) if answered else None)


def _name(service: Service, machines: Sequence[Machine], who: str) -> str:
    """The service's name for the machine with this label or MAC; a name that no backend can have for strangers."""
    found = [machine for machine in machines if who in (machine.label, machine.mac)]
    own = [
        backend.name
        for backend in service.backends
        if any((machine.mac, machine.egress) == mac_and_port(backend.next_hop) for machine in found)
    ]
    if len(own) == 1:
        return own[0]
    if own:
        return f"({' or '.join(own)})"
    return f"({'/'.join(found[0].names)}, of another service)" if found else f"({who}, unknown)"
