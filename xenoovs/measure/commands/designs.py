"""`xenoovs measure designs`: masked blocks beside other ways to split clients, on one switch in one run."""

from __future__ import annotations

from collections.abc import Callable

import click

from xenoovs.display import quantity, span
from xenoovs.measure.commands.run import MeasureSettings, bed_of, measure_options, run_on_bed, show_result
from xenoovs.measure.designs import designs_experiment, designs_profile
from xenoovs.measure.load import load_bench
from xenoovs.measure.repeats import mean_value
from xenoovs.measure.samples import BedKind, Plain, RecordedRun, point_key
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
