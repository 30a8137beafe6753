"""`xenoovs measure load`: how much of a load to a service arrives; `xenoovs measure trex-profile`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import click

from xenoovs.display import percent
from xenoovs.lab.topology import client_net, parse_net, used_addresses
from xenoovs.measure.commands.run import (
    MeasureSettings,
    PointColumn,
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
from xenoovs.measure.frames import FRAME_BYTES
from xenoovs.measure.latency import BASE_LOADS, SPLITS, latency_experiment, ratio_of
from xenoovs.measure.load import LoadBench, load_bench
from xenoovs.measure.samples import BedKind, Point, RecordedRun, Sample
from xenoovs.measure.schedule import Experiment
from xenoovs.measure.statistics import quantile
from xenoovs.measure.throughput import TrialSettings, loss_experiment, rate_experiment, trial_settings
from xenoovs.measure.trex_profile import trex_profile
from xenoovs.measure.verdict import number_list, trusted
from xenoovs.terminal.load import load
from xenoovs.terminal.options import config_argument, time_option
from xenoovs.terminal.output import echo

_QUICK_FRAME_BYTES = (64, 512, 1518)
_SHARES = tuple(number / 10 for number in range(1, 16))
_QUICK_SHARES = (0.5, 0.9, 1.0, 1.1, 1.3, 1.5)
_QUICK_BASE_LOADS = (0.0, 0.5, 0.9)


def _splits(_context: click.Context, _parameter: click.Parameter, given: str | None) -> tuple[str, ...] | None:
    splits = None if given is None else tuple(dict.fromkeys(given.split(",")))
    for split in splits or ():
        try:
            ratio_of(split)
        except ValueError as error:
            raise click.BadParameter(f"{error}.") from None
    return splits


def _latency_of(share: float) -> PointColumn:
    """Return the column with this quantile of the round-trip times."""

    def cell(_recorded: RecordedRun, samples: Sequence[Sample]) -> str:
        times = [time for sample in trusted(samples) for time in number_list(sample.values, "rtt_us")]
        return microseconds(quantile(times, share)) if times else "-"

    return cell


def _timestamps(recorded: RecordedRun) -> str:
    stamps = {str(sample.values["timestamps"]) for sample in recorded.samples}
    return f"time stamps of the {' and the '.join(sorted(stamps))}"


TABLES = {
    "rate": PointTable(
        {"BYTES": ("frame_bytes", str)},
        {
            "THROUGHPUT": mean_of("throughput_pps"),
            "AT 0.1% LOSS": mean_of("partial_drop_pps"),
            "FORWARDED": mean_of("forwarding_pps"),
            "GENERATOR": mean_of("generator_pps"),
        },
    ),
    "latency": PointTable(
        {"SPLIT": ("split", str), "BASE LOAD": ("base_load", percent)},
        {
            "FRAMES": mean_of("base_sent"),
            "MEDIAN": _latency_of(0.5),
            "P99": _latency_of(0.99),
            "ANSWERS": mean_of("received"),
        },
        note=_timestamps,
    ),
    "loss": PointTable(
        {"BYTES": ("frame_bytes", str), "OFFERED": ("offered_share", percent)},
        {"SENT": mean_of("sent_pps"), "RECEIVED": mean_of("received_pps"), "LOSS": mean_of("loss_share", percent)},
    ),
}


@click.command("load")
@click.argument("experiment", type=click.Choice([*TABLES]))
@measure_options
@sizes_option(
    "of rate 64,68,128,256,512,1024,1280,1518, quick 64,512,1518; of loss 64",
    least=FRAME_BYTES[0],
    most=FRAME_BYTES[-1],
    noun="frames, with FCS",
)
@click.option(
    "--splits",
    metavar="A/B,...",
    callback=_splits,
    help="With latency: ratios of load for the first two backends of the service; 1/3 is the same as 25/75.  "
    f"[default: {','.join(SPLITS)}]",
)
@repeats_option("[default: 5, quick 2, latency 1]")
@time_option("--trial", help="Length of each load.  [default: 2s in a lab, 10s on machines]")
@click.option(
    "--clients",
    type=click.IntRange(1, 65536),
    default=4096,
    show_default=True,
    metavar="N",
    help="Number of source addresses; every block gets its share of them.",
)
def load_command(
    settings: MeasureSettings,
    *,
    experiment: str,
    sizes: tuple[int, ...] | None,
    splits: tuple[str, ...] | None,
    repeats: int | None,
    trial_s: float | None,
    clients: int,
) -> None:
    """Measure the packet rate, the latency or the loss of a load.

    Sent and received frames are read from the counters of the interfaces. In a lab the backends drop the load instead
    of answering it. Sizes are those of frames with their FCS: the shortest is 64 bytes.

    rate: the packet rate over frame size. THROUGHPUT: the highest rate without loss, searched by bisection (RFC 2544,
    section 26.1). AT 0.1% LOSS: the highest rate with at most this loss. FORWARDED: the highest rate that arrived in
    any trial. GENERATOR: the highest rate that was sent; if it equals the throughput, the switch may be faster.

    latency: the round-trip time of DNS requests during loads of 0 % to 90 % of the highest rate with at most 0.1 %
    loss, which is searched first. Each split divides load and requests between the first two backends of the service;
    the others get none. The flows of the bridge are restored at the end, even if this command is killed. Stop agents of
    the bridge first, as they would revert the flows. Time stamps are those of the NIC if it makes them, otherwise those
    of the kernel; the samples name the source. A DNS or echo server must answer at the VIP; in a lab one does.

    loss: 1 - received / sent, for loads of 10 % to 150 % of the same rate.

    \b
    Examples:
      xenoovs measure load rate --lab --quick
      xenoovs measure load rate my.yaml --bed bed.yaml --sizes 64,1518
      xenoovs measure load latency my.yaml --bed bed.yaml --splits 50/50,100/0
    """
    if sizes and experiment == "latency":
        raise click.UsageError("--sizes is for rate and loss.")
    if splits and experiment != "latency":
        raise click.UsageError("--splits is for latency.")
    points = _points(experiment, sizes, splits or SPLITS, quick=settings.quick)
    number = repeats or (5 if not settings.quick else 1 if experiment == "latency" else 2)
    with bed_of(settings) as bed:
        profile = bed.profile(clients=clients, seed=settings.seed)
        trials = trial_settings(is_hardware=bed.kind is BedKind.MACHINES, quick=settings.quick, trial_s=trial_s)
        with load_bench(bed, profile) as bench, _experiment(experiment, bench, trials, number, points) as made:
            recorded = run_on_bed(settings, bed, made)
    show_result(settings, recorded, TABLES[experiment].show)


def _points(name: str, sizes: Sequence[int] | None, splits: Sequence[str], *, quick: bool) -> list[Point]:
    if name == "latency":
        loads = _QUICK_BASE_LOADS if quick else BASE_LOADS
        return [{"split": split, "base_load": load} for split in splits for load in loads]
    if name == "rate":
        return [{"frame_bytes": size} for size in sizes or (_QUICK_FRAME_BYTES if quick else FRAME_BYTES)]
    shares = _QUICK_SHARES if quick else _SHARES
    return [{"frame_bytes": size, "offered_share": share} for size in sizes or (64,) for share in shares]


def _experiment(
    name: str, bench: LoadBench, trials: TrialSettings, repeats: int, points: Sequence[Point]
) -> AbstractContextManager[Experiment]:
    if name == "latency":
        return latency_experiment(bench, trials, repeats, points)
    return nullcontext((rate_experiment if name == "rate" else loss_experiment)(bench, trials, repeats, points))


@click.command("trex-profile")
@config_argument
@click.option(
    "--sources",
    multiple=True,
    metavar="NET",
    help="Net of the clients, one for each IP version; default: nets for benchmarks and documentation.",
)
def trex_profile_command(config: Path, sources: tuple[str, ...]) -> None:
    """Print a profile for the packet generator TRex, with packets for every block of FILE by its share.

    The profile is Python source for TRex's stateless API. It has a stream for each block, with the block's size as its
    rate; the other address bits are random.

    \b
    Example:
      xenoovs measure trex-profile my.yaml > blocks.py
    In the console of TRex:
      start -f blocks.py -p 0 -m 10mpps -t --size 128 --clients 1000
    """
    balancer = load(config)
    families = {family for service in balancer.services for family in service.claim.served_families}
    usual = (client_net(family, used_addresses(balancer)) for family in families)
    nets = (*map(parse_net, sources), *usual)
    echo(trex_profile(balancer, sources=nets, file=str(config)), nl=False)
