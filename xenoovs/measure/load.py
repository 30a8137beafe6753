"""One trial: a load of known rate, and how much of it arrived. The unit of all experiments with loads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from xenoovs.dataclass import dataclass
from xenoovs.display import quantity
from xenoovs.measure.bed import PKTGEN, Bed, Station
from xenoovs.measure.counters import (
    CountedFrames,
    InterfaceCounts,
    SwitchCounters,
    SwitchCounts,
    SwitchedFrames,
    counted_frames,
    read_counts,
    settled_counts,
    slack,
)
from xenoovs.measure.frames import LoadProfile, other_half
from xenoovs.measure.generator import GeneratorResult, LoadGenerator, RunningLoad, kernel_generator, packet_generator
from xenoovs.measure.samples import BedKind, Value

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


@dataclass(frozen=True, slots=True)
class LoadReading:
    """Counters before a load. `switch`: None if Open vSwitch was not read."""

    interfaces: Mapping[str, InterfaceCounts]
    switch: SwitchCounts | None = None


@dataclass(slots=True)
class LoadBench:
    bed: Bed
    generator: LoadGenerator
    profile: LoadProfile
    switch: SwitchCounters

    @property
    def counted(self) -> list[Station]:
        return [self.bed.generator, self.bed.dpu, *self.bed.backends.values()]

    def read(self) -> LoadReading:
        """Return all counters, for a load that matches the flows of the config. Raises MeasureError."""
        return LoadReading(read_counts(self.counted), self.switch.read())

    def announce_backends(self) -> None:
        """Send a packet from each backend, so that switches on the way learn its port and do not flood the load."""
        address = self.bed.client.address or str(other_half(self.profile)[1])
        for backend in self.bed.backends.values():
            backend.try_run("bash", "-c", f"echo > /dev/udp/{address}/{_DISCARD_PORT}")

    def learn(self, *, frame_bytes: int) -> None:
        """Send each client's frames slowly, so that the switch makes its megaflows (RFC 2544, section 23)."""
        self.generator.prepare(self.profile, frame_bytes=frame_bytes)
        self.generator.start(
            self.profile, frame_bytes=frame_bytes, offered_pps=_LEARNING_PPS, seconds_s=_LEARNING_S
        ).wait()

    def trial(self, *, frame_bytes: int, offered_pps: float | None, seconds_s: float) -> TrialResult:
        """Send a load, wait for its last frames, and count; repeat once if a counter went back. Raises MeasureError."""
        self.generator.prepare(self.profile, frame_bytes=frame_bytes)
        for _ in range(_MOST_TRIES):
            self.announce_backends()
            before = self.read()
            running = self.start(frame_bytes, offered_pps=offered_pps, seconds_s=seconds_s)
            found = self.result(before, running, offered_pps=offered_pps)
            if not found.frames.went_back:
                break
        return found

    def start(self, frame_bytes: int, *, offered_pps: float | None, seconds_s: float) -> RunningLoad:
        return self.generator.start(self.profile, frame_bytes=frame_bytes, offered_pps=offered_pps, seconds_s=seconds_s)

    def result(
        self,
        before: LoadReading,
        running: RunningLoad,
        *,
        offered_pps: float | None,
        elsewhere: int = 0,
        beside: int = 0,
    ) -> TrialResult:
        """Wait for the end of a load, and return its result.

        `elsewhere`: Frames that another machine sent to the service during the load. `beside`: Frames that another
        program sent from the generator's interface.
        """
        done = running.wait()
        frames = counted_frames(
            before.interfaces, settled_counts(self.counted), backends=self.bed.backends, also_sent=elsewhere
        )
        by_switch = None
        if before.switch is not None:
            by_switch = self.switch.frames_since(before.switch, received=frames.received - frames.slack)
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
