"""`xenoovs measure designs` and `next-hops`: ways to split clients, and ways to backends, compared."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable

import click

from xenoovs.display import percent, quantity, span
from xenoovs.measure.commands.run import MeasureSettings, bed_of, measure_options, run_on_bed, show_result
from xenoovs.measure.designs import designs_experiment, designs_profile
from xenoovs.measure.load import load_bench
from xenoovs.measure.next_hops import next_hops_experiment
from xenoovs.measure.repeats import mean_value, offloaded_share
from xenoovs.measure.samples import BedKind, Plain, RecordedRun, Sample, point_key
from xenoovs.terminal.options import yes_option
from xenoovs.terminal.output import confirm, echo, print_table


@click.command("designs")
@measure_options
@yes_option
def designs_command(settings: MeasureSettings, *, yes: bool) -> None:
    """Compare masked blocks with other ways to split clients: packets/s, CPU time, megaflows, upcalls, first packets.

    The same load of 10, 1,000 and 100,000 clients goes through the same switch, with the flows of each design in turn
    and in random order. For the time of a measurement they replace all flows of the bridge.

    \b
    Example:
      xenoovs measure designs --lab --quick
    """
    with bed_of(settings) as bed:
        if bed.kind is BedKind.MACHINES:
            bridge = f"bridge {bed.balancer.uplinks.bridge} on {bed.dpu.place.name}"
            confirm(f"Replace all flows of {bridge} again and again while this measures?", yes=yes)
        with load_bench(bed, designs_profile(bed, clients=1, seed=settings.seed)) as bench:
            experiment = designs_experiment(bed, bench, quick=settings.quick, seed=settings.seed)
            if experiment.why_no_ipvs:
                echo(f"IPVS is not measured: {experiment.why_no_ipvs}", err=True)
            recorded = run_on_bed(settings, bed, experiment)
    show_result(settings, recorded, _show)


def _show(recorded: RecordedRun) -> None:
    rows = dict[Plain, list[list[str]]]()
    for point in recorded.run.points:
        found = [sample for sample in recorded.samples if point_key(sample.point) == point_key(point)]
        if found:
            means = ((form, mean_value(found, key)) for key, form in _COLUMNS.items())
            cells = ["-" if mean is None else form(mean) for form, mean in means]
            rows.setdefault(point["clients"], []).append([str(point["design"]), *cells])
    header = ["DESIGN", "PACKETS/S", "CPU", "MEGAFLOWS", "UPCALLS/S", "FIRST PACKET", "MEMORY"]
    for clients, table in rows.items():
        echo(f"\n{clients:,} clients")
        print_table(header, table, right=range(1, 7))
    echo("\nmeans of the samples; of first packets, the median of each sample")


_COLUMNS: dict[str, Callable[[float], str]] = {
    "forwarding_pps": quantity,
    "cpu_us": lambda value: span(value / 1e6),
    "megaflows": lambda value: f"{value:,.0f}",
    "upcalls_pps": quantity,
    "first_packet_us": lambda value: span(value / 1e6),
    "memory_bytes": lambda value: f"{quantity(value)}B",
}


@click.command("next-hops")
@functools.partial(measure_options, has_service=False)
def next_hops_command(settings: MeasureSettings) -> None:
    """Compare ways to backends: packets/s and CPU time, directly, by each tunnel, and with NAT.

    The same load goes to each UDP service of the config in random order, through the flows that are installed. CPU is
    the time of the switch for each packet: what offloading gives back to applications.

    \b
    Example:
      xenoovs new next-hops > my.yaml
      xenoovs lab up my.yaml
      xenoovs apply --lab --yes
      xenoovs measure next-hops --lab --quick
    """
    with bed_of(settings) as bed:
        experiment = next_hops_experiment(bed, quick=settings.quick, seed=settings.seed)
        recorded = run_on_bed(settings, bed, experiment)
    show_result(settings, recorded, _show_next_hops)


def _show_next_hops(recorded: RecordedRun) -> None:
    rows = dict[Plain, list[list[str]]]()
    for point in recorded.run.points:
        samples = [sample for sample in recorded.samples if point_key(sample.point) == point_key(point)]
        if samples:
            cells = [_cell(form, samples, key) for key, form in _NEXT_HOP_COLUMNS.items()]
            row = [str(point["service"]), str(point["way"]), *cells, percent(offloaded_share(recorded, samples))]
            rows.setdefault(point["frame_bytes"], []).append(row)
    header = ["SERVICE", "WAY", "PACKETS/S", "CPU", "MEGAFLOWS", "UPCALLS", "IN NIC"]
    for frame_bytes, table in rows.items():
        echo(f"\nframes of {frame_bytes} bytes")
        print_table(header, table, right=range(2, 7))


_NEXT_HOP_COLUMNS: dict[str, Callable[[float], str]] = {
    "forwarding_pps": quantity,
    "cpu_us": lambda value: span(value / 1e6),
    "megaflows": lambda value: f"{value:,.0f}",
    "upcalls": lambda value: f"{value:,.0f}",
}


def _numbers(samples: list[Sample], key: str) -> list[float]:
    found = [sample.values.get(key) for sample in samples]
    return [value for value in found if isinstance(value, (int, float))]


def _cell(form: Callable[[float], str], samples: list[Sample], key: str) -> str:
    """Return the median of all samples."""
    values = _numbers(samples, key)
    return form(statistics.median(values)) if values else "-"
