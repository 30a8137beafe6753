"""`xenoovs measure entries` and `insert`: packets beside many active entries, and how fast new ones come."""

from __future__ import annotations

import click

from xenoovs.display import percent, quantity, span
from xenoovs.measure.bed import Bed
from xenoovs.measure.commands.designs import Columns, means
from xenoovs.measure.commands.run import (
    MeasureSettings,
    bed_of,
    measure_options,
    repeats_option,
    run_on_bed,
    show_result,
)
from xenoovs.measure.designs import designs_profile
from xenoovs.measure.entries import MOST_ENTRIES, InsertExperiment, entries_experiment
from xenoovs.measure.load import load_bench
from xenoovs.measure.repeats import measured_points, offloaded_share
from xenoovs.measure.samples import BedKind, Plain, RecordedRun
from xenoovs.terminal.options import yes_option
from xenoovs.terminal.output import confirm, echo, print_table


def _ask(bed: Bed, *, yes: bool) -> None:
    if bed.kind is BedKind.MACHINES:
        bridge = f"bridge {bed.balancer.uplinks.bridge} on {bed.dpu.place.name}"
        confirm(f"Add up to {MOST_ENTRIES:,} flows to {bridge} while this measures?", yes=yes)


@click.command("entries")
@measure_options
@repeats_option("[default: 5, quick 1]")
@yes_option
def entries_command(settings: MeasureSettings, *, repeats: int | None, yes: bool) -> None:
    """Measure packets/s, CPU time and the time of single packets over the number of active entries.

    1 to 65,536 entries have traffic at the same time: masked blocks, single clients (/32), or five-tuples, each with a
    flow and a megaflow of its own. The load is that of as many clients. The curve shows what a NIC makes of many rules;
    without a NIC it is that of Open vSwitch in software, and proves the method only.

    \b
    Example:
      xenoovs measure entries --lab --quick
    """
    with bed_of(settings) as bed:
        _ask(bed, yes=yes)
        with load_bench(bed, designs_profile(bed, clients=1, seed=settings.seed)) as bench:
            number = repeats or (1 if settings.quick else 5)
            experiment = entries_experiment(bed, bench, quick=settings.quick, seed=settings.seed, repeats=number)
            recorded = run_on_bed(settings, bed, experiment)
    show_result(settings, recorded, _show_entries)


_METHOD = "without a NIC of its own this proves the method, and nothing about hardware"
_ENTRIES: Columns = {
    "forwarding_pps": quantity,
    "cpu_us": lambda value: span(value / 1e6),
    "packet_us": lambda value: span(value / 1e6),
    "megaflows": lambda value: f"{value:,.0f}",
}
_INSERT: Columns = {
    "first_packet_us": lambda value: span(value / 1e6),
    "rule_us": lambda value: span(value / 1e6),
    "inserts_pps": quantity,
    "offloads_pps": quantity,
    "update_s": span,
    "update_loss_share": percent,
}


def _show_entries(recorded: RecordedRun) -> None:
    rows = dict[Plain, list[list[str]]]()
    for point, samples in measured_points(recorded):
        cells = (*means(samples, _ENTRIES), percent(offloaded_share(recorded, samples)))
        rows.setdefault(point["kind"], []).append([f"{point['entries']:,}", *cells])
    for kind, table in rows.items():
        echo(f"\n{kind}")
        header = ["ENTRIES", "PACKETS/S", "CPU/PACKET", "ONE PACKET", "MEGAFLOWS", "IN NIC"]
        print_table(header, table, right=range(6))
    _say_method(recorded)


@click.command("insert")
@measure_options
@repeats_option("[default: 5, quick 1]")
@yes_option
def insert_command(settings: MeasureSettings, *, repeats: int | None, yes: bool) -> None:
    """Measure how fast new entries come: from the first packet to the rule, entries a second, changes under load.

    FIRST PACKET: of a new client, until it reached a backend. RULE: until its rule was in the NIC, without one in the
    datapath; both in labs, whose machines share a clock. INSERTS/S: megaflows when all clients come at once; of
    them OFFLOADS/S in the NIC. UPDATE: until all entries have another backend while packets come, and what that lost.

    \b
    Example:
      xenoovs measure insert --lab --quick
    """
    counts = (256, 4096) if settings.quick else (256, 4096, 16_384)
    with bed_of(settings) as bed:
        _ask(bed, yes=yes)
        with load_bench(bed, designs_profile(bed, clients=1, seed=settings.seed)) as bench:
            points = [{"entries": count} for count in counts]
            number = repeats or (1 if settings.quick else 5)
            recorded = run_on_bed(settings, bed, InsertExperiment(bench, settings.seed, number, points))
    show_result(settings, recorded, _show_insert)


def _show_insert(recorded: RecordedRun) -> None:
    rows = [[f"{point['entries']:,}", *means(samples, _INSERT)] for point, samples in measured_points(recorded)]
    header = ["ENTRIES", "FIRST PACKET", "RULE", "INSERTS/S", "OFFLOADS/S", "UPDATE", "LOST"]
    print_table(header, rows, right=range(7))
    _say_method(recorded)


def _say_method(recorded: RecordedRun) -> None:
    if recorded.run.kind is not BedKind.MACHINES:
        echo(f"\n{_METHOD}")
