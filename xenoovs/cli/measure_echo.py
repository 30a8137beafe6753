"""`xenoovs measure echo`: round trips of TCP messages through the bridge."""

from __future__ import annotations

from typing import cast

import click

from xenoovs.cli.measure_run import MeasureSettings, bed_of, measure_options, run_on_bed, show_result
from xenoovs.cli.options import yes_option
from xenoovs.cli.output import confirm, echo, print_table
from xenoovs.cli.restart_ovs import RESTART_WARNING
from xenoovs.display import span
from xenoovs.measure.echo import OFFLOADS, echo_experiment, offload_restored
from xenoovs.measure.repeats import mean_value
from xenoovs.measure.samples import RecordedRun, Sample, point_key

_CHOICES = {"both": ("on", "off"), **{offload: (offload,) for offload in OFFLOADS}}


@click.command("echo")
@measure_options
@click.option(
    "--offload",
    type=click.Choice([*_CHOICES]),
    default="unchanged",
    show_default=True,
    help="Measure with hardware offload on, off or both; Open vSwitch is restarted for each change.",
)
@yes_option
def echo_command(settings: MeasureSettings, offload: str, *, yes: bool) -> None:
    """Measure the round-trip time of TCP messages of 16 bytes to 16 MiB to the first backend of the service.

    Each sample is one connection with up to 50 messages, which the backend echoes. For that time the bridge has a flow
    that leads the packets of this connection to the backend. A bed file can give the dpu an address: then the messages
    go to a program on the dpu too.

    \b
    Examples:
      xenoovs measure echo --lab --quick
      xenoovs measure echo my.yaml --bed bed.yaml --offload both
    """
    offloads = _CHOICES[offload]
    with bed_of(settings) as bed:
        experiment = echo_experiment(bed, offloads=offloads, quick=settings.quick)
        if offload == "unchanged":
            recorded = run_on_bed(settings, bed, experiment)
        else:
            echo(RESTART_WARNING, err=True)
            confirm(f"Restart Open vSwitch on {bed.dpu.place.name} for each change of offload?", yes=yes)
            with offload_restored(bed):
                recorded = run_on_bed(settings, bed, experiment)
    show_result(settings, recorded, _show)


def _show(recorded: RecordedRun) -> None:
    rows = []
    for point in recorded.run.points:
        found = [sample for sample in recorded.samples if point_key(sample.point) == point_key(point)]
        row = [_size(int(point["bytes"])), str(point["offload"]), str(point["target"])]
        both = (mean_value(found, key) for key in ("mean_us", "median_us"))
        rows.append([*row, *("-" if mean is None else span(mean / 1e6) for mean in both)])
    print_table(["BYTES", "OFFLOAD", "TARGET", "MEAN", "MEDIAN"], rows, right=(0, 3, 4))
    if any(mean > _FAR * median for mean, median in map(_figures, recorded.samples)):
        echo("where the mean is far above the median, a few messages were much slower than the others")


_FAR = 1.5


def _figures(sample: Sample) -> tuple[float, float]:
    """Return mean and median in microseconds."""
    return cast(float, sample.values["mean_us"]), cast(float, sample.values["median_us"])


def _size(count: int) -> str:
    for unit, power in (("MiB", 20), ("KiB", 10)):
        if count >> power:
            return f"{count >> power} {unit}"
    return f"{count} B"
