"""A load on a bed: how much of it arrives, and what it costs the switch. The unit of all experiments with loads."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from xenoovs.dataclass import dataclass, replace
from xenoovs.display import quantity
from xenoovs.measure.bed import PKTGEN, Bed, Station
from xenoovs.measure.counters import (
    CountedFrames,
    InterfaceCounts,
    SwitchCounters,
    SwitchCounts,
    SwitchedFrames,
    counted_frames,
    megaflow_totals,
    read_counts,
    read_switch,
    settled_counts,
    slack,
)
from xenoovs.measure.frames import LoadProfile, frame, other_half
from xenoovs.measure.generator import GeneratorResult, LoadGenerator, RunningLoad, kernel_generator, packet_generator
from xenoovs.measure.samples import BedKind, Value
from xenoovs.model.address import IPAddress

_LEARNING_PPS = 2000.0
_LEARNING_S = 0.5
_SLOW_SHARE = 0.95
_MOST_TRIES = 2
_DISCARD_PORT = 9
"""Service Discard (RFC 863)."""


@dataclass(frozen=True, slots=True)
class TrialResult:
    """The result of a load. `offered_pps`: None for as fast as possible. `by_switch`: None if it was not read."""

    offered_pps: float | None
    frames: CountedFrames
    seconds_s: float
    suspect: tuple[str, ...]
    by_switch: SwitchedFrames | None = None

    @property
    def sent_pps(self) -> float:
        return self.frames.sent / self.seconds_s

    @property
    def received_pps(self) -> float:
        return self.frames.received / self.seconds_s

    @property
    def values(self) -> dict[str, Value]:
        return {
            "sent": self.frames.sent,
            "received": self.frames.received,
            "received_by_backend": dict(self.frames.received_by_backend),
            "switched": self.frames.switched,
            "seconds_s": self.seconds_s,
            "offered_pps": self.sent_pps if self.offered_pps is None else self.offered_pps,
            "sent_pps": self.sent_pps,
            "received_pps": self.received_pps,
            "loss_share": self.frames.loss_share,
            **({} if self.by_switch is None else self.by_switch.values),
        }


@dataclass(slots=True)
class LoadBench:
    bed: Bed
    generator: LoadGenerator
    profile: LoadProfile
    switch: SwitchCounters

    @property
    def counted(self) -> list[Station]:
        return [self.bed.generator, self.bed.dpu, *self.bed.backends.values()]

    def read(self) -> tuple[dict[str, InterfaceCounts], SwitchCounts]:
        """Return all counters, for a load that matches the flows of the config. Raises MeasureError."""
        return read_counts(self.counted), self.switch.read()

    def announce_backends(self) -> None:
        """Send a packet from each backend, so that switches on the way learn its port and do not flood the load."""
        address = self.bed.client.address or str(other_half(self.profile)[1])
        for backend in self.bed.backends.values():
            backend.try_run("bash", "-c", f"echo > /dev/udp/{address}/{_DISCARD_PORT}")

    def learn(self, *, frame_bytes: int) -> None:
        """Send each client's frames slowly, so that the switch makes its megaflows (RFC 2544, section 23)."""
        self.generator.prepare(self.profile, frame_bytes=frame_bytes)
        self.start(frame_bytes, offered_pps=_LEARNING_PPS, seconds_s=_LEARNING_S).wait()

    def trial(self, *, frame_bytes: int, offered_pps: float | None, seconds_s: float) -> TrialResult:
        """Send a load, wait for its last frames, and count; repeat once if a counter went back. Raises MeasureError."""
        self.generator.prepare(self.profile, frame_bytes=frame_bytes)
        for _ in range(_MOST_TRIES):
            self.announce_backends()
            before, at_switch = self.read()
            running = self.start(frame_bytes, offered_pps=offered_pps, seconds_s=seconds_s)
            found = self.result(before, running, offered_pps=offered_pps, at_switch=at_switch)
            if not found.frames.went_back:
                break
        return found

    def start(self, frame_bytes: int, *, offered_pps: float | None, seconds_s: float) -> RunningLoad:
        return self.generator.start(self.profile, frame_bytes=frame_bytes, offered_pps=offered_pps, seconds_s=seconds_s)

    def result(
        self,
        before: Mapping[str, InterfaceCounts],
        running: RunningLoad,
        *,
        offered_pps: float | None,
        at_switch: SwitchCounts | None = None,
        elsewhere: int = 0,
        beside: int = 0,
    ) -> TrialResult:
        """Wait for the end of a load, and return its result.

        `at_switch`: Counts before a load that matches the flows of the config; None for other loads. `elsewhere`:
        Frames that another machine sent to the service during the load. `beside`: Frames that another program sent
        from the generator's interface.
        """
        done = running.wait()
        frames = counted_frames(before, settled_counts(self.counted), backends=self.bed.backends, also_sent=elsewhere)
        by_switch = None
        if at_switch is not None:
            by_switch = self.switch.frames_since(at_switch, received=frames.received - slack(frames.sent))
        suspect = (
            *frames.suspect,
            *done.suspect,
            *(() if frames.went_back else _generator_doubts(done, frames.sent - elsewhere - beside, offered_pps)),
            *(() if frames.went_back or by_switch is None else by_switch.doubts(frames)),
        )
        return TrialResult(offered_pps, frames, done.seconds_s, suspect, by_switch)


def _generator_doubts(done: GeneratorResult, by_interface: int, offered_pps: float | None) -> Iterator[str]:
    if abs(done.sent - by_interface) > slack(done.sent):
        yield (
            f"the generator says that it sent {done.sent} frames, its interface counted {by_interface}: other traffic "
            "left there, or frames were lost before the cable"
        )
    if offered_pps is not None and by_interface / done.seconds_s < _SLOW_SHARE * offered_pps:
        yield (
            f"the generator reached {quantity(by_interface / done.seconds_s)} of {quantity(offered_pps)} packets/s: "
            "its machine is too slow for this rate"
        )


@contextmanager
def load_bench(bed: Bed, profile: LoadProfile) -> Iterator[LoadBench]:
    """Prepare a bed for loads; undo all changes at the end. Raises MeasureError, CommandMissing."""
    with ExitStack() as stack:
        if bed.kind is not BedKind.MACHINES:
            for backend in bed.backends.values():
                stack.enter_context(unanswered(backend, profile))
        generator: LoadGenerator
        if bed.driver == PKTGEN:
            generator = kernel_generator(bed.generator)
        else:
            generator = stack.enter_context(packet_generator(bed.generator))
        yield LoadBench(bed, generator, profile, SwitchCounters(bed))


@contextmanager
def unanswered(backend: Station, profile: LoadProfile) -> Iterator[None]:
    """Make a backend of a lab drop the load after its interface; answers would take CPU time from the switch.

    Its route to the clients of the load is a blackhole, so packets from them fail the check of their return path
    (rp_filter in ip-sysctl.rst of the kernel).
    """
    route = ["ip", "route", "add", "blackhole", str(profile.net)]
    # For all interfaces: packets of a tunnel that ends in a backend arrive by another one.
    check = ["sh", "-c", "echo 1 > /proc/sys/net/ipv4/conf/all/rp_filter"]
    undo = ["sh", "-c", f"echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter; ip route del {profile.net}"]
    with backend.undone_at_end(*undo):
        backend.try_run(*route)
        backend.run(*check)
        yield


_SETTLE_S = 0.3
"""Time until Open vSwitch frees removed flows: until then the classifier sees them, and un-wildcards more bits."""

_START_TIMEOUT_S = 10.0
_STEP_S = 0.02
_READINGS = 4


@dataclass(frozen=True, slots=True)
class LoadTimes:
    """The times of one load: `warm_up_s`, then `counted_s`, which is measured. `newcomers`: new clients after it."""

    warm_up_s: float
    counted_s: float
    newcomers: int


LOAD_TIMES = {
    (BedKind.LAB, True): LoadTimes(0.3, 0.7, 20),
    (BedKind.LAB, False): LoadTimes(1.0, 3.0, 50),
    # An emulated processor takes a second to read counters.
    (BedKind.EMULATED, True): LoadTimes(1.0, 4.0, 20),
    (BedKind.EMULATED, False): LoadTimes(2.0, 8.0, 50),
    (BedKind.MACHINES, True): LoadTimes(0.3, 0.7, 20),
    (BedKind.MACHINES, False): LoadTimes(2.0, 10.0, 50),
}
"""By kind of the bed, and by whether the run is quick."""


def forwarded_load(
    bench: LoadBench, profile: LoadProfile, *, frame_bytes: int, times: LoadTimes
) -> tuple[dict[str, Value], list[str]]:
    """Send a load; once the switch has megaflows, measure how much it forwards, and what that costs it.

    Returns the values of a sample, and reasons why they may be wrong. Raises MeasureError.
    """
    bed = bench.bed
    begun_s = time.monotonic()
    at_first = read_switch(bed.dpu)
    before = read_counts(bench.counted)
    reading_s = time.monotonic() - begun_s
    # The load must last until the end of all readings.
    seconds_s = times.warm_up_s + times.counted_s + _READINGS * reading_s
    running = bench.generator.start(profile, frame_bytes=frame_bytes, offered_pps=None, seconds_s=seconds_s)
    deadline_s = time.monotonic() + _START_TIMEOUT_S
    # If no counter moves, the generator has failed, or the next readings will show that nothing was received.
    while read_counts(bench.counted) == before and running.command.exit_code is None and time.monotonic() < deadline_s:
        time.sleep(_STEP_S)
    time.sleep(times.warm_up_s)
    first, middle = read_switch(bed.dpu), read_counts(bed.backends.values())
    middle_s = time.monotonic()
    time.sleep(max(0.1, times.counted_s - 0.2))
    end, end_s = read_counts(bed.backends.values()), time.monotonic()
    last = read_switch(bed.dpu)
    trial = bench.result(before, running, offered_pps=None)
    values, suspect = dict(trial.values), list(trial.suspect)
    received = sum(max(0, end[name].rx - middle[name].rx) for name in bed.backends)
    if not received:
        suspect.append("the load had ended when the counters were read: the machine is too slow or too busy")
    pps = values["forwarding_pps"] = received / (end_s - middle_s)
    # The switch is read before and after the backends, so its time is longer.
    spent = last.since(first, packets=max(1.0, pps * (last.at_s - first.at_s)))
    # Bits are those of frames; cores are what offloading frees.
    values |= {**spent, "forwarding_bps": pps * frame_bytes * 8, "cpu_cores": pps * spent["cpu_us"] / 1e6}
    at_last = read_switch(bed.dpu)
    values["upcalls"] = max(0, at_last.missed - at_first.missed)
    if at_last.missed < at_first.missed:
        suspect.append("the counters of the datapath went back: ovs-vswitchd was restarted meanwhile")
    values["memory_bytes"] = max(0, at_last.memory_bytes - at_first.memory_bytes)
    return values | megaflow_totals(bed.dpu, bed.balancer.uplinks.ingress), suspect


PACKET_PROGRAM = Path(__file__).with_name("packet_program.py").read_text()


def arrival_times(
    bed: Bed, profile: LoadProfile, clients: Iterable[tuple[IPAddress, int]], *, frame_bytes: int
) -> tuple[list[float], int]:
    """Send a packet of each client, one after the other; only in a lab, whose machines share a clock.

    Returns their times in microseconds, and how many were lost. Raises MeasureError.
    """
    receivers = [word for each in bed.backends.values() for word in (each.netns, each.interface)]
    return _send_each(bed, profile, clients, frame_bytes, "arrival", *receivers)


def rule_times(
    bed: Bed, profile: LoadProfile, clients: Iterable[tuple[IPAddress, int]], *, frame_bytes: int
) -> list[float]:
    """Return the microseconds from a new client's packet to its rule, in the NIC or, if there is none, the datapath."""
    mark = "offloaded:yes" if bed.kind is BedKind.EMULATED else "packets:"
    return _send_each(bed, profile, clients, frame_bytes, "rule", mark)[0]


def _send_each(
    bed: Bed, profile: LoadProfile, clients: Iterable[tuple[IPAddress, int]], frame_bytes: int, role: str, *words: str
) -> tuple[list[float], int]:
    frames = "".join(f"{frame(profile, *client, frame_bytes=frame_bytes).hex()}\n" for client in clients)
    sender, failure = bed.generator, "single packets cannot be measured"
    # The program enters the namespaces itself.
    outside, argv = replace(sender, netns="", env=bed.dpu.env), (role, sender.netns, sender.interface, *words)
    found: list[float | None] = outside.ask(PACKET_PROGRAM, *argv, failure=failure, stdin=frames, timeout_s=120.0)
    in_time = [round(each, 3) for each in found if each is not None]
    return in_time, len(found) - len(in_time)


def forget_megaflows(dpu: Station) -> None:
    """Delete all megaflows of the switch, after it has freed the removed flows."""
    time.sleep(_SETTLE_S)
    for command in ("revalidator/purge", "revalidator/wait"):
        dpu.run("ovs-appctl", command)
