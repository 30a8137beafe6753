"""Runs with samples that are made by hand, so that what a report shows of them is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from xenoovs.measure.bed_paths import path_points
from xenoovs.measure.completion import CompletionCase, Scene, points_of
from xenoovs.measure.fabric_bed import RoutingDesign
from xenoovs.measure.path_plan import Direction
from xenoovs.measure.samples import BedKind, Plain, Point, RecordedRun, Run, Sample, Value, new_run

AT = "2026-01-01T00:00:00.000Z"
Values = Mapping[str, Value]


def recorded(
    experiment: str,
    points: Iterable[Point],
    values: Callable[[Point, int], Values],
    *,
    repeats: int = 5,
    link_bps: float | None = 10e9,
    quick: bool = False,
    kind: BedKind = BedKind.LAB,
) -> RecordedRun:
    """Return a run with samples for all points. `values`: of a point and the number of the repeat."""
    planned = tuple(points)
    bed: dict[str, object] = {"lab": "default"} | ({} if link_bps is None else {"link_bps": link_bps})
    run = Run(
        experiment=experiment,
        config="version: 1\n",
        bed=bed,
        kind=kind,
        datapath="Open vSwitch 3.1.0, made by hand",
        versions={"ovs": "3.1.0"},
        command=("xenoovs", "measure", experiment),
        seed=0,
        quick=quick,
        repeats=repeats,
        points=planned,
        started=AT,
    )
    samples = tuple(
        Sample(experiment, point, number, AT, values(point, number)) for number in range(repeats) for point in planned
    )
    return RecordedRun(Path("results"), run, samples)


def number(point: Point, key: str) -> float:
    value: Plain = point[key]
    assert isinstance(value, (int, float))
    return float(value)


def suspecting(one: RecordedRun, *indices: int, reason: str = "the counters do not add up") -> RecordedRun:
    """Return a run of which these samples are suspect."""
    samples = [replace(s, suspect=(reason,)) if i in indices else s for i, s in enumerate(one.samples)]
    return replace(one, samples=tuple(samples))


def write(out: Path, *runs: RecordedRun) -> Path:
    """Write runs as `measure` does, and return the directory of them."""
    for one in runs:
        with new_run(out, one.run) as writer:
            for sample in one.samples:
                writer.append(sample)
    return out


def rate_run(factor: float = 1.0, **more: object) -> RecordedRun:
    """Return a run of `measure load rate`: 400, 300 and 200 kpps with three sizes, in all five repeats."""
    passed = {64: 400e3, 512: 300e3, 1518: 200e3}

    def values(point: Point, _number: int) -> Values:
        pps = passed[int(number(point, "frame_bytes"))] * factor
        return {"throughput_pps": pps, "forwarding_pps": pps * 1.5, "generator_pps": pps * 2, "sent": 1, "received": 1}

    return recorded("rate", [{"frame_bytes": size} for size in passed], values, **more)  # type: ignore[arg-type]


def loss_run(shares: Sequence[float] = (0.5, 1.0, 1.5)) -> RecordedRun:
    """Return a run of `measure load loss` in which exactly the throughput passes."""

    def values(point: Point, _number: int) -> Values:
        share = number(point, "offered_share")
        sent = round(600_000 * share)
        received = min(sent, 600_000)
        return {
            "sent": sent,
            "received": received,
            "offered_pps": sent,
            "sent_pps": sent,
            "loss_share": 1 - received / sent,
        }

    return recorded("loss", [{"frame_bytes": 64, "offered_share": share} for share in shares], values)


def latency_run(splits: Sequence[str] = ("50/50", "100/0")) -> RecordedRun:
    """Return a run of `measure load latency` whose median is 100 us without load and 200 us with it."""

    def values(point: Point, _number: int) -> Values:
        middle = 200.0 if point["base_load"] else 100.0
        return {"rtt_us": [middle * each / 100 for each in range(50, 151)], "timestamps": "kernel"}

    points: list[Point] = [{"split": split, "base_load": load} for split in splits for load in (0.0, 0.9)]
    return recorded("latency", points, values)


def designs_run(designs: Sequence[str] = ("masked", "learn"), clients: Sequence[int] = (10, 100_000)) -> RecordedRun:
    """Return a run of `measure compare designs`: three megaflows of masked blocks, one of `learn` for each client."""

    def values(point: Point, _number: int) -> Values:
        is_masked = point["design"] == "masked"
        return {
            "forwarding_pps": 400e3 if is_masked else 100e3,
            "megaflows": 3 if is_masked else number(point, "clients"),
            "cpu_us": 5.0,
            "first_packet_us": [100.0, 120.0, 500.0],
            "upcalls_pps": 0.0,
            "memory_bytes": 1 << 20,
        }

    points: list[Point] = [{"design": design, "clients": count} for design in designs for count in clients]
    return recorded("designs", points, values)


def paths_run(alone: Mapping[str, float], together: float = 2.0, *, sent: float = 2.0, repeats: int = 5) -> RecordedRun:
    """Return a run of `measure paths`: paths carry `alone` packets a second each way, pairs 0..2 of that `together`,
    when the generators sent `sent` of it."""

    def values(point: Point, _number: int) -> Values:
        share, offered = (together / 2, sent / 2) if "beside" in point else (1.0, 1.25)
        found: dict[str, Value] = {}
        for prefix, key in (("", "path"), ("beside_", "beside")):
            if key in point:
                rate = alone[str(point[key])]
                found |= {f"{prefix}received_pps": rate * share, f"{prefix}sent_pps": rate * offered}
                found |= {f"{prefix}sent": round(rate * offered), f"{prefix}received": round(rate * share)}
                found |= {f"{prefix}loss_share": max(0.0, 1 - share / offered)}
        if len(found) == 5 and point["direction"] == "in":
            found |= {"rtt_us": [90.0, 100.0, 110.0], "cpu_us": 5.0}
        return found

    points = path_points([*alone], (Direction.IN, Direction.OUT))
    return recorded("paths", points, values, repeats=repeats)


ELEPHANT = Scene(CompletionCase.ELEPHANT, 10, 50_000, 1.2)
DEAD = Scene(CompletionCase.DEAD, 10, 1_000_000, 0.0)
TIMES_S = {"ecmp": (0.6, 1.0, 0.8), "doca-ar": (0.12, 0.16, 0.14), "blocks": (0.1, 0.2, 0.12)}


def completion_run() -> RecordedRun:
    """Return a run of `measure completion` with one scene, and its undisturbed time."""

    def values(point: Point, repeat: int) -> Values:
        if point["case"] == "alone":
            return {"completion_s": 0.1, "flow_s": [0.1] * 10, "completed": 10, "flows": 10}
        design = str(point["design"])
        more: dict[str, Value] = {"moves": 16, "emptied_s": 0.3} if design == "blocks" else {}
        return {"completion_s": TIMES_S[design][repeat], "completed": 9, "flows": 10, **more}

    return recorded("completion", points_of((ELEPHANT,), tuple(RoutingDesign)), values, repeats=3)


def completed_run(*completed: int) -> RecordedRun:
    """Return a run of one point in which so many of ten flows had ended before the time limit of 30 seconds."""

    def values(_point: Point, repeat: int) -> Values:
        return {"completion_s": 30.0 if completed[repeat] < 10 else 1.0, "completed": completed[repeat], "flows": 10}

    return recorded("completion", [DEAD.point(RoutingDesign.ECMP)], values, repeats=len(completed))
