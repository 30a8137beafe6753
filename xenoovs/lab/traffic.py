"""Sends real packets of many clients to the services of a lab, and counts the answers by backend."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from fractions import Fraction
from functools import cache
from ipaddress import ip_address, ip_network
from selectors import EVENT_READ, DefaultSelector
from subprocess import Popen
from types import FrameType

from xenoovs.dataclass import dataclass, replace
from xenoovs.errors import LabError
from xenoovs.lab.client import AnswerCounts, Flight, Pace, parse_counts, render_round
from xenoovs.lab.host import LabNetns, Progress, check_root, no_progress
from xenoovs.lab.lab import Lab
from xenoovs.lab.servers import check_complete
from xenoovs.lab.topology import (
    SERVER_NETS,
    WHOLE_SPACE,
    Machine,
    client_net,
    draw_clients,
    plan_topology,
    tried_ports,
    tried_protocols,
    used_addresses,
    vlan_in_lab,
)
from xenoovs.lab.underlay import learn_remotes
from xenoovs.model.address import Family, IPAddress, IPNetwork, Vip
from xenoovs.model.balancer import Balancer, KeyField, Protocol, Service
from xenoovs.model.packet import own_addresses
from xenoovs.switch.process import PYTHON_MODULE, open_conversation


@dataclass(frozen=True, slots=True)
class Load:
    """How much traffic to send.

    `packets`: the total, > 0; with TCP the number of connections. They are split evenly over services, VIPs, ports and
    IP versions. `protocol`: None for that of each service, UDP if it serves any; services of another protocol are left
    out.
    """

    clients: int = 2000
    packets: int = 20_000
    protocol: Protocol | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Trial:
    """The traffic of one service. `clients`: the number of source addresses."""

    service: Service
    protocol: Protocol
    flights: tuple[Flight, ...]

    @property
    def clients(self) -> int:
        return len({source for flight in self.flights for source in flight.sources})


def plan_trials(balancer: Balancer, load: Load) -> tuple[tuple[Trial, ...], tuple[tuple[str, str], ...]]:
    """Return the trials of the services, and name and reason of those left out. Raises LabError if none is left."""
    if load.clients < 1 or load.packets < 1:
        raise LabError(f"cannot send {load.packets} packets of {load.clients} clients; use 1 or more of each")
    reasons = {service.name: _reason_to_skip(service, load) for service in balancer.services}
    tried = [service for service in balancer.services if reasons[service.name] is None]
    skipped = tuple((name, reason) for name, reason in reasons.items() if reason is not None)
    if not tried:
        raise LabError("no service can be tried: " + "; ".join(f"{name}: {reason}" for name, reason in skipped))
    used = used_addresses(balancer)

    @cache
    def clients_of(net: IPNetwork) -> tuple[str, ...]:
        count = min(load.clients, load.packets)
        return tuple(map(str, draw_clients(net, count=count, seed=load.seed, excluded=used)))

    trials = []
    for number, service in enumerate(tried):
        clients = {family: clients_of(_net(service, family, used)) for family in service.claim.families}
        packets = max(1, (load.packets + number) // len(tried))
        trials.append(_trial(balancer, service, load.protocol, clients, packets=packets))
    return tuple(trials), skipped


def _net(service: Service, family: Family, used: Collection[Vip]) -> IPNetwork:
    """Return the lab's client net; all unicast addresses if the service's key has bits that are constant in it."""
    usual = client_net(family, used)
    highest = max(service.key.positions or (0,))
    return usual if highest < family.bits - usual.prefixlen else WHOLE_SPACE[family]


def _reason_to_skip(service: Service, load: Load) -> str | None:
    possible = tried_protocols(service.claim)
    if not possible:
        return "the lab cannot send SCTP"
    if load.protocol is not None and load.protocol not in possible:
        return f"it does not serve {load.protocol.value}"
    return None


def _trial(
    balancer: Balancer,
    service: Service,
    protocol: Protocol | None,
    clients: Mapping[Family, Sequence[str]],
    *,
    packets: int,
) -> Trial:
    protocol = protocol or tried_protocols(service.claim)[0]
    ports = tried_ports(service.claim) if protocol.has_ports else (0,)
    vips = [(str(vip), family) for family in Family if clients.get(family) for vip in _vips(balancer, service, family)]
    destinations = [(vip, port, clients[family]) for vip, family in vips for port in ports]
    by_port, flights = service.key.field is KeyField.SOURCE_PORT, []
    for number, (vip, port, senders) in enumerate(destinations):
        # Each packet goes to the next destination, and comes from the next client of that destination.
        turns = range(len(range(number, packets, len(destinations))))
        sources = tuple(senders[turn % len(senders)] for turn in turns)
        if sources:
            flights.append(Flight(protocol.value, vip, port, sources, by_port))
    return Trial(service, protocol, tuple(flights))


def _vips(balancer: Balancer, service: Service, family: Family) -> Sequence[IPAddress]:
    if not service.claim.vips:
        return (SERVER_NETS[family][1],)
    return own_addresses(service, family, balancer.services)


MOST_LOST = Fraction(1, 100)
"""The fraction of a service's packets that may be lost: a busy machine drops some when buffers are full."""


@dataclass(frozen=True, slots=True)
class BackendAnswers:
    name: str
    wanted: Fraction
    answered: int
    share: Fraction | None


@dataclass(frozen=True, slots=True)
class ServiceTraffic:
    """The answers of a service's backends; sent = answered + lost. `foreign_answers`: packets that other machines
    answered. `answers`: packets by client and backend."""

    service: str
    protocol: Protocol
    clients: int
    sent: int
    backends: tuple[BackendAnswers, ...]
    foreign_answers: tuple[tuple[str, int], ...]
    answers: Mapping[tuple[str, str], int]

    @property
    def answered(self) -> int:
        return sum(self.answers.values())

    @property
    def lost(self) -> int:
        return self.sent - self.answered

    @property
    def is_served(self) -> bool:
        """Return whether only the service's own backends answered, and at most MOST_LOST was lost."""
        return not self.foreign_answers and self.lost <= MOST_LOST * self.sent


@dataclass(frozen=True, slots=True)
class LabReport:
    """The result of one run of traffic. `failures`: packets that were not sent, by reason."""

    services: tuple[ServiceTraffic, ...]
    skipped: tuple[tuple[str, str], ...]
    duplicates: int
    failures: tuple[tuple[str, int], ...]
    duration_s: float

    @property
    def is_sent(self) -> bool:
        """Return whether any packet was sent."""
        return any(service.sent for service in self.services)

    @property
    def is_served(self) -> bool:
        """Return whether all packets were sent, and answered once, by the right backends."""
        return all(service.is_served for service in self.services) and not self.failures and not self.duplicates


def service_traffic(
    trial: Trial, machines: Sequence[Machine], *, sent: int, answers: Counter[tuple[str, str]]
) -> ServiceTraffic:
    """Return the result of a service. `answers`: packets by client and by label or MAC of the machine."""
    service, named, per_backend = trial.service, Counter[tuple[str, str]](), Counter[str]()
    names = {responder: _name(service, machines, responder) for _, responder in answers}
    for (client, responder), packets in answers.items():
        named[client, names[responder]] += packets
        per_backend[names[responder]] += packets
    own, answered = {backend.name for backend in service.backends}, per_backend.total()
    return ServiceTraffic(
        service.name,
        trial.protocol,
        min(trial.clients, sent),
        sent,
        backends=tuple(
            BackendAnswers(backend.name, wanted, packets, Fraction(packets, answered) if answered else None)
            for backend, wanted in zip(service.backends, service.target_shares, strict=True)
            for packets in [per_backend[backend.name]]
        ),
        foreign_answers=tuple(sorted((name, packets) for name, packets in per_backend.items() if name not in own)),
        answers=named,
    )


def _name(service: Service, machines: Sequence[Machine], responder: str) -> str:
    """Return the backend's name for the machine with this label or MAC; in parentheses unless it is one backend."""
    matching = [machine for machine in machines if responder == machine.label or responder in machine.macs]
    own = [
        backend.name
        for backend in service.backends
        if any(
            backend.name in machine.names
            and backend.next_hop.port in machine.ports
            and (machine.ends or machine.vlan == vlan_in_lab(service, backend))
            for machine in matching
        )
    ]
    if len(own) == 1:
        return own[0]
    if own:
        return f"({' or '.join(own)})"
    return f"({'/'.join(matching[0].names)}, of another service)" if matching else f"({responder}, unknown)"


def send(
    lab: Lab,
    balancer: Balancer,
    *,
    load: Load | None = None,
    pace: Pace | None = None,
    progress: Progress = no_progress,
) -> LabReport:
    """Send as the clients, and count the answers by service and backend. Raises LabError if the config does not fit."""
    load = load or Load()
    check_root()
    _check_fit(lab, balancer)
    trials, skipped = plan_trials(balancer, load)
    netns, clients = LabNetns(lab.marks), lab.topology.clients
    sources = dict.fromkeys(source for trial in trials for flight in trial.flights for source in flight.sources)
    nets = [ip_network(net) for net in clients.nets]
    outside = (source for source in sources if not any(ip_address(source) in net for net in nets))
    netns.batch((f"route replace local {source} dev lo" for source in outside), namespace=clients.namespace)
    # Makes clients send ARP again; permanent entries stay (ip-neighbour(8), flush).
    netns.batch(["neigh flush all"], namespace=clients.namespace)
    learn_remotes(lab)
    begun_s = time.monotonic()
    flights = [flight for trial in trials for flight in trial.flights]
    counts = _exchange(lab, flights, pace, progress)
    return LabReport(
        services=tuple(_services(lab, trials, counts)),
        skipped=skipped,
        duplicates=counts.duplicates,
        failures=tuple(sorted(counts.failures.items())),
        duration_s=time.monotonic() - begun_s,
    )


def _check_fit(lab: Lab, balancer: Balancer) -> None:
    again = f"`xenoovs lab down --lab {lab.name}`, then `xenoovs lab up --lab {lab.name}`"
    if plan_topology(lab.name, balancer) != lab.topology:
        raise LabError(
            f"lab {lab.name} was built for another config (ports, VIPs or backends differ); recreate it with {again}"
        )
    check_complete(lab)


def _exchange(lab: Lab, flights: Sequence[Flight], pace: Pace | None, progress: Progress) -> AnswerCounts:
    """Run one sender for each protocol, until all is sent, the time is over, or SIGINT or SIGTERM arrives. Raises
    LabError if a sender exits early, as when the lab is removed, and KeyboardInterrupt at a second signal."""
    counts, begun_s = AnswerCounts([0] * len(flights)), time.monotonic()
    packets = sum(len(flight.sources) for flight in flights)
    argv = ["ip", "netns", "exec", lab.topology.clients.namespace, *PYTHON_MODULE, "xenoovs.lab.client"]
    with ExitStack() as stack:
        programs: list[Popen[bytes]] = []
        stopped: list[int] = []

        def stop(number: int, _frame: FrameType | None) -> None:
            stopped.append(number)
            if len(stopped) > 1:
                raise KeyboardInterrupt
            # They then count their last answers.
            for program in programs:
                program.send_signal(signal.SIGINT)

        for number in (signal.SIGINT, signal.SIGTERM):
            stack.callback(signal.signal, number, signal.signal(number, stop))
        selector = stack.enter_context(DefaultSelector())
        for protocol in dict.fromkeys(flight.protocol for flight in flights):
            numbers = [number for number, flight in enumerate(flights) if flight.protocol == protocol]
            mine = [flights[number] for number in numbers]
            share = sum(len(flight.sources) for flight in mine) / packets
            its_pace = None if pace is None else replace(pace, rate=pace.rate * share)
            program = stack.enter_context(open_conversation(argv, stdin=render_round(mine, its_pace), env=lab.marks))
            programs.append(program)
            if stopped:
                program.send_signal(signal.SIGINT)
            if program.stdout is not None:
                selector.register(program.stdout, EVENT_READ, (program.stdout, numbers))
        while selector.get_map():
            for key, _ in selector.select():
                stdout, numbers = key.data
                if not (line := stdout.readline()):
                    selector.unregister(stdout)
                    continue
                counts.add(parse_counts(line.decode()), numbers)
                text = f"{sum(counts.sent)} sent, {counts.answers.total()} answered"
                if pace is None or pace.for_s is None:
                    progress(text, sum(counts.sent), packets)
                else:
                    progress(text, min(round(time.monotonic() - begun_s), round(pace.for_s)), round(pace.for_s))
        for program in programs:
            if program.wait() != 0 and not stopped:
                words = b"" if program.stderr is None else program.stderr.read()
                reason = words.decode(errors="replace").strip() or f"its program ended with status {program.returncode}"
                raise LabError(f"traffic ended early in lab {lab.name}: {reason}")
    return counts


def _services(lab: Lab, trials: Sequence[Trial], counts: AnswerCounts) -> Iterator[ServiceTraffic]:
    service_of = [at for at, trial in enumerate(trials) for _ in trial.flights]
    answers = [Counter[tuple[str, str]]() for _ in trials]
    for (number, source, responder), packets in counts.answers.items():
        answers[service_of[number]][source, responder] += packets
    sent = Counter[int]()
    for number, packets in enumerate(counts.sent):
        sent[service_of[number]] += packets
    for at, trial in enumerate(trials):
        yield service_traffic(trial, lab.topology.machines, sent=sent[at], answers=answers[at])
