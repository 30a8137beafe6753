"""`xenoovs measure next-hops`: what it costs the switch to reach backends directly, by tunnels, and with NAT."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable

import click

from xenoovs.display import percent, quantity, span
from xenoovs.measure.commands.run import MeasureSettings, bed_of, measure_options, run_on_bed, show_result
from xenoovs.measure.next_hops import next_hops_experiment
from xenoovs.measure.repeats import offloaded_share
from xenoovs.measure.samples import Plain, RecordedRun, Sample, point_key
from xenoovs.terminal.output import echo, print_table


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
    show_result(settings, recorded, _show)


def _show(recorded: RecordedRun) -> None:
    rows = dict[Plain, list[list[str]]]()
    for point in recorded.run.points:
        samples = [sample for sample in recorded.samples if point_key(sample.point) == point_key(point)]
        if samples:
            cells = [_cell(form, samples, key) for key, form in _COLUMNS.items()]
            row = [str(point["service"]), str(point["way"]), *cells, percent(offloaded_share(recorded, samples))]
            rows.setdefault(point["frame_bytes"], []).append(row)
    header = ["SERVICE", "WAY", "PACKETS/S", "CPU", "MEGAFLOWS", "UPCALLS", "IN NIC"]
    for frame_bytes, table in rows.items():
        echo(f"\nframes of {frame_bytes} bytes")
        print_table(header, table, right=range(2, 7))


_COLUMNS: dict[str, Callable[[float], str]] = {
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
