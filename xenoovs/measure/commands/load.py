"""`xenoovs measure rate`, `latency` and `loss`: the experiments that send a load to a service."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import click

from xenoovs.display import percent, quantity, span
from xenoovs.lab.topology import IPNetwork, client_net, parse_net, used_addresses
from xenoovs.measure.bed import Bed
from xenoovs.measure.commands.run import (
    MeasureSettings,
    bed_of,
    measure_options,
    repeats_option,
    run_on_bed,
    show_result,
    sizes_option,
)
from xenoovs.measure.frames import FRAME_BYTES
from xenoovs.measure.latency import BASE_LOADS, SPLITS, latency_experiment, ratio_of
from xenoovs.measure.load import load_bench
from xenoovs.measure.repeats import mean_value, measured_points, trusted
from xenoovs.measure.samples import BedKind, Point, RecordedRun, Sample
from xenoovs.measure.statistics import quantile
from xenoovs.measure.throughput import LossExperiment, RateExperiment, TrialSettings, trial_settings
from xenoovs.measure.trex_profile import trex_profile
from xenoovs.measure.verdict import number_list
from xenoovs.model.balancer import Balancer
from xenoovs.terminal.load import load
from xenoovs.terminal.options import Command, config_argument, duration
from xenoovs.terminal.output import echo, print_table

_QUICK_FRAME_BYTES = (64, 512, 1518)
_SHARES = tuple(number / 10 for number in range(1, 16))
_QUICK_SHARES = (0.5, 0.9, 1.0, 1.1, 1.3, 1.5)
_QUICK_BASE_LOADS = (0.0, 0.5, 0.9)
_REPEATS, _QUICK_REPEATS = 5, 2
_frame_sizes = partial(sizes_option, least=FRAME_BYTES[0], most=FRAME_BYTES[-1], noun="frames, with FCS")


def _splits(_context: click.Context, _parameter: click.Parameter, given: str) -> tuple[str, ...]:
    splits = tuple(dict.fromkeys(given.split(",")))
    for split in splits:
        try:
            ratio_of(split)
        except ValueError as error:
            raise click.BadParameter(f"{error}.") from None
    return splits


def _load_options(command: Command) -> Command:
    """Add the options of every load."""
    options = [
        repeats_option("[default: 5, quick 2]"),
        click.option(
            "--trial",
            "trial_s",
            type=duration,
            metavar="TIME",
            help="Length of each load.  [default: 2s in a lab, 10s on machines]",
        ),
        click.option(
            "--clients",
            type=click.IntRange(1, 65536),
            default=4096,
            show_default=True,
            metavar="N",
            help="Number of source addresses; every block gets its share of them.",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _trials(settings: MeasureSettings, bed: Bed, trial_s: float | None) -> TrialSettings:
    return trial_settings(is_hardware=bed.kind is BedKind.MACHINES, quick=settings.quick, trial_s=trial_s)


@click.command("rate")
@measure_options
@_frame_sizes("64,68,128,256,512,1024,1280,1518; quick 64,512,1518")
@_load_options
def rate_command(
    settings: MeasureSettings, sizes: tuple[int, ...] | None, repeats: int | None, trial_s: float | None, clients: int
) -> None:
    """Measure the packet rate over the size of frames.

    For each size the highest rate without loss is searched by bisection (RFC 2544, section 26.1).

    THROUGHPUT: that rate. AT 0.1% LOSS: the highest rate with so much loss at most. FORWARDED: the highest rate that
    arrived in any trial.
    GENERATOR: the highest rate that was sent; where it equals the throughput, the switch may be faster.

    A size is that of the frame with its FCS: the shortest is 64 bytes. What was sent and received is read from the
    counters of the interfaces. In a lab the backends drop the load instead of answering it.

    \b
    Examples:
      xenoovs measure rate --lab --quick
      xenoovs measure rate my.yaml --bed bed.yaml --sizes 64,1518
    """
    points = [{"frame_bytes": size} for size in sizes or (_QUICK_FRAME_BYTES if settings.quick else FRAME_BYTES)]
    with bed_of(settings) as bed:
        profile, trials = bed.profile(clients=clients, seed=settings.seed), _trials(settings, bed, trial_s)
        with load_bench(bed, profile) as bench:
            experiment = RateExperiment(bench, trials, _repeats(settings, repeats), points)
            recorded = run_on_bed(settings, bed, experiment)
    show_result(settings, recorded, _show_rate)


@click.command("loss")
@measure_options
@_frame_sizes("64")
@_load_options
def loss_command(
    settings: MeasureSettings, sizes: tuple[int, ...] | None, repeats: int | None, trial_s: float | None, clients: int
) -> None:
    """Measure the loss over the offered load.

    First the highest rate with a loss of at most 0.1 % is searched. Then loads of 10 % to 150 % of it are sent. LOSS is
    1 - received / sent, by the counters of the interfaces.

    \b
    Examples:
      xenoovs measure loss --lab --quick
      xenoovs measure loss my.yaml --bed bed.yaml --sizes 64
    """
    shares = _QUICK_SHARES if settings.quick else _SHARES
    points = [{"frame_bytes": size, "offered_share": share} for size in sizes or (64,) for share in shares]
    with bed_of(settings) as bed:
        profile, trials = bed.profile(clients=clients, seed=settings.seed), _trials(settings, bed, trial_s)
        with load_bench(bed, profile) as bench:
            experiment = LossExperiment(bench, trials, _repeats(settings, repeats), points)
            recorded = run_on_bed(settings, bed, experiment)
    show_result(settings, recorded, _show_loss)


@click.command("latency")
@measure_options
@click.option(
    "--splits",
    default=",".join(SPLITS),
    show_default=True,
    metavar="A/B,...",
    callback=_splits,
    help="Ratios in which the first two backends of the service share the load; 1/3 is the same as 25/75.",
)
@_load_options
def latency_command(
    settings: MeasureSettings, splits: tuple[str, ...], repeats: int | None, trial_s: float | None, clients: int
) -> None:
    """Measure the round-trip time of DNS requests under a base load.

    First the highest rate with a loss of at most 0.1 % is searched. Then requests are sent beside loads of 0 % to 90 %
    of it. For each split the first two backends of the service share load and requests as it says; the others get
    none. The flows of the bridge are restored at the end, also if this command is killed. End agents of the bridge
    first, as they would revert the flows.

    Times are those of the kernel, or of the NIC where it makes time stamps; the samples say which. A DNS or echo server
    has to answer at the VIP; those of a lab do.

    \b
    Examples:
      xenoovs measure latency --lab --quick
      xenoovs measure latency my.yaml --bed bed.yaml --splits 50/50,100/0
    """
    loads = _QUICK_BASE_LOADS if settings.quick else BASE_LOADS
    points: list[Point] = [{"split": split, "base_load": load} for split in splits for load in loads]
    with bed_of(settings) as bed:
        profile, trials = bed.profile(clients=clients, seed=settings.seed), _trials(settings, bed, trial_s)
        number = _repeats(settings, repeats, quick=1)
        with (
            load_bench(bed, profile) as bench,
            latency_experiment(bench, trials, repeats=number, points=points) as experiment,
        ):
            recorded = run_on_bed(settings, bed, experiment)
    show_result(settings, recorded, _show_latency)


def _repeats(settings: MeasureSettings, given: int | None, *, quick: int = _QUICK_REPEATS) -> int:
    return given or (quick if settings.quick else _REPEATS)


def _show_rate(recorded: RecordedRun) -> None:
    rows = [
        [str(point["frame_bytes"]), *(_mean(samples, key) for key in _RATES)]
        for point, samples in measured_points(recorded)
    ]
    print_table(["BYTES", "THROUGHPUT", "AT 0.1% LOSS", "FORWARDED", "GENERATOR"], rows, right=range(5))
    echo("rates in packets/s; means of the samples")


_RATES = ("throughput_pps", "partial_drop_pps", "forwarding_pps", "generator_pps")


def _show_loss(recorded: RecordedRun) -> None:
    rows = [
        [
            str(point["frame_bytes"]),
            percent(float(point["offered_share"])),
            _mean(samples, "sent_pps"),
            _mean(samples, "received_pps"),
            _mean(samples, "loss_share", percent),
        ]
        for point, samples in measured_points(recorded)
    ]
    print_table(["BYTES", "OFFERED", "SENT", "RECEIVED", "LOSS"], rows, right=range(5))
    echo("rates in packets/s; means of the samples")


def _show_latency(recorded: RecordedRun) -> None:
    rows = []
    for point, samples in measured_points(recorded):
        times = [time for sample in trusted(samples) for time in number_list(sample.values, "rtt_us")]
        cells = [span(quantile(times, share) / 1e6) if times else "-" for share in (0.5, 0.99)]
        load = percent(float(point["base_load"]))
        rows.append([str(point["split"]), load, _mean(samples, "base_sent"), *cells, _mean(samples, "received")])
    print_table(["SPLIT", "BASE LOAD", "FRAMES", "MEDIAN", "P99", "ANSWERS"], rows, right=range(1, 6))
    stamps = {str(sample.values["timestamps"]) for sample in recorded.samples}
    echo(f"time stamps of the {' and the '.join(sorted(stamps))}")


def _mean(samples: Sequence[Sample], key: str, show: Callable[[float], str] = quantity) -> str:
    mean = mean_value(samples, key)
    return "-" if mean is None else show(mean)


@click.command("trex-profile")
@config_argument
@click.option(
    "--sources",
    multiple=True,
    metavar="NET",
    help="Net of the clients, one for each IP version; default: nets for benchmarks and documentation.",
)
def trex_profile_command(config: Path, sources: tuple[str, ...]) -> None:
    """Print a profile for the packet generator TRex that meets every block of FILE in its share.

    The profile is Python source for TRex's stateless API. It has a stream for each block, whose rate is the size of the
    block, and whose other address bits are random.

    \b
    Example:
      xenoovs measure trex-profile my.yaml > blocks.py
    In the console of TRex:
      start -f blocks.py -p 0 -m 10mpps -t --size 128 --clients 1000
    """
    balancer = load(config)
    nets = (*map(parse_net, sources), *_usual_nets(balancer))
    echo(trex_profile(balancer, sources=nets, file=str(config)), nl=False)


def _usual_nets(balancer: Balancer) -> list[IPNetwork]:
    families = {family for service in balancer.services for family in service.claim.served_families}
    return [client_net(family, used_addresses(balancer)) for family in families]
