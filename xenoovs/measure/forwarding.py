"""A load at the generator's full speed: how much of it the switch forwards, and what that costs the switch."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path

from xenoovs.dataclass import asdict, dataclass
from xenoovs.errors import CommandFailed, MeasureError
from xenoovs.measure.bed import Bed, Station
from xenoovs.measure.counters import megaflow_totals, read_counts, read_switch
from xenoovs.measure.frames import LoadProfile, frame
from xenoovs.measure.load import LoadBench, LoadReading
from xenoovs.measure.samples import BedKind, Value
from xenoovs.model.address import IPAddress

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
    before = LoadReading(read_counts(bench.counted))
    reading_s = time.monotonic() - begun_s
    # The load must last until the end of all readings.
    seconds_s = times.warm_up_s + times.counted_s + _READINGS * reading_s
    running = bench.generator.start(profile, frame_bytes=frame_bytes, offered_pps=None, seconds_s=seconds_s)
    deadline_s = time.monotonic() + _START_TIMEOUT_S
    # If no counter moves, the generator has failed, or the next readings will show that nothing was received.
    while (
        read_counts(bench.counted) == before.interfaces
        and running.command.exit_code is None
        and time.monotonic() < deadline_s
    ):
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
    return values | asdict(megaflow_totals(bed.dpu, bed.balancer.uplinks.ingress)), suspect


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
    argv = ["python3", "-I", "-c", PACKET_PROGRAM, role, bed.generator.netns, bed.generator.interface, *words]
    try:
        output = bed.generator.place.run(argv, stdin=frames, timeout_s=120.0, env=bed.dpu.env)
    except CommandFailed as failed:
        raise MeasureError(f"single packets cannot be measured: {failed.stderr.strip()}") from None
    found: list[float | None] = json.loads(output.stdout)
    in_time = [round(each, 3) for each in found if each is not None]
    return in_time, len(found) - len(in_time)


def forget_megaflows(dpu: Station) -> None:
    """Delete all megaflows of the switch, after it has freed the removed flows."""
    time.sleep(_SETTLE_S)
    for command in ("revalidator/purge", "revalidator/wait"):
        dpu.run("ovs-appctl", command)
