"""The picture of paths: what each carries alone, how long a round trip takes, and what pairs reach together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xenoovs.errors import worded
from xenoovs.measure.chart import Axis, Bars, Cell, Chart, ChartMark, ChartTable, Panel, further_runs
from xenoovs.measure.path_figures import MeasuredPaths, PairFigures, PathFigures, measured_paths
from xenoovs.measure.samples import RecordedRun
from xenoovs.measure.statistics import Interval

_DIRECTIONS = {"in": "in: to the backend", "out": "out: from the backend"}
_COLUMNS = (
    *("run", "path", "direction", "beside", "its direction", "pps", "low", "high", "beside pps", "round trip us"),
    *("cpu us a packet", "forwarded by the NIC", "reached %", "from %", "to %", "verdict", "repeats"),
)
_REACHED = ((0.0, "0 %"), (100.0, "100 %\nshare all"), (200.0, "200 %\nshare nothing"))


def paths_chart(runs: Sequence[tuple[RecordedRun, str]]) -> Chart:
    """Return the picture of some runs, each with the prefix of its rows; the first is drawn, the table has all."""
    found = [(measured_paths(run), prefix) for run, prefix in runs]
    first = found[0][0]
    rows = [row for one, prefix in found for row in _rows(one, prefix.removesuffix(": "))]
    return Chart(
        "paths",
        "Paths through the bridge, alone and together",
        (*_alone_panels(first), *_pair_panels(first)),
        "A path alone carries what arrives of a load above its rate. Two paths at the same time reach 200 % of their "
        "rates alone if they share nothing, and 100 % if they share all. Bars are means of the repeats with "
        "confidence intervals of 95 %. A round trip is there and back, without load.",
        ChartTable(_COLUMNS, tuple(rows)),
        columns=2,
        notes=(*_undecided(first), *further_runs(runs)),
    )


def _alone_panels(found: MeasuredPaths) -> Iterator[Panel]:
    names = tuple(dict.fromkeys(path.end.path for path in found.paths))
    rates = [
        Bars(
            label,
            {
                path.end.path: ChartMark(0, path.rate_pps, path.is_suspect)
                for path in found.paths
                if path.end.direction == direction
            },
            color,
        )
        for color, (direction, label) in enumerate(_DIRECTIONS.items())
    ]
    rates = [bars for bars in rates if bars.marks]
    if rates:
        most = max(path.rate_pps.estimate for path in found.paths)
        prefix, unit = ("million", 1e6) if most >= 1e6 else ("thousand", 1e3)
        yield Panel(
            f"alone, {prefix} packets a second", Axis("", unit=unit), Axis(""), bars=tuple(rates), categories=names
        )
    trips = {
        path.end.path: ChartMark(0, path.rtt_us, path.is_suspect) for path in found.paths if path.rtt_us is not None
    }
    if trips:
        yield Panel("round trip, microseconds", Axis(""), Axis(""), bars=(Bars("", trips, 2),), categories=names)


def _pair_panels(found: MeasuredPaths) -> Iterator[Panel]:
    """Yield a panel for pairs in the same direction, and one for opposite directions; a row says its verdict."""
    for title, is_same, color in (("at the same time, both in", True, 3), ("at the same time, in and out", False, 4)):
        pairs = [pair for pair in found.pairs if pair.is_same_direction is is_same]
        if not pairs:
            continue
        marks = {_label(pair): ChartMark(0, _percents(pair.reached), pair.is_suspect) for pair in pairs}
        yield Panel(title, Axis("", ticks=_REACHED), Axis(""), bars=(Bars("", marks, color),), categories=tuple(marks))


def _percents(share: Interval) -> Interval:
    return Interval(share.estimate * 100, share.low * 100, share.high * 100, share.count)


def _label(pair: PairFigures) -> str:
    names = pair.one.path if pair.one.path == pair.other.path else f"{pair.one.path}, {pair.other.path}"
    return f"{names}: {pair.verdict.value}"


def _undecided(found: MeasuredPaths) -> Iterator[str]:
    undecided = dict[str, list[str]]()
    for pair in found.pairs:
        if pair.reason:
            undecided.setdefault(pair.reason, []).append(pair.name)
    for reason, names in undecided.items():
        yield f"{', '.join(names)} {worded(len(names), 'is', 'are')} undecided: {reason}."
    for path in found.paths:
        if not path.is_full:
            yield f"{path.end} lost nothing: it may carry more than was sent."


def _rows(found: MeasuredPaths, run: str) -> Iterator[tuple[Cell, ...]]:
    yield from (_path_row(run, path) for path in found.paths)
    yield from (_pair_row(run, pair) for pair in found.pairs)


def _path_row(run: str, path: PathFigures) -> tuple[Cell, ...]:
    rate = path.rate_pps
    trip, cpu = (None if value is None else value.estimate for value in (path.rtt_us, path.cpu_us))
    alone: tuple[Cell, ...] = (rate.estimate, *rate.bounds, None, trip, cpu, path.offloaded_share)
    return (run, path.end.path, path.end.direction, None, None, *alone, None, None, None, None, rate.count)


def _pair_row(run: str, pair: PairFigures) -> tuple[Cell, ...]:
    one, reached = pair.one_pps, _percents(pair.reached)
    shares = (reached.estimate, *reached.bounds)
    ends = (pair.one.path, pair.one.direction, pair.other.path, pair.other.direction)
    rates: tuple[Cell, ...] = (one.estimate, *one.bounds, pair.other_pps.estimate, None, None, pair.offloaded_share)
    return (run, *ends, *rates, *shares, pair.verdict.value, reached.count)
