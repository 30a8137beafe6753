"""`xenoovs measure completion`: flow completion times in a fabric lab, with ECMP and with adaptive designs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import click

from xenoovs.measure.commands.run import MeasureSettings, lab_measure_options, repeats_option, run_on_bed, show_result
from xenoovs.measure.completion import QUICK_SIZE, CompletionCase, Scene, completion_experiment, points_of, scenes_of
from xenoovs.measure.completion_figures import CompletionFigures, figures_of
from xenoovs.measure.fabric_bed import open_fabric_bed, prepared
from xenoovs.measure.routing_designs import RoutingDesign
from xenoovs.measure.samples import RecordedRun
from xenoovs.terminal.options import data_size
from xenoovs.terminal.output import echo, print_table

_REPEATS, _QUICK_REPEATS = 10, 2
_USUAL_CASES = tuple(case for case in CompletionCase if case is not CompletionCase.STEADY)
_QUICK_CASES = (CompletionCase.ELEPHANT,)

Choice = TypeVar("Choice", CompletionCase, RoutingDesign)


def _chosen(kind: type[Choice], given: str | None) -> tuple[Choice, ...]:
    """Return the members in a list of names, each once. Raises click.BadParameter."""
    if given is None:
        return ()
    try:
        return tuple(dict.fromkeys(kind(word.strip()) for word in given.split(",")))
    except ValueError:
        raise click.BadParameter(f"{given!r} is not a list of {', '.join(each.value for each in kind)}.") from None


@click.command("completion")
@lab_measure_options
@click.option(
    "--designs",
    callback=lambda _context, _parameter, given: _chosen(RoutingDesign, given),
    metavar="NAME,...",
    help="ecmp: the fabric alone. doca-ar: DOCA-AR's algorithm, a probe for each new flow. blocks: xenoovs.  "
    "[default: all]",
)
@click.option(
    "--cases",
    callback=lambda _context, _parameter, given: _chosen(CompletionCase, given),
    metavar="NAME,...",
    help="alone, elephant, later, dead, reverse, steady.  [default: all but steady; quick elephant]",
)
@click.option("--flows", type=click.IntRange(1, 1000), metavar="N", help="Flows of each sender; needs --bytes.")
@click.option("--bytes", "size", type=data_size, metavar="SIZE", help="Size of each flow, such as 50kb; needs --flows.")
@repeats_option("[default: 10]")
@click.option(
    "--txrehash/--no-txrehash",
    default=False,
    show_default=True,
    help="Whether a TCP socket takes another path after a time-out, as Linux does on a host, not in a virtual machine.",
)
def completion_command(
    settings: MeasureSettings,
    *,
    designs: tuple[RoutingDesign, ...],
    cases: tuple[CompletionCase, ...],
    flows: int | None,
    size: int | None,
    repeats: int | None,
    txrehash: bool,
) -> None:
    """Measure flow completion times during an elephant, in a lab of `lab up --topology fabric`.

    Several flows begin together, and the time of the slowest is measured. All designs run in random order in one lab.
    The reference is the undisturbed time. A spine or an elephant disturbs one path, chosen at random.

    \b
    alone     no disturbance
    elephant  an elephant of 1.2 times the rate of a link, from 1.2 s before the flows
    later     the same elephant, from 0.6 s after the start of the flows
    dead      a spine drops all packets, from 0.6 s after the start of the flows
    reverse   an elephant on the way back of one path
    steady    long flows, elephants of 0, 0.5, 0.9 and 1.0 times the rate: counts moves

    \b
    Example:
      xenoovs lab up --topology fabric --lab fabric
      xenoovs measure completion --lab fabric --quick
    """
    if (flows is None) != (size is None):
        raise click.UsageError("--flows and --bytes need each other.")
    if settings.lab is None:
        raise click.UsageError(
            "Name a fabric lab with --lab; `xenoovs lab up --topology fabric --lab NAME` builds one."
        )
    chosen = cases or (_QUICK_CASES if settings.quick else _USUAL_CASES)
    one_size = (flows, size) if flows is not None and size is not None else QUICK_SIZE if settings.quick else None
    points = points_of(scenes_of(chosen, one_size), designs or tuple(RoutingDesign))
    number = repeats or (_QUICK_REPEATS if settings.quick else _REPEATS)
    with open_fabric_bed(settings.lab) as bed, prepared(bed, txrehash=txrehash):
        made = completion_experiment(bed, points, repeats=number, txrehash=txrehash, seed=settings.seed)
        recorded = run_on_bed(settings, bed, made)
    show_result(settings, recorded, _show)


def _show(recorded: RecordedRun) -> None:
    for scene, figures in figures_of(recorded.run.points, recorded.samples).items():
        echo(f"\n{title_of(scene)}")
        _print(figures)
    rehash = "with" if recorded.run.options.get("txrehash") else "without"
    echo(f"\nMAX and MEDIAN in ms; hosts {rehash} txrehash, TCP CUBIC")


def title_of(scene: Scene) -> str:
    load = f", elephant of {scene.load:g} x link" if scene.load else ""
    return f"{scene.case.value}: {scene.flows} x {scene.size / 1000:g} kB{load}"


def _print(figures: Sequence[CompletionFigures]) -> None:
    header = ["DESIGN", "MIN", "MEDIAN", "MAX", "MEAN", "UNDISTURBED", "ECMP/IT", "DONE", "MOVES"]
    rows = [[*_cells(each)] for each in figures]
    print_table(header, rows, right=range(1, len(header)))


def _cells(one: CompletionFigures) -> Iterable[str]:
    yield one.design
    for value in (one.least_s, one.median_s, one.greatest_s, one.mean_s, one.undisturbed_s):
        yield "-" if value is None else f"{value * 1000:.0f}"
    yield "-" if one.gain is None else f"{one.gain:.2f}"
    yield f"{one.completed}/{one.flows}"
    yield "-" if one.moves is None else f"{one.moves:g}"
