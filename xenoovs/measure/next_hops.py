"""The experiment that compares ways to backends: the same load to services behind a port, behind tunnels, and with NAT.

It goes through the flows that are installed. So it needs a config with a service for each way, and shows what the
encapsulation or the translation costs the switch: CPU time that offloading gives back to applications.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from xenoovs.errors import MeasureError
from xenoovs.measure.bed import Bed
from xenoovs.measure.forwarding import LOAD_TIMES, LoadTimes, forget_megaflows, forwarded_load
from xenoovs.measure.load import load_bench
from xenoovs.measure.samples import Plain, Point, Value
from xenoovs.measure.schedule import Experiment, Measurement
from xenoovs.model.balancer import Balancer, Protocol, Service
from xenoovs.model.next_hop import NextHop
from xenoovs.model.tunnel import remote_end_of

DIRECT, NAT = "direct", "nat"
"""Ways that are no tunnel; a tunnel is called by its type, with `+ipsec` where it is encrypted."""

FRAME_BYTES = (64, 1024)
CLIENTS = 1000


def way_of(service: Service, balancer: Balancer) -> str:
    """Return the way to the backends of a service; of several, all of them."""
    if service.nat is not None:
        return NAT
    return " and ".join(dict.fromkeys(_way(backend.next_hop, balancer) for backend in service.backends))


def _way(hop: NextHop, balancer: Balancer) -> str:
    end = remote_end_of(hop, balancer.switch_tunnels)
    if end is None:
        return DIRECT
    return f"{end.tunnel.type.value}{'' if end.tunnel.ipsec is None else '+ipsec'}"


@dataclass(slots=True)
class NextHopsExperiment(Experiment[Bed]):
    beds: Mapping[str, Bed]
    times: LoadTimes
    seed: int
    repeats: int
    points: Sequence[Point] = field(init=False)
    options: Mapping[str, Plain] = field(init=False)
    point_s: float = field(init=False)
    name: str = "next-hops"

    def __post_init__(self) -> None:
        self.points = [
            {"service": name, "way": way_of(bed.service, bed.balancer), "frame_bytes": size}
            for size in FRAME_BYTES
            for name, bed in self.beds.items()
        ]
        self.options = {"counted_s": self.times.counted_s, "clients": CLIENTS}
        self.point_s = self.times.warm_up_s + self.times.counted_s + 2.0

    def measure(self, bed: Bed, point: Point, basis: Mapping[str, Value]) -> Measurement:
        bed = self.beds[str(point["service"])]
        profile = bed.profile(clients=CLIENTS, seed=self.seed)
        frame_bytes = max(int(point["frame_bytes"]), profile.shortest_bytes)
        with load_bench(bed, profile) as bench:
            bench.generator.prepare(profile, frame_bytes=frame_bytes)
            bench.announce_backends()
            forget_megaflows(bed.dpu)
            values, suspect = forwarded_load(bench, profile, frame_bytes=frame_bytes, times=self.times)
        return Measurement(values, tuple(suspect))


def next_hops_experiment(bed: Bed, *, quick: bool, seed: int, repeats: int) -> NextHopsExperiment:
    """Return the experiment for a bed. Raises MeasureError where there is nothing to compare."""
    beds = {service.name: bed.testing(service) for service in _measured(bed)}
    if len(beds) < 2:
        raise MeasureError(
            f"{bed.name} has one service that UDP can be sent to; write a config with one for each way to compare, as "
            "`xenoovs new next-hops` prints"
        )
    return NextHopsExperiment(beds, LOAD_TIMES[bed.kind, quick], seed, repeats=repeats)


def _measured(bed: Bed) -> Iterator[Service]:
    """Yield the services that serve UDP, and whose backends are all on the bed."""
    for service in bed.balancer.services:
        is_there = all(backend.name in bed.stations for backend in service.backends)
        if is_there and service.claim.protocol in (None, Protocol.UDP):
            yield service
