"""`xenoovs measure designs` and `next-hops`: ways to split clients, and ways to backends, compared."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import click

from xenoovs.display import percent, quantity, span
from xenoovs.measure.commands.run import MeasureSettings, bed_of, measure_options, run_on_bed, show_result
from xenoovs.measure.designs import designs_experiment, designs_profile
from xenoovs.measure.load import load_bench
from xenoovs.measure.next_hops import next_hops_experiment
from xenoovs.measure.repeats import mean_value, measured_points, offloaded_share
from xenoovs.measure.samples import BedKind, Plain, RecordedRun, Sample
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
    for point, samples in measured_points(recorded):
        rows.setdefault(point["clients"], []).append([str(point["design"]), *means(samples, _COLUMNS)])
    header = ["DESIGN", "PACKETS/S", "CPU", "MEGAFLOWS", "UPCALLS/S", "FIRST PACKET", "MEMORY"]
    for clients, table in rows.items():
        echo(f"\n{clients:,} clients")
        print_table(header, table, right=range(1, 7))
    echo("\nmeans of the samples; of first packets, the median of each sample")


Columns = dict[str, Callable[[float], str]]


def means(samples: list[Sample], columns: Columns) -> Iterator[str]:
    """Yield the means of some values, as each is written."""
    for key, form in columns.items():
        mean = mean_value(samples, key)
        yield "-" if mean is None else form(mean)


_COLUMNS: Columns = {
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
    for point, samples in measured_points(recorded):
        cells = (*means(samples, _NEXT_HOP_COLUMNS), percent(offloaded_share(recorded, samples)))
        rows.setdefault(point["frame_bytes"], []).append([str(point["service"]), str(point["way"]), *cells])
    header = ["SERVICE", "WAY", "PACKETS/S", "BIT/S", "CPU", "CORES", "MEGAFLOWS", "IN NIC"]
    for frame_bytes, table in rows.items():
        echo(f"\nframes of {frame_bytes} bytes")
        print_table(header, table, right=range(2, 8))


_NEXT_HOP_COLUMNS: Columns = {
    "forwarding_pps": quantity,
    "forwarding_bps": quantity,
    "cpu_us": lambda value: span(value / 1e6),
    "cpu_cores": "{:.2f}".format,
    "megaflows": lambda value: f"{value:,.0f}",
}
