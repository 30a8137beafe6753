"""Real packets of many clients to the services of a lab, and who answered them."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from xenoovs.errors import LabError
from xenoovs.lab.addresses import parse_address, parse_net
from xenoovs.lab.configure import add_clients, forget_neighbours
from xenoovs.lab.lab import Lab
from xenoovs.lab.load import Load, Trial, plan_trials
from xenoovs.lab.netns import Netns, namespaces_of
from xenoovs.lab.preflight import check_root, probe_host
from xenoovs.lab.progress import Progress, silent
from xenoovs.lab.report import ServiceTraffic, TrafficReport, service_traffic
from xenoovs.lab.tally import Flight, Tally, parse_tally, render_round
from xenoovs.lab.topology import plan_topology
from xenoovs.model.balancer import Balancer

_LEAST_CHUNK = 2000
_CHUNKS = 20
_BASE_TIMEOUT_S = 60.0
# Each packet gone unanswered costs at most a window's patience shared by the window.
_PACKET_TIMEOUT_S = 0.02


def send(lab: Lab, balancer: Balancer, *, load: Load | None = None, progress: Progress = silent) -> TrafficReport:
    """Send from inside the clients' namespace, wait for the answers, count them by service and backend.

    Raises LabError when the lab is not up, was built for another config, or nothing can be sent.
    """
    load = load or Load()
    check_root(probe_host())
    _check_fit(lab, balancer)
    trials, skipped = plan_trials(balancer, load)
    _add_sources(lab, trials)
    forget_neighbours(Netns(lab.marks), lab.topology.clients)
    begun_s = time.monotonic()
    tally = _fly(lab, trials, progress)
    return TrafficReport(
        services=tuple(_services(lab, trials, tally)),
        skipped=skipped,
        duplicates=tally.duplicates,
        failures=tuple(sorted(tally.failures.items())),
        duration_s=time.monotonic() - begun_s,
    )


def _check_fit(lab: Lab, balancer: Balancer) -> None:
    again = f"`xenoovs lab down --name {lab.name}`, then `xenoovs lab up --name {lab.name}`"
    if plan_topology(lab.name, balancer) != lab.topology:
        raise LabError(
            f"lab {lab.name} was built for another config (ports, VIPs or backends differ): build it anew with {again}"
        )
    if gone := set(lab.topology.namespaces) - set(namespaces_of(lab.name)):
        raise LabError(f"lab {lab.name} is in ruins, {', '.join(sorted(gone))} is gone: build it anew with {again}")


def _add_sources(lab: Lab, trials: Sequence[Trial]) -> None:
    nets = [parse_net(net) for net in lab.topology.clients.nets]
    sources = dict.fromkeys(source for trial in trials for flight in trial.flights for source in flight.sources)
    outside = [source for source in sources if not any(parse_address(source) in net for net in nets)]
    add_clients(Netns(lab.marks), lab.topology.clients, outside)


def _fly(lab: Lab, trials: Sequence[Trial], progress: Progress) -> Tally:
    flights = [flight for trial in trials for flight in trial.flights]
    total, done = sum(len(flight.sources) for flight in flights), 0
    tally = Tally([0] * len(flights))
    for chunk in _chunks(flights, max(_LEAST_CHUNK, -(-total // _CHUNKS))):
        progress("packets", done, total)
        _merge(
            tally, _run_client(lab, [flight for _, flight in chunk], lost=tally.lost), [number for number, _ in chunk]
        )
        done += sum(len(flight.sources) for _, flight in chunk)
    progress("packets", total, total)
    return tally


def _run_client(lab: Lab, flights: Sequence[Flight], *, lost: int) -> Tally:
    packets = sum(len(flight.sources) for flight in flights)
    done = Netns(lab.marks).execute(
        lab.topology.clients.namespace,
        [sys.executable, "-P", "-m", "xenoovs.lab.client"],
        stdin=render_round(flights, lost=lost),
        timeout_s=_BASE_TIMEOUT_S + packets * _PACKET_TIMEOUT_S,
    )
    return parse_tally(done.stdout)


def _chunks(flights: Sequence[Flight], size: int) -> Iterator[list[tuple[int, Flight]]]:
    """Flights with their numbers, cut and gathered into pieces of at most `size` packets."""
    chunk: list[tuple[int, Flight]] = []
    room = size
    for number, flight in enumerate(flights):
        start = 0
        while start < len(flight.sources):
            part = replace(flight, sources=flight.sources[start : start + room])
            chunk.append((number, part))
            start, room = start + len(part.sources), room - len(part.sources)
            if not room:
                yield chunk
                chunk, room = [], size
    if chunk:
        yield chunk


def _merge(tally: Tally, part: Tally, numbers: Sequence[int]) -> None:
    for at, number in enumerate(numbers):
        tally.sent[number] += part.sent[at]
    for (at, source, who), packets in part.answers.items():
        tally.answers[numbers[at], source, who] += packets
    tally.duplicates += part.duplicates
    tally.failures += part.failures


def _services(lab: Lab, trials: Sequence[Trial], tally: Tally) -> Iterator[ServiceTraffic]:
    service_of = [at for at, trial in enumerate(trials) for _ in trial.flights]
    answers = [Counter[tuple[str, str]]() for _ in trials]
    for (number, source, who), packets in tally.answers.items():
        answers[service_of[number]][source, who] += packets
    sent = Counter[int]()
    for number, packets in enumerate(tally.sent):
        sent[service_of[number]] += packets
    for at, trial in enumerate(trials):
        yield service_traffic(trial, lab.topology.machines, sent=sent[at], answers=answers[at])
