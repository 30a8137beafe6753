"""`xenoovs measure echo`: round trips of TCP messages through the bridge."""

from __future__ import annotations

from typing import cast

import click

from xenoovs.measure.commands.run import (
    MeasureSettings,
    PointTable,
    bed_of,
    mean_of,
    measure_options,
    microseconds,
    repeats_option,
    run_on_bed,
    show_result,
    sizes_option,
)
from xenoovs.measure.echo import EMULATED_OFFLOAD, OFFLOADS, SIZES_BYTES, bytes_text, echo_experiment, offload_restored
from xenoovs.measure.samples import BedKind, RecordedRun, Sample
from xenoovs.switch.planned_restart import RESTART_WARNING
from xenoovs.terminal.options import yes_option
from xenoovs.terminal.output import confirm, echo

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
@sizes_option("the powers of 4 from 16", least=1, most=SIZES_BYTES[-1], noun="messages")
@repeats_option("[default: 5, quick 1]")
@yes_option
def echo_command(
    settings: MeasureSettings, offload: str, sizes: tuple[int, ...] | None, repeats: int | None, *, yes: bool
) -> None:
    """Measure the round-trip time of TCP messages of 16 bytes to 16 MiB to the first backend of the service.

    Each sample is one connection with up to 50 messages, which the backend echoes. During the sample the bridge has a
    flow that sends the packets of this connection to the backend. If the bed file has an `address` of the dpu, messages
    also go to a program on the dpu.

    \b
    Examples:
      xenoovs measure echo --lab --quick
      xenoovs measure echo my.yaml --bed bed.yaml --offload both
      xenoovs measure echo --lab --sizes 64,65536 --repeats 3
    """
    offloads = _CHOICES[offload]
    with bed_of(settings) as bed:
        experiment = echo_experiment(
            bed, offloads=offloads, quick=settings.quick, sizes=sizes or SIZES_BYTES, repeats=repeats
        )
        if offload == "unchanged":
            recorded = run_on_bed(settings, bed, experiment)
        else:
            echo(RESTART_WARNING, err=True)
            confirm(f"Restart Open vSwitch on {bed.dpu.place.name} for each change of offload?", yes=yes)
            with offload_restored(bed):
                recorded = run_on_bed(settings, bed, experiment)
    show_result(settings, recorded, TABLE.show)


def _notes(recorded: RecordedRun) -> str:
    notes = list[str]()
    if any(mean > _FAR * median for mean, median in map(_figures, recorded.samples)):
        notes.append("where the mean is far above the median, a few messages were much slower than the others")
    if recorded.run.kind is BedKind.EMULATED and any(point["offload"] != "unchanged" for point in recorded.run.points):
        notes.append(EMULATED_OFFLOAD)
    return "\n".join(notes)


_FAR = 1.5


def _figures(sample: Sample) -> tuple[float, float]:
    return cast(float, sample.values["mean_us"]), cast(float, sample.values["median_us"])


TABLE = PointTable(
    {"OFFLOAD": ("offload", str), "TARGET": ("target", str), "BYTES": ("bytes", bytes_text)},
    {"MEAN": mean_of("mean_us", microseconds), "MEDIAN": mean_of("median_us", microseconds)},
    note=_notes,
)
