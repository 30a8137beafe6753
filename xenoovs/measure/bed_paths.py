"""The paths of a bed: from the generator through the bridge to each backend, and back."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from ipaddress import ip_network
from itertools import combinations, combinations_with_replacement
from typing import cast

from xenoovs.compile.encoding import rewrites
from xenoovs.dataclass import dataclass, replace
from xenoovs.datapath.host import Device
from xenoovs.errors import CommandMissing, MeasureError
from xenoovs.measure.bed import Bed, Station, added_flows, first_line, packets_to
from xenoovs.measure.bench import PACKET_PROGRAM, unanswered
from xenoovs.measure.counters import (
    InterfaceCounts,
    SwitchCounters,
    read_counts,
    read_switch,
    settled_counts,
    slack,
)
from xenoovs.measure.frames import LoadProfile, frame, sources
from xenoovs.measure.generator import GeneratorResult, PacketGenerator, RunningLoad, packet_generator
from xenoovs.measure.path_figures import KIND_OPTION
from xenoovs.measure.path_plan import Direction, PathKind
from xenoovs.measure.run import Basis, Experiment
from xenoovs.measure.samples import BedKind, Measurement, Plain, Point, Value
from xenoovs.model.address import Family, IPAddress, parse_mac
from xenoovs.model.next_hop import NextHop, with_mac
from xenoovs.openflow.flow import Action, Field, Output, OutputInPort, SetField
from xenoovs.openflow.text import render_actions

MAX_BED_PATHS = 8
"""Limit of one run: the number of pairs grows with the square of the number of paths."""

_CLIENTS = 256
COOKIE = 0x70617468 << 32
"""ASCII "path". Its owner is foreign to xenoovs, so agents do not change these flows."""

_NETS = {Family.IPV4: ip_network("203.0.113.0/24"), Family.IPV6: ip_network("2001:db8:7061::/120")}
"""Nets for documentation (RFC 5737, RFC 3849): no machine has an address in them, so nothing answers the load."""


@dataclass(frozen=True, slots=True)
class BedPath:
    """A path through the bridge of a bed. `kind`: None if not known.

    `inward`, `outward`: Destination addresses of the frames to the backend, and from the backend.
    """

    name: str
    station: Station
    hop: NextHop
    kind: PathKind | None
    inward: IPAddress
    outward: IPAddress


def bed_paths(bed: Bed) -> tuple[BedPath, ...]:
    """Return the paths to the service's backends, one for each machine. Raises MeasureError above MAX_BED_PATHS."""
    stations = dict[str, Station]()
    for backend in bed.service.backends:
        station = bed.backends[backend.name]
        if not any(station.is_at(other) for other in stations.values()):
            mac = station.mac or station.run("cat", f"/sys/class/net/{station.interface}/address").stdout.strip()
            stations[backend.name] = replace(station, mac=mac)
    if len(stations) > MAX_BED_PATHS:
        raise MeasureError(
            f"service {bed.service.name} has {len(stations)} backends on machines of their own, and at most "
            f"{MAX_BED_PATHS} paths are measured in a run: name another service with --service"
        )
    kinds, net = _kinds(bed), _NETS[bed.profile(clients=_CLIENTS, seed=0).family]
    found = list[BedPath]()
    for number, (name, station) in enumerate(stations.items()):
        hop = next(backend.next_hop for backend in bed.service.backends if backend.name == name)
        # A MAC that the agent finds by ARP is known here from the interface.
        hop = hop if hop.is_known else with_mac(hop, parse_mac(station.mac))
        kind = kinds.get(hop.port)
        found.append(BedPath(name, station, hop, kind, net[1 + 2 * number], net[2 + 2 * number]))
    return tuple(found)


def _kinds(bed: Bed) -> dict[str, PathKind]:
    """Return the kind of path behind each port of the bridge, by the NIC's name for the port (phys_port_name)."""
    ports = bed.balancer.egress_ports
    if bed.kind is BedKind.LAB:
        return dict.fromkeys(ports, PathKind.SOFTWARE)
    script = 'for port; do echo "$port $(cat "/sys/class/net/$port/phys_port_name" 2>/dev/null)"; done'
    output = bed.dpu.run("sh", "-c", script, "sh", *ports).stdout
    names = dict(line.split(" ", 1) for line in output.splitlines())
    return {
        port: kind
        for port, name in names.items()
        if (kind := kind_of(Device(port, is_up=True, mtu=0, port_name=name or None)))
    }


def kind_of(device: Device) -> PathKind | None:
    """Return the kind of path behind a port; None if the port does not belong to a NIC."""
    if device.is_uplink:
        return PathKind.WIRE
    if device.is_representor:
        return PathKind.SOC if "sf" in str(device.port_name) else PathKind.HOST
    return None


def path_profile(bed: Bed, path: BedPath, direction: Direction, *, seed: int) -> LoadProfile:
    """Return the load of a path in a direction. Raises MeasureError if the service serves no UDP."""
    profile = bed.profile(clients=_CLIENTS, seed=seed)
    if direction is Direction.IN:
        return replace(profile, vip=path.inward)
    # The bridge gives the generator's frames this source MAC, so switches on the way have learned its port.
    back = bed.service.source_mac
    gateway_mac = bed.generator.mac if back is None else str(back)
    return replace(profile, vip=path.outward, source_mac=path.station.mac, gateway_mac=gateway_mac)


# The flows of the paths, in addition to those of the config.


def path_flows(bed: Bed, paths: Sequence[BedPath]) -> tuple[str, ...]:
    """Return a flow for each direction of each path, in the format of `ovs-ofctl add-flows`."""
    flows, ingress = list[str](), bed.balancer.uplinks.ingress[0]
    for path in paths:
        port = path.hop.port
        inward = (*rewrites(path.hop, bed.service.source_mac), _output(port, in_port=ingress))
        outward = (SetField(Field.DL_DST, parse_mac(bed.generator.mac).value), _output(ingress, in_port=port))
        for in_port, address, actions in ((ingress, path.inward, inward), (port, path.outward, outward)):
            flows.append(f"{packets_to(address, 'udp')},in_port={in_port},actions={render_actions(actions)}")
    return tuple(flows)


def _output(port: str, *, in_port: str) -> Action:
    # OpenFlow sends a packet back by its ingress port only with output to IN_PORT (OpenFlow 1.4.0, 7.2.1).
    return OutputInPort() if port == in_port else Output(port)


# Loads on one or two paths at a time: frames sent, frames received, and their rates.

_LATENCY_FRAME_BYTES = 128
_ANSWER_TIMEOUT_S = 10.0
_START_TIMEOUT_S = 10.0
_STEP_S = 0.02
_LONGEST_READINGS_S = 60.0
"""Time for the readings. A load is stopped after them; if they take longer, it ends by itself."""
_LEARNING_PPS, _LEARNING_S = 500.0, 0.1


@dataclass(frozen=True, slots=True)
class PathLoad:
    """A load on a path. `offered_pps`: None for as fast as possible."""

    path: BedPath
    direction: Direction
    offered_pps: float | None = None

    @property
    def name(self) -> str:
        return f"{self.path.name} {self.direction.value}"

    def ends(self, bed: Bed) -> tuple[Station, Station]:
        """Return the sender and the receiver."""
        is_in = self.direction is Direction.IN
        return (bed.generator, self.path.station) if is_in else (self.path.station, bed.generator)


PathTrial = dict[str, float]
"""The result of a load on a path, with the keys of a sample.

`sent`, `received`: Frames of the whole load, counted at the interfaces of its ends; `received` is at most `sent`, as
the rest are frames of other kinds. `sent_pps`, `received_pps`: Rates while all loads ran.
"""


@dataclass(frozen=True, slots=True)
class PathBench:
    """Sends loads on the paths of a bed. `generators`: By the role of the sender."""

    bed: Bed
    paths: tuple[BedPath, ...]
    generators: Mapping[str, PacketGenerator]
    frame_bytes: int
    seed: int

    def path(self, name: str) -> BedPath:
        return next(path for path in self.paths if path.name == name)

    def learn(self, loads: Iterable[PathLoad]) -> None:
        """Send a few frames of each load, so that switches on the way learn both MACs. Raises MeasureError."""
        for load in loads:
            before = self._counts([load])
            self._start(replace(load, offered_pps=_LEARNING_PPS), seconds_s=_LEARNING_S).wait()
            sender, receiver = load.ends(self.bed)
            if not self._await_frames([load], before, lambda: False):
                raise MeasureError(
                    f"no frame from {sender.role} reached {receiver.role} on path {load.name}: are cables and "
                    f"interfaces those of the bed, and has the config the right port for {load.path.name}?"
                    + (" `--directions in` leaves this direction out" if load.direction is Direction.OUT else "")
                )

    def run(
        self, loads: Sequence[PathLoad], *, seconds_s: float, reads_switch: bool = False
    ) -> tuple[list[PathTrial], Measurement]:
        """Send loads at the same time; return the result of each, and the values of the switch. Raises MeasureError.

        `loads`: One or two, with different receivers. `reads_switch`: Whether to read also what they cost the switch
        while all of them run.
        """
        inward, ingress = Direction.IN, self.bed.balancer.uplinks.ingress[0]
        ports = [ingress if load.direction is inward else load.path.hop.port for load in loads]
        counters = SwitchCounters(self.bed, cookie=f"{COOKIE:#x}/-1", ports=ports)
        at_first, before = counters.read(), self._counts(loads)
        whole_s = seconds_s + _LONGEST_READINGS_S
        running = [self._start(load, seconds_s=whole_s) for load in loads]
        try:
            self._await_frames(loads, before, lambda: all(one.command.exit_code is not None for one in running))
            first_switch = read_switch(self.bed.dpu) if reads_switch else None
            first = self._counts(loads)
            time.sleep(seconds_s)
            last = self._counts(loads)
            last_switch = read_switch(self.bed.dpu) if reads_switch else None
            in_time = all(one.command.exit_code is None for one in running)
        except BaseException:
            for one in running:
                one.command.end()
            raise
        done = [one.stop() for one in running]
        after = settled_counts(self._ends(loads))
        late = () if in_time else ("a load ended before the rates were read: the machine is too slow or too busy",)
        suspect, trials = list(late), list[PathTrial]()
        for trial, doubts in _trials(self.bed, loads, done, (before, first, last, after)):
            trials.append(trial)
            suspect += doubts
        least = sum(int(trial["received"]) - slack(0) for trial in trials)
        values: dict[str, Value] = {**counters.frames_since(at_first, received=least).values}
        if first_switch is not None and last_switch is not None:
            packets = trials[0]["received_pps"] * (last_switch.at_s - first_switch.at_s)
            values |= last_switch.since(first_switch, packets=max(1.0, packets))
        return trials, Measurement(values, tuple(dict.fromkeys(suspect)))

    def _start(self, load: PathLoad, *, seconds_s: float) -> RunningLoad:
        generator, rate = self.generators[load.ends(self.bed)[0].role], load.offered_pps
        # At full speed, tcpreplay takes only whole seconds.
        seconds_s = seconds_s if rate is not None else math.ceil(seconds_s)
        return generator.start(self._profile(load), frame_bytes=self.frame_bytes, offered_pps=rate, seconds_s=seconds_s)

    def _profile(self, load: PathLoad) -> LoadProfile:
        return path_profile(self.bed, load.path, load.direction, seed=self.seed)

    def prepare(self, load: PathLoad) -> None:
        """Write the frames of a load to the sender before measurements, which would wait for that."""
        generator = self.generators[load.ends(self.bed)[0].role]
        generator.prepare(self._profile(load), frame_bytes=self.frame_bytes)

    def _counts(self, loads: Iterable[PathLoad]) -> dict[str, InterfaceCounts]:
        return read_counts(self._ends(loads))

    def _ends(self, loads: Iterable[PathLoad]) -> Collection[Station]:
        return {end.role: end for load in loads for end in load.ends(self.bed)}.values()

    def _await_frames(
        self, loads: Sequence[PathLoad], before: Mapping[str, InterfaceCounts], have_ended: Callable[[], bool]
    ) -> bool:
        """Wait until frames of each load arrive, up to a time limit or the end of all loads. Return whether they do."""
        receivers = [load.ends(self.bed)[1].role for load in loads]
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline_s and not have_ended():
            counts = self._counts(loads)
            if all(counts[role].rx > before[role].rx for role in receivers):
                return True
            time.sleep(_STEP_S)
        return False

    def round_trips(self, path: BedPath, *, count: int) -> list[float]:
        """Return the round-trip times of a path without load, in microseconds. Raises MeasureError."""
        backend, asker = path.station, self.bed.generator
        argv = ["python3", "-I", "-c", PACKET_PROGRAM, "reflect", backend.interface, str(path.inward)]
        reflector = backend.start(*argv, self._request(path, Direction.OUT))
        try:
            first_line(reflector, _ANSWER_TIMEOUT_S, f"{path.name} cannot answer on {backend.place.name}")
            argv = ["ask", asker.interface, str(path.outward), self._request(path, Direction.IN), str(count)]
            failure = f"round trips on path {path.name} cannot be measured"
            times: list[float] = asker.ask(PACKET_PROGRAM, *argv, failure=failure, timeout_s=120.0)
        finally:
            reflector.end()
        return times

    def _request(self, path: BedPath, direction: Direction) -> str:
        profile = self._profile(PathLoad(path, direction))
        source, port = sources(profile)[0]
        return frame(profile, source, port, frame_bytes=_LATENCY_FRAME_BYTES).hex()


def _trials(
    bed: Bed,
    loads: Sequence[PathLoad],
    done: Sequence[GeneratorResult],
    counts: Sequence[Mapping[str, InterfaceCounts]],
) -> Iterator[tuple[PathTrial, list[str]]]:
    """Yield the result of each load, and reasons why it may be wrong.

    `counts`: By role; before the loads, twice while all of them run, and after them. If two loads leave by one
    interface, each is counted by its generator; the sum must equal the interface's counter.
    """
    before, first, last, after = counts
    ends = [tuple(end.role for end in load.ends(bed)) for load in loads]
    senders = [sender for sender, _ in ends]
    for load, (sender, receiver), result in zip(loads, ends, done, strict=True):
        total = sum(other.sent for other, role in zip(done, senders, strict=True) if role == sender)
        counted = after[sender].tx - before[sender].tx
        alone = senders.count(sender) == 1
        sent = counted if alone else result.sent
        part = 1.0 if alone else result.sent / max(1, total)
        received = after[receiver].rx - before[receiver].rx
        took = last[sender].at_s - first[sender].at_s
        seconds_s = last[receiver].at_s - first[receiver].at_s
        suspect = [*result.suspect]
        if abs(total - counted) > slack(counted):
            suspect.append(
                f"the generators on {sender} say that they sent {total} frames, its interface counted {counted}: other "
                "traffic left there, or frames were lost before the cable"
            )
        if received > sent + slack(sent):
            suspect.append(
                f"{receiver} received {received} frames and {sent} were sent to it: other traffic reaches it"
            )
        if min(counted, received, took, seconds_s) < 0:
            suspect.append(f"a counter or the clock of {sender} or {receiver} went back: it wrapped, or was set")
        sent, received = max(0, sent), max(0, min(sent, received))
        sent_pps = max(0.0, part * _rate(first[sender].tx, last[sender].tx, took))
        yield (
            {
                "sent": sent,
                "received": received,
                "lost": sent - received,
                "seconds_s": max(0.0, seconds_s),
                "offered_pps": sent_pps if load.offered_pps is None else load.offered_pps,
                "sent_pps": sent_pps,
                "received_pps": max(0.0, _rate(first[receiver].rx, last[receiver].rx, seconds_s)),
                "loss_share": (sent - received) / sent if sent else 0.0,
            },
            suspect,
        )


def _rate(first: int, last: int, seconds_s: float) -> float:
    return (last - first) / seconds_s if seconds_s > 0 else 0.0


@contextmanager
def path_bench(bed: Bed, directions: Sequence[Direction], *, seed: int) -> Iterator[PathBench]:
    """Prepare a bed for loads on its paths; undo all changes at the end. Raises MeasureError, CommandMissing."""
    paths = bed_paths(bed)
    # The shortest frame: paths are compared by packets, and short packets cost the most for each byte.
    frame_bytes = path_profile(bed, paths[0], Direction.IN, seed=seed).shortest_bytes
    with ExitStack() as stack:
        if bed.kind is not BedKind.MACHINES:
            for path in paths:
                profile = path_profile(bed, path, Direction.IN, seed=seed)
                stack.enter_context(unanswered(path.station, profile))
        senders = [bed.generator]
        if Direction.OUT in directions:
            senders += [path.station for path in paths]
        generators = dict[str, PacketGenerator]()
        for station in senders:
            try:
                generators[station.role] = stack.enter_context(packet_generator(station))
            except CommandMissing as missing:
                raise MeasureError(
                    f"{station.role} on {station.place.name} has no {missing.program}, which sends the load: "
                    f"`apt-get install {missing.package}` there, or measure with `--directions in`"
                ) from None
        stack.enter_context(added_flows(bed, COOKIE, path_flows(bed, paths)))
        yield PathBench(bed, paths, generators, frame_bytes, seed)


# The experiment: rate and latency of each path alone, and the rates of pairs at the same time.

BASIS = "offered_pps_by_load"
_OVERLOAD = 1.25
"""Factor of the offered load to the rate that passed at first, so that a path is full even if it has become faster."""

_RAISE, _MOST_RAISES = 1.6, 4
_LOSS_SHARE = 0.02

_TRIAL_S = {
    (BedKind.LAB, True): 0.4,
    (BedKind.LAB, False): 1.5,
    # An emulated processor takes a second to read counters.
    (BedKind.EMULATED, True): 1.0,
    (BedKind.EMULATED, False): 4.0,
    (BedKind.MACHINES, True): 0.5,
    (BedKind.MACHINES, False): 10.0,
}
"""By kind of the bed, and by whether the run is quick."""
_OVERHEAD_S = 1.0
_QUICK_SAMPLES = 40
_REPEATS = 5
_ROUND_TRIPS = {False: 200, True: 50}


def _overload(bench: PathBench, load: PathLoad, trial_s: float) -> float:
    """Return a rate at which frames are lost; if none is lost at any rate, the highest rate of the generator."""
    seconds_s = min(trial_s, 1.0)
    (flood,), _ = bench.run([load], seconds_s=seconds_s)
    offered = flood["received_pps"] * _OVERLOAD
    # A software switch that shares its processors with the generator forwards more packets of a lower load.
    for _ in range(_MOST_RAISES):
        if offered >= flood["sent_pps"]:
            break
        (trial,), _ = bench.run([replace(load, offered_pps=offered)], seconds_s=seconds_s)
        if trial["received_pps"] < trial["sent_pps"] * (1 - _LOSS_SHARE):
            break
        offered *= _RAISE
    return max(1.0, min(offered, flood["sent_pps"]))


def _measurement(bench: PathBench, loads: Sequence[PathLoad], *, round_trips: int, trial_s: float) -> Measurement:
    values: dict[str, Value] = {}
    # The round trip is the same in both directions.
    is_asked = len(loads) == 1 and loads[0].direction is Direction.IN
    if is_asked:
        values["rtt_us"] = bench.round_trips(loads[0].path, count=round_trips)
    trials, by_switch = bench.run(loads, seconds_s=trial_s, reads_switch=is_asked)
    for prefix, trial in zip(("", "beside_"), trials, strict=False):
        values |= {f"{prefix}{key}": value for key, value in trial.items()}
    suspect = [*by_switch.suspect]
    if values.get("rtt_us") == []:
        suspect.append(f"no frame came back on path {loads[0].path.name}")
    return Measurement({**values, **by_switch.values}, tuple(suspect))


def path_points(names: Sequence[str], directions: Sequence[Direction]) -> tuple[Point, ...]:
    """Return the points of paths: each alone, pairs in the same direction, and pairs in opposite directions."""
    inward, outward = Direction.IN.value, Direction.OUT.value
    points: list[Point] = [{"path": name, "direction": direction.value} for direction in directions for name in names]
    points += [
        {"path": one, "direction": inward, "beside": other, "beside_direction": inward}
        for one, other in combinations(names, 2)
    ]
    if Direction.OUT in directions:
        points += [
            {"path": one, "direction": inward, "beside": other, "beside_direction": outward}
            for one, other in combinations_with_replacement(names, 2)
        ]
    return tuple(points)


def paths_experiment(
    bench: PathBench, directions: Sequence[Direction], *, quick: bool, repeats: int | None = None
) -> Experiment:
    """Return the experiment: each path alone in each direction, and pairs. `repeats`: None for 5, or fewer if quick."""
    points = path_points([path.name for path in bench.paths], directions)
    usual = max(1, min(_REPEATS, math.floor(_QUICK_SAMPLES / len(points)))) if quick else _REPEATS
    round_trips, trial_s = _ROUND_TRIPS[quick], _TRIAL_S[bench.bed.kind, quick]

    def load(point: Point, path: str = "path", direction: str = "direction") -> PathLoad:
        return PathLoad(bench.path(str(point[path])), Direction(point[direction]))

    alone = [load(point) for point in points if "beside" not in point]

    def warm_up() -> None:
        for each in alone:
            bench.prepare(each)
        bench.learn(alone)

    def prepare() -> Basis:
        """Return the load of each path and direction: slightly more than what passes."""
        warm_up()
        return {BASIS: {each.name: _overload(bench, each, trial_s) for each in alone}}

    def measure(point: Point, basis: Basis) -> Measurement:
        offered = cast("Mapping[str, float]", basis[BASIS])
        loads = [load(point), *([load(point, "beside", "beside_direction")] if "beside" in point else [])]
        loads = [replace(each, offered_pps=offered[each.name]) for each in loads]
        return _measurement(bench, loads, round_trips=round_trips, trial_s=trial_s)

    options: dict[str, Plain] = {
        "service": bench.bed.service.name,
        "frame_bytes": bench.frame_bytes,
        "trial_s": trial_s,
        "round_trips": round_trips,
        **{KIND_OPTION.format(path.name): path.kind.value for path in bench.paths if path.kind is not None},
    }
    return Experiment("paths", points, repeats or usual, trial_s + _OVERHEAD_S, measure, options, prepare, warm_up)
