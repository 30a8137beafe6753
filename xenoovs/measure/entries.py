"""The experiments on entries: the cost of a packet with many active entries, and the rate of new entries.

An active entry has traffic, from its own client. The flows of entries have a higher priority than the config's.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import cast

from xenoovs.compile.encoding import deliver
from xenoovs.measure.bed import Bed, add_flows, added_flows
from xenoovs.measure.counters import megaflow_totals, read_counts
from xenoovs.measure.designs import designs_profile
from xenoovs.measure.forwarding import (
    LOAD_TIMES,
    arrival_times,
    forget_megaflows,
    forwarded_load,
    rule_times,
)
from xenoovs.measure.frames import LoadProfile, client_bits, new_clients, sources
from xenoovs.measure.load import LoadBench, LoadReading
from xenoovs.measure.samples import BedKind, Point, Value
from xenoovs.measure.schedule import Basis, Experiment, Measurement
from xenoovs.model.address import Family
from xenoovs.openflow.text import render_actions

KINDS = ("blocks", "clients", "five-tuples")
MOST_ENTRIES = 1 << 16
"""Half as many as the net of clients has addresses."""

_COOKIE = 0x656E7472 << 32
"""ASCII "entr". Its owner is foreign to xenoovs, so agents do not change these flows."""

_ENTRIES_A_S = 20_000.0
"""Assumed lower limit of the upcall rate; sets the warm-up, in which a load makes its entries."""

_FEW_SHARE = 0.95
_NEWCOMERS = 20
_UPDATE_PPS, _UPDATE_S = 2000.0, 3.0
_POLL_S, _LONGEST_S = 0.02, 60.0


def entry_flows(bed: Bed, profile: LoadProfile, kind: str, *, turn: int = 0) -> Iterator[str]:
    """Yield a flow for each client of a load, for `ovs-ofctl add-flows`. Another `turn` gives each another backend."""
    family, service = profile.family, bed.service
    protocol, source, vip = ("udp", "nw_src", "nw_dst") if family is Family.IPV4 else ("udp6", "ipv6_src", "ipv6_dst")
    bits = client_bits(profile)[: (profile.clients - 1).bit_length()]
    mask = type(profile.vip)(sum(1 << bit for bit in bits))
    actions = [render_actions(deliver(backend.next_hop, service.source_mac)) for backend in service.backends]
    for number, (address, port) in enumerate(sources(profile)):
        match = f"{protocol},in_port={bed.balancer.uplinks.ingress[0]},{vip}={profile.vip}"
        if kind == "blocks":
            match += f",{source}={type(address)(int(address) & int(mask))}/{mask}"
        else:
            match += f",{source}={address}"
        if kind == "five-tuples":
            match += f",tp_src={port},tp_dst={profile.port}"
        yield f"{match},actions={actions[(number + turn) % len(actions)]}"


def entries_experiment(bench: LoadBench, *, quick: bool, seed: int, repeats: int) -> Experiment:
    """Return the experiment: packet rate, CPU time and single packets with many active entries."""
    bed = bench.bed
    usual = LOAD_TIMES[bed.kind, quick]

    def measure(point: Point, _basis: Basis) -> Measurement:
        entries, kind = int(point["entries"]), str(point["kind"])
        profile = designs_profile(bed, clients=entries, seed=seed)
        size = max(64, profile.shortest_bytes)
        times = replace(usual, warm_up_s=usual.warm_up_s + entries / _ENTRIES_A_S)
        bench.generator.prepare(profile, frame_bytes=size)
        with added_flows(bed, _COOKIE, entry_flows(bed, profile, kind)):
            bench.announce_backends()
            forget_megaflows(bed.dpu)
            values, suspect = forwarded_load(bench, profile, frame_bytes=size, times=times)
            if bed.kind is not BedKind.MACHINES:
                known = sources(profile)[: times.newcomers]
                values["packet_us"], _ = arrival_times(bed, profile, known, frame_bytes=size)
        return Measurement(values, (*suspect, *_too_few(values, entries)))

    counts = _fitting(bed, (1, 256, 16_384) if quick else (4**power for power in range(9)))
    points: list[Point] = [{"kind": kind, "entries": count} for count in counts for kind in KINDS]
    point_s, options = usual.warm_up_s + usual.counted_s + 3.0, {"counted_s": usual.counted_s}
    return Experiment("entries", points, repeats, point_s, measure, options)


def insert_experiment(bench: LoadBench, *, quick: bool, seed: int, repeats: int) -> Experiment:
    """Return the experiment on new entries: first packet, rule, entries per second, and a change of all under load."""
    bed = bench.bed

    def measure(point: Point, _basis: Basis) -> Measurement:
        profile = designs_profile(bed, clients=int(point["entries"]), seed=seed)
        size, values = max(64, profile.shortest_bytes), dict[str, Value]()
        with_new = replace(profile, clients=profile.clients + 2 * _NEWCOMERS)
        bench.generator.prepare(profile, frame_bytes=size)
        with added_flows(bed, _COOKIE, entry_flows(bed, with_new, "clients")):
            bench.announce_backends()
            forget_megaflows(bed.dpu)
            if bed.kind is not BedKind.MACHINES:
                newcomers = new_clients(profile, 2 * _NEWCOMERS)
                values["first_packet_us"], _ = arrival_times(bed, profile, newcomers[::2], frame_bytes=size)
                values["rule_us"] = rule_times(bed, profile, newcomers[1::2], frame_bytes=size)
                forget_megaflows(bed.dpu)
            values |= _inserted(bench, profile, size)
            changed, doubts = _updated(bench, profile, with_new, size)
        return Measurement(values | changed, (*_too_few(values, profile.clients), *doubts))

    points = [{"entries": count} for count in _fitting(bed, (256, 4096) if quick else (256, 4096, 16_384))]
    return Experiment("insert", points, repeats, 12.0, measure)


def _inserted(bench: LoadBench, profile: LoadProfile, size: int) -> dict[str, Value]:
    """Send packets of all clients repeatedly, as a busy switch loses some, and measure the growth of megaflows."""
    seen, bed = list[tuple[float, int, int]](), bench.bed
    rate = float(MOST_ENTRIES)
    running = bench.generator.start(profile, frame_bytes=size, offered_pps=rate, seconds_s=_LONGEST_S)
    end_s = time.monotonic() + _LONGEST_S
    try:
        while time.monotonic() < end_s:
            totals = megaflow_totals(bed.dpu, bed.balancer.uplinks.ingress)
            seen.append((time.monotonic(), totals.megaflows, totals.offloaded_megaflows))
            is_settled = len(seen) > 20 and seen[-20][1:] == seen[-1][1:]
            if totals.megaflows >= profile.clients * _FEW_SHARE and is_settled:
                break
            time.sleep(_POLL_S)
    finally:
        running.command.end()
    return {"inserts_pps": _growth(seen, 1), "offloads_pps": _growth(seen, 2), "megaflows": seen[-1][1]}


def _updated(
    bench: LoadBench, profile: LoadProfile, every: LoadProfile, size: int
) -> tuple[dict[str, Value], tuple[str, ...]]:
    """Change the backend of all entries while their load runs."""
    before = LoadReading(read_counts(bench.counted))
    running = bench.generator.start(profile, frame_bytes=size, offered_pps=_UPDATE_PPS, seconds_s=_UPDATE_S)
    time.sleep(_UPDATE_S / 3)
    begun_s = time.monotonic()
    add_flows(bench.bed, _COOKIE, entry_flows(bench.bed, every, "clients", turn=1))
    bench.bed.dpu.run("ovs-appctl", "revalidator/wait", timeout_s=_LONGEST_S)
    update_s = time.monotonic() - begun_s
    trial = bench.result(before, running, offered_pps=_UPDATE_PPS)
    return {"update_s": update_s, "update_loss_share": trial.frames.loss_share}, trial.suspect


def _too_few(values: Mapping[str, Value], entries: int) -> Iterator[str]:
    if (active := cast(int, values["megaflows"])) < entries * _FEW_SHARE:
        yield f"{active} megaflows for {entries} entries: not all of them were active"


def _growth(seen: Sequence[tuple[float, int, int]], column: int) -> float:
    """Return the growth rate of a count from its last reading of 0 to its first reading of the maximum."""
    most = max(cast(int, one[column]) for one in seen)
    first_s = max((one[0] for one in seen if not one[column]), default=seen[0][0] - _POLL_S)
    last_s = next(one[0] for one in seen if one[column] == most)
    return most / max(_POLL_S, last_s - first_s) if most else 0.0


def _fitting(bed: Bed, counts: Iterable[int]) -> list[int]:
    """Return the numbers of entries that the bed can make in minutes: few in an emulated NIC."""
    slower = 64 if bed.kind is BedKind.EMULATED else 1
    return sorted({max(1, count // slower) for count in counts})
