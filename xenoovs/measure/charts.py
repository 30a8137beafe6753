"""Makes the content of a report's pictures from samples, as values. `pictures` draws them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import fmean

from xenoovs.dataclass import dataclass, replace
from xenoovs.errors import counted, worded
from xenoovs.measure.chart import (
    OTHER_HARDWARE,
    Axis,
    Bars,
    Box,
    Cell,
    Chart,
    ChartLine,
    ChartMark,
    ChartTable,
    Panel,
    further_runs,
    published_of,
)
from xenoovs.measure.completion import CompletionCase, CompletionFigures, Scene, acceptance, figures_of, scene_title
from xenoovs.measure.echo import bytes_text
from xenoovs.measure.fabric_bed import RoutingDesign
from xenoovs.measure.path_figures import MeasuredPaths, PairFigures, PathFigures, measured_paths
from xenoovs.measure.samples import RecordedRun, Sample
from xenoovs.measure.statistics import FEWEST_REPEATS, Interval, Statistic, change, interval, quantiles
from xenoovs.measure.verdict import (
    WIRE_OVERHEAD_BYTES,
    ClaimVerdict,
    by_point,
    judge,
    line_rate_pps,
    number_list,
    numbers,
    offloaded_share,
    repeat_values,
    trusted,
)

UDP_OVERHEAD_BYTES = 46
"""Ethernet header and FCS, IPv4 and UDP headers of a frame."""


def chart_of(runs: Sequence[RecordedRun], labels: Sequence[str]) -> Chart | None:
    """Return the picture of runs of one experiment; None if no run has samples, or the experiment has no picture."""
    make = _CHARTS.get(runs[0].run.experiment)
    measured = [(run, label) for run, label in zip(runs, labels, strict=True) if run.samples]
    if make is None or not measured:
        return None
    several = len(measured) > 1
    sources = [_RunSource(run, f"{label}: " if several else "", index) for index, (run, label) in enumerate(measured)]
    chart = make(sources)
    return replace(
        chart,
        name=runs[0].run.experiment,
        subtitles=tuple(f"{one.prefix}{subtitle_of(one.run)}" for one in sources),
        verdicts=tuple(map(_verdicts, sources)),
        notes=(*chart.notes, *_few_repeats(chart)),
        runs=tuple(one.run for one in sources),
    )


def _verdicts(source: _RunSource) -> tuple[ClaimVerdict, ...]:
    experiment, samples = source.run.run.experiment, source.run.samples
    if experiment == "completion":
        return acceptance(samples)
    found = judge(experiment, samples, link_bps=source.link_bps)
    return () if found is None else (found,)


def _few_repeats(chart: Chart) -> Iterator[str]:
    """Yield the note about intervals of too few repeats, if the picture has such intervals."""
    marks = [mark for panel in chart.panels for line in panel.lines for mark in line.marks]
    marks += [mark for panel in chart.panels for bars in panel.bars for mark in bars.marks.values()]
    if any(mark.value.count > 1 and not mark.value.is_confidence for mark in marks):
        yield (
            f"Points with fewer than {FEWEST_REPEATS} repeats have no confidence interval: what is drawn there reaches "
            "from the least repeat to the greatest."
        )


def subtitle_of(recorded: RecordedRun) -> str:
    """Return the name of the datapath, and whether the run is quick, incomplete or has suspect samples."""
    run, planned = recorded.run, len(recorded.run.points) * recorded.run.repeats
    marks = [run.datapath]
    if run.quick:
        marks.append(f"quick run, {counted(run.repeats, 'repeat')}")
    if not recorded.is_complete:
        marks.append(f"incomplete: {len(recorded.samples)} of {counted(planned, 'sample')}")
    if suspect := sum(bool(sample.suspect) for sample in recorded.samples):
        marks.append(f"{counted(suspect, 'sample')} suspect")
    return "; ".join(marks)


Values = tuple[object, ...]
"""The values of some keys of a point."""


@dataclass(frozen=True, slots=True)
class _RunSource:
    """One run of a picture. `index`: Its number among the runs."""

    run: RecordedRun
    prefix: str
    index: int

    @property
    def link_bps(self) -> float | None:
        """Return the rate of the bed's slowest link; None if it is not known."""
        value = self.run.run.bed.get("link_bps")
        return float(value) if isinstance(value, (int, float)) and value else None

    def groups(self, *keys: str) -> dict[Values, Sequence[Sample]]:
        """Return the samples of each point; suspect ones only if there are no others."""
        groups = by_point(self.run.samples, *keys)
        return {key: trusted(group) for key, group in groups.items()}

    def curves(self, *keys: str) -> dict[Values, dict[float, Sequence[Sample]]]:
        """Return the samples of each point, by all keys except the last, then by the last, the x value."""
        found = dict[Values, dict[float, Sequence[Sample]]]()
        for (*curve, x), samples in self.groups(*keys).items():
            found.setdefault(tuple(curve), {})[float(str(x))] = samples
        return found


def _mark(x: float, samples: Sequence[Sample], key: str) -> ChartMark | None:
    """Return the mean of the repeats; a list counts with its median."""
    values = repeat_values(samples, key)
    return ChartMark(x, interval(values), all(sample.suspect for sample in samples)) if values else None


def _marks(curve: Mapping[float, Sequence[Sample]], key: str) -> tuple[ChartMark, ...]:
    marks = (_mark(x, samples, key) for x, samples in curve.items())
    return tuple(mark for mark in marks if mark is not None)


def _estimates(samples: Sequence[Sample], keys: Iterable[str]) -> Iterator[float | None]:
    for key in keys:
        mark = _mark(0, samples, key)
        yield mark.value.estimate if mark else None


def _interval(samples: Sequence[Sample], key: str) -> tuple[float | None, float | None, float | None]:
    mark = _mark(0, samples, key)
    return (mark.value.estimate, *mark.value.bounds) if mark else (None, None, None)


def _table(
    sources: Sequence[_RunSource],
    keys: Sequence[str],
    columns: Sequence[str],
    cells: Callable[[_RunSource, Values, Sequence[Sample]], Iterable[Cell]],
) -> ChartTable:
    """Return a table with a row for each point. `keys`: Keys of points."""
    rows = tuple(
        (
            one.prefix.rstrip(": "),
            *(part if isinstance(part, (int, float, str)) else None for part in point),
            *cells(one, point, samples),
            offloaded_share(one.run, samples),
            len(samples),
        )
        for one in sources
        for point, samples in one.groups(*keys).items()
    )
    # Without a NIC the share of packets that it forwards is empty, and its column is not shown.
    return ChartTable(("run", *_spaced(keys), *columns, "forwarded by the NIC", "repeats"), rows)


def _value_table(sources: Sequence[_RunSource], keys: Sequence[str], values: Sequence[str]) -> ChartTable:
    """Return a table with the means of these values."""
    return _table(sources, keys, _spaced(values), lambda _one, _point, samples: _estimates(samples, values))


def _published_lines(experiment: str, panel: str = "") -> Iterator[ChartLine]:
    for figure in published_of(experiment):
        marks = tuple(ChartMark.exactly(value, x) for x, value in figure.points if x is not None)
        if marks and figure.panel == panel:
            yield ChartLine(f"{figure.source.name}, {figure.label} ({OTHER_HARDWARE})", marks)


def _rate_chart(sources: Sequence[_RunSource]) -> Chart:
    lines, curves = list[ChartLine](), [one.curves("frame_bytes")[()] for one in sources]
    for one, curve in zip(sources, curves, strict=True):
        lines.append(ChartLine(f"{one.prefix}throughput, without loss", _marks(curve, "throughput_pps"), one.index))
        forwarding = _marks(curve, "forwarding_pps")
        lines.append(ChartLine(f"{one.prefix}forwarding rate, with loss", forwarding, one.index, is_dashed=True))
    sizes = sorted({size for curve in curves for size in curve})
    references = [
        ChartLine(
            f"line rate of {link / 1e9:g} Gbit/s",
            tuple(ChartMark.exactly(line_rate_pps(link, size), size) for size in sizes),
        )
        for link in sorted({one.link_bps for one in sources if one.link_bps})
    ]
    references += _published_lines("rate")
    shown = [size for size in sizes if size != 68 or 64 not in sizes]
    ticks = tuple((size, f"{size:g}" if size != 1280 or 1518 not in sizes else "") for size in shown)
    most = max((mark.value.high for line in lines for mark in line.marks), default=0.0)
    prefix, unit = ("million", 1e6) if most >= 2e6 else ("thousand", 1e3)
    measured = tuple(line for line in lines if line.marks)
    x = Axis("frame size with FCS, bytes", is_log=True, ticks=ticks)
    panels = (
        Panel("measured", x, Axis(f"{prefix} packets a second", unit=unit), measured),
        Panel(
            "beside line rate and others (log scale)",
            x,
            Axis("million packets a second", is_log=True, unit=1e6),
            (*measured, *references),
        ),
    )
    columns = ("throughput pps", "low", "high", "forwarding pps", "of line rate", "L1 Gbit/s", "payload Gbit/s")
    return Chart(
        "Packet rate over frame size",
        panels,
        "Throughput is the highest rate without any loss (RFC 2544, section 26.1), the forwarding rate the highest "
        "that arrived at any load. Bars at the points are confidence intervals of 95 % over the repeats. Layer 1 (L1) "
        "counts preamble and gap too, payload is that of UDP.",
        _table(sources, ("frame_bytes",), columns, _rate_cells),
        columns=2,
    )


def _rate_cells(one: _RunSource, point: Values, samples: Sequence[Sample]) -> tuple[Cell, ...]:
    size, (pps, low, high) = float(str(point[0])), _interval(samples, "throughput_pps")
    if pps is None:
        return (None,) * 7
    return (
        pps,
        low,
        high,
        *_estimates(samples, ["forwarding_pps"]),
        pps / line_rate_pps(one.link_bps, size) if one.link_bps else None,
        pps * (size + WIRE_OVERHEAD_BYTES) * 8 / 1e9,
        pps * max(0, size - UDP_OVERHEAD_BYTES) * 8 / 1e9,
    )


def _latency_chart(sources: Sequence[_RunSource]) -> Chart:
    panels, rows = list[Panel](), list[tuple[Cell, ...]]()
    curves = [(one, one.curves("split", "base_load")) for one in sources]
    ticks = sorted({load for _, of_splits in curves for curve in of_splits.values() for load in curve})
    for split in dict.fromkeys(str(point.get("split")) for one in sources for point in one.run.run.points):
        boxes = list[Box]()
        for one, of_splits in curves:
            for load, samples in of_splits.get((split,), {}).items():
                times = [time for sample in samples for time in number_list(sample.values, "rtt_us")]
                if times:
                    found = quantiles(times)
                    boxes.append(Box(load, found, one.index, all(sample.suspect for sample in samples)))
                    times_us = (found.p25, found.median, found.p75, found.p99, found.p999)
                    rows.append((one.prefix.rstrip(": "), split, load, *times_us, found.count, len(samples)))
        if any((split,) in of_splits for _, of_splits in curves):
            panels.append(
                Panel(
                    f"split {split}",
                    Axis(
                        "base load, of the highest rate with at most 0.1 % loss",
                        ticks=tuple((load, f"{load:.0%}") for load in ticks),
                    ),
                    Axis("round-trip time, microseconds", is_log=True),
                    tuple(_published_lines("latency", split)),
                    boxes=tuple(boxes),
                )
            )
    stamps = sorted({str(s.values.get("timestamps")) for one in sources for s in one.run.samples})
    columns = ("run", "split", "base load", "p25 us", "median us", "p75 us", "p99 us", "p99.9 us", "answers", "repeats")
    return Chart(
        "Round-trip time under base load",
        tuple(panels),
        "Boxes hold the middle half of all answers with the median as a line; whiskers end at 1 % and 99 %. "
        "A split such as 70/30 is how the base load is shared by the first two backends. "
        f"Time stamps: {', '.join(stamps)}.",
        ChartTable(columns, tuple(rows)),
        columns=min(2, len(panels)) or 1,
    )


def _loss_chart(sources: Sequence[_RunSource]) -> Chart:
    lines, greatest = list[ChartLine](), 1.0
    for one in sources:
        for (size,), curve in one.curves("frame_bytes", "offered_share").items():
            name = f"{one.prefix}{size} bytes" if size is not None else f"{one.prefix}loss"
            lines.append(ChartLine(name, _marks(curve, "loss_share"), len(lines)))
            greatest = max(greatest, *curve)
    if greatest > 1:
        steps = [1 + (greatest - 1) * index / 40 for index in range(41)]
        least = tuple(ChartMark.exactly(1 - 1 / share, share) for share in steps)
        lines.append(ChartLine("loss if exactly that rate passes", least))
    lines += _published_lines("loss")
    panel = Panel(
        "",
        Axis("offered load, % of the highest rate with at most 0.1 % loss", unit=0.01),
        Axis("lost frames, %", unit=0.01),
        tuple(line for line in lines if line.marks),
    )
    return Chart(
        "Loss over offered load",
        (panel,),
        "100 % is the rate that the run found at its beginning: the highest at which at most 0.1 % was lost.",
        _table(
            sources,
            ("frame_bytes", "offered_share"),
            ("offered pps", "sent", "received", "lost", "loss share", "low", "high"),
            _loss_cells,
        ),
    )


def _loss_cells(_one: _RunSource, _point: Values, samples: Sequence[Sample]) -> tuple[Cell, ...]:
    sent, received = sum(numbers(samples, "sent")), sum(numbers(samples, "received"))
    offered = _estimates(samples, ["offered_pps"])
    return (*offered, sent, received, sent - received, *_interval(samples, "loss_share"))


def _echo_chart(sources: Sequence[_RunSource]) -> Chart:
    lines, sizes = list[ChartLine](), set[float]()
    for one in sources:
        for (target, offload), curve in one.curves("target", "offload", "bytes").items():
            name = f"{one.prefix}{target}, offload {offload}" if offload != "unchanged" else f"{one.prefix}{target}"
            lines.append(ChartLine(f"{name}, mean", _marks(curve, "mean_us"), len(lines) // 2))
            lines.append(ChartLine(f"{name}, median", _marks(curve, "median_us"), len(lines) // 2, is_dashed=True))
            sizes.update(curve)
    lines += _published_lines("echo")
    panel = Panel(
        "",
        Axis("message, bytes", is_log=True, ticks=tuple((size, bytes_text(size)) for size in sorted(sizes))),
        Axis("round trip, microseconds", is_log=True),
        tuple(line for line in lines if line.marks),
    )
    return Chart(
        "TCP echo over the size of the message",
        (panel,),
        "Time from the first byte of a message to the last byte of its echo, on an open connection. Where the mean is "
        "far above the median, a few messages were much slower than the others; published figures are means.",
        _table(
            sources,
            ("target", "offload", "bytes"),
            ("mean us", "low", "high", "median us"),
            lambda _one, _point, samples: (*_interval(samples, "mean_us"), *_estimates(samples, ["median_us"])),
        ),
    )


DESIGNS = {
    "masked": "masked blocks, short first (xenoovs)",
    "masked_long_first": "masked blocks, long first",
    "longest_match": "longest match",
    "dp_hash": "select group, dp_hash",
    "hash_source": "select group, hash(ip_src)",
    "learn": "learn, a flow a connection",
    "conntrack": "conntrack NAT",
    "ipvs": "IPVS, direct routing",
}
Figures = tuple[tuple[str, str, float, bool], ...]
"""For each panel: key of the value, title, unit, and whether its axis is logarithmic."""


@dataclass(frozen=True, slots=True)
class _BarChart:
    """A chart with a panel of bars for each figure. The last key of a point selects the colour, the others the row.

    `more`: Keys of values that only the table shows. `color`: Format of the last key's value in the legend.
    """

    title: str
    caption: str
    keys: tuple[str, ...]
    figures: Figures
    color: str
    row: Callable[..., str]
    more: tuple[str, ...] = ()

    def __call__(self, sources: Sequence[_RunSource]) -> Chart:
        # Two runs would be 42 bars in a panel: only the first is drawn; the table has all.
        curves = {self.row(*point): curve for point, curve in sources[0].curves(*self.keys).items()}
        # Designs first; other rows keep their order.
        rows = tuple(sorted(curves, key=lambda name: [*DESIGNS.values(), name].index(name)))
        colors = sorted({color for curve in curves.values() for color in curve})
        panels = list[Panel]()
        for key, title, unit, is_log in self.figures:
            bars = []
            for number, color in enumerate(colors):
                marks = {row: mark for row in rows if (mark := _mark(0, curves[row].get(color, ()), key))}
                bars.append(Bars(self.color.format(int(color)), marks, number))
            if any(each.marks for each in bars):
                axis = Axis("", is_log=is_log, unit=unit)
                panels.append(Panel(title, axis, bars=tuple(bars), categories=rows))
        values = (*(key for key, *_ in self.figures), *self.more)
        return Chart(
            self.title,
            tuple(panels),
            self.caption,
            _value_table(sources, self.keys, values),
            # Two panels side by side are too small to read in a narrow window.
            columns=1 if len(panels) < 3 else 2,
            notes=further_runs(sources),
        )


def _bars(marks: Mapping[str, Mapping[str, ChartMark]]) -> tuple[Bars, ...]:
    """Return the bars of each label that has some; its place is its colour."""
    return tuple(Bars(label, found, color) for color, (label, found) in enumerate(marks.items()) if found)


def _spaced(keys: Iterable[str]) -> list[str]:
    return [key.replace("_", " ") for key in keys]


def _entries_chart(sources: Sequence[_RunSource]) -> Chart:
    """Return a chart with a curve for each kind over the number of active entries."""
    panels = list[Panel]()
    x = Axis("active entries", is_log=True, ticks=tuple((4.0**power, f"{4**power:,}") for power in range(0, 9, 2)))
    figures = (
        ("forwarding_pps", "packets a second, in thousands", 1e3),
        ("cpu_us", "CPU of the switch a packet, microseconds", 1.0),
        ("packet_us", "one packet, microseconds", 1.0),
    )
    for key, title, unit in figures:
        lines = [
            ChartLine(f"{one.prefix}{kind}", marks, color)
            for one in sources
            for color, ((kind,), curve) in enumerate(one.curves("kind", "entries").items())
            if (marks := _marks(curve, key))
        ]
        if lines:
            panels.append(Panel(title, x, Axis("", unit=unit), tuple(lines)))
    published = Panel("published by others, Gbit/s", x, Axis("", unit=1e9), tuple(_published_lines("entries")))
    values = (*(key for key, *_ in figures), "megaflows", "forwarding_bps", "cpu_cores")
    return Chart(
        "Packets beside active entries",
        (*panels, published),
        "Every entry has traffic: masked blocks, single clients, or five-tuples, with a megaflow each. Where a NIC has "
        "no room for the rules, the rate falls. Bars at the points are confidence intervals of 95 % over the repeats.",
        _value_table(sources, ("kind", "entries"), values),
        columns=2,
    )


# The completion experiment: each design in each case, next to the published figures.

_ROUTING_NAMES = {
    RoutingDesign.BLOCKS.value: "blocks that move (xenoovs)",
    RoutingDesign.DOCA_AR.value: "a probe for each flow (DOCA-AR's algorithm)",
    RoutingDesign.ECMP.value: "ECMP",
}
_UNDISTURBED = "ECMP, undisturbed"
_MS = 1e-3
_MILLISECONDS = Axis("milliseconds (log scale)", is_log=True)
_COMPLETION_COLUMNS = (
    *("run", "case", "flows", "bytes", "elephant load", "design", "min ms", "median ms", "low", "high", "max ms"),
    *("mean ms", "undisturbed median ms", "times undisturbed", "ECMP/it", "completed", "of flows", "moves"),
    *("path empty after ms", "samples"),
)


def _completion_chart(sources: Sequence[_RunSource]) -> Chart:
    first = sources[0].run
    rows = tuple(row for one in sources for row in _completion_rows(one.run, one.prefix))
    rehash = "with" if first.run.options.get("txrehash") else "without"
    return Chart(
        "Flow completion time beside an elephant",
        (_completion_panel(figures_of(first.run.points, first.samples)), _published_completion()),
        "Some flows begin together, and the time of the slowest counts. Bars are medians of the samples with "
        "confidence intervals of 95 %; the published figures are means. All designs were measured in random order in "
        f"one lab, whose hosts send {rehash} txrehash, by TCP CUBIC. Flows that did not end count with the time limit "
        f"of {first.run.options.get('limit_s')} s. What ECMP loses are time-outs of TCP, so that a ratio depends on "
        "the undisturbed time.",
        ChartTable(_COMPLETION_COLUMNS, rows),
        notes=further_runs(sources),
    )


def _completion_panel(scenes: Mapping[Scene, Sequence[CompletionFigures]]) -> Panel:
    marks: dict[str, dict[str, ChartMark]] = {name: {} for name in (*_ROUTING_NAMES.values(), _UNDISTURBED)}
    # If only ECMP was measured without a disturbance, its bar is in every scene, as the undisturbed time.
    shown = {
        scene: found for scene, found in scenes.items() if scene.case is not CompletionCase.ALONE or len(found) > 1
    }
    for scene, figures in (shown or scenes).items():
        for one in figures:
            title = scene_title(scene)
            times_ms = [value / _MS for value in one.times_s]
            median = interval(times_ms, Statistic.MEDIAN)
            marks[_ROUTING_NAMES[one.design]][title] = ChartMark(0, median, is_unfinished=one.is_unfinished)
            if one.undisturbed_s is not None:
                marks[_UNDISTURBED][title] = ChartMark.exactly(one.undisturbed_s / _MS)
    categories = tuple(map(scene_title, shown or scenes))
    return Panel("measured here, medians", _MILLISECONDS, bars=_bars(marks), categories=categories)


def _published_completion() -> Panel:
    marks: dict[str, dict[str, ChartMark]] = {name: {} for name in _ROUTING_NAMES.values()}
    for figure in published_of("completion"):
        scene, _, design = figure.label.rpartition(", ")
        marks[_ROUTING_NAMES["ecmp" if design == "ECMP" else "doca-ar"]][scene] = ChartMark.exactly(figure.points[0][1])
    scenes = tuple(dict.fromkeys(scene for of_design in marks.values() for scene in of_design))
    title = f"DOCA-AR on BlueField-2, 5 MB a flow, means ({OTHER_HARDWARE})"
    return Panel(title, _MILLISECONDS, bars=_bars(marks), categories=scenes)


def _completion_rows(recorded: RecordedRun, prefix: str) -> Iterator[tuple[Cell, ...]]:
    for scene, figures in figures_of(recorded.run.points, recorded.samples).items():
        for one in figures:
            found = interval(one.times_s, Statistic.MEDIAN)
            yield (
                prefix.rstrip(": "),
                scene.case.value,
                scene.flows,
                scene.size,
                scene.load,
                one.design,
                *(value / _MS for value in (min(one.times_s), one.median_s, found.low, found.high, max(one.times_s))),
                fmean(one.times_s) / _MS,
                None if one.undisturbed_s is None else one.undisturbed_s / _MS,
                None if one.undisturbed_s is None else one.median_s / one.undisturbed_s,
                one.gain,
                one.completed,
                one.flows,
                one.moves,
                None if one.emptied_s is None else one.emptied_s / _MS,
                len(one.times_s),
            )


# Paths: the rate of each alone, its round-trip time, and the rates of pairs at the same time.

_DIRECTIONS = {"in": "in: to the backend", "out": "out: from the backend"}
_PATH_COLUMNS = (
    *("run", "path", "direction", "beside", "its direction", "pps", "low", "high", "beside pps", "round trip us"),
    *("cpu us a packet", "forwarded by the NIC", "reached %", "from %", "to %", "verdict", "repeats"),
)
_REACHED = ((0.0, "0 %"), (100.0, "100 %\nshare all"), (200.0, "200 %\nshare nothing"))


def _paths_chart(sources: Sequence[_RunSource]) -> Chart:
    found = [(measured_paths(one.run), one.prefix.removesuffix(": ")) for one in sources]
    first = found[0][0]
    rows = list[tuple[Cell, ...]]()
    for one, run in found:
        rows += [_path_row(run, path) for path in one.paths]
        rows += [_pair_row(run, pair) for pair in one.pairs]
    return Chart(
        "Paths through the bridge, alone and together",
        (*_alone_panels(first), *_pair_panels(first)),
        "A path alone carries what arrives of a load above its rate. Two paths at the same time reach 200 % of their "
        "rates alone if they share nothing, and 100 % if they share all. Bars are means of the repeats with "
        "confidence intervals of 95 %. A round trip is there and back, without load.",
        ChartTable(_PATH_COLUMNS, tuple(rows)),
        columns=2,
        notes=(*_undecided_pairs(first), *further_runs(sources)),
    )


def _alone_panels(found: MeasuredPaths) -> Iterator[Panel]:
    names = tuple(dict.fromkeys(path.end.path for path in found.paths))
    rates = {
        label: {
            path.end.path: ChartMark(0, path.rate_pps, path.is_suspect)
            for path in found.paths
            if path.end.direction == direction
        }
        for direction, label in _DIRECTIONS.items()
    }
    if found.paths:
        most = max(path.rate_pps.estimate for path in found.paths)
        prefix, unit = ("million", 1e6) if most >= 1e6 else ("thousand", 1e3)
        yield Panel(f"alone, {prefix} packets a second", Axis("", unit=unit), bars=_bars(rates), categories=names)
    trips = {
        path.end.path: ChartMark(0, path.rtt_us, path.is_suspect) for path in found.paths if path.rtt_us is not None
    }
    if trips:
        yield Panel("round trip, microseconds", Axis(""), bars=(Bars("", trips, 2),), categories=names)


def _pair_panels(found: MeasuredPaths) -> Iterator[Panel]:
    """Yield a panel for pairs in the same direction, and one for opposite directions; rows show the verdict."""
    for title, is_same, color in (("at the same time, both in", True, 3), ("at the same time, in and out", False, 4)):
        pairs = [pair for pair in found.pairs if pair.is_same_direction is is_same]
        if not pairs:
            continue
        marks = dict[str, ChartMark]()
        for pair in pairs:
            names = ", ".join(dict.fromkeys((pair.one.path, pair.other.path)))
            marks[f"{names}: {pair.verdict.value}"] = ChartMark(0, _percents(pair.reached), pair.is_suspect)
        yield Panel(title, Axis("", ticks=_REACHED), bars=(Bars("", marks, color),), categories=tuple(marks))


def _percents(share: Interval) -> Interval:
    return Interval(share.estimate * 100, share.low * 100, share.high * 100, share.count)


def _undecided_pairs(found: MeasuredPaths) -> Iterator[str]:
    undecided = dict[str, list[str]]()
    for pair in found.pairs:
        if pair.reason:
            undecided.setdefault(pair.reason, []).append(pair.name)
    for reason, names in undecided.items():
        yield f"{', '.join(names)} {worded(len(names), 'is', 'are')} undecided: {reason}."
    for path in found.paths:
        if not path.is_full:
            yield f"{path.end} lost nothing: it may carry more than was sent."


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


_CHARTS: Mapping[str, Callable[[Sequence[_RunSource]], Chart]] = {
    "rate": _rate_chart,
    "latency": _latency_chart,
    "loss": _loss_chart,
    "echo": _echo_chart,
    "completion": _completion_chart,
    "designs": _BarChart(
        "The same load through other designs of a balancer",
        "All designs balance the same clients over the same backends on the same switch, in one run. Bars are means of "
        "the repeats with confidence intervals of 95 %.",
        ("design", "clients"),
        (
            ("forwarding_pps", "packets a second, in thousands", 1e3, False),
            ("megaflows", "megaflows (log scale)", 1, True),
        ),
        "{:,} clients",
        lambda design: DESIGNS.get(str(design), str(design)),
        ("cpu_us", "first_packet_us", "upcalls_pps", "memory_bytes"),
    ),
    "next-hops": _BarChart(
        "The same load by each way to the backends",
        "The load goes to each service in turn, in one run. CPU is the time of ovs-vswitchd and of soft interrupts of "
        "the whole machine: what offloading gives back. Bars are means of the repeats with confidence intervals of "
        "95 %.",
        ("service", "way", "frame_bytes"),
        (
            ("forwarding_bps", "Gbit/s of frames that reached a backend", 1e9, False),
            ("cpu_cores", "CPU of the switch meanwhile, cores", 1, False),
            ("forwarding_pps", "packets a second, in thousands", 1e3, False),
            ("cpu_us", "CPU of the switch a packet, microseconds", 1, False),
        ),
        "frames of {} bytes",
        lambda service, way: way if way == service else f"{service}: {way}",
        ("megaflows", "upcalls", "vswitchd_cpu_s", "softirq_cpu_s"),
    ),
    "entries": _entries_chart,
    "insert": _BarChart(
        "New entries",
        "Rule: from the packet of a new client until its rule is in the NIC, without one in the datapath. Update: "
        "until all entries have another backend while packets come. Bars are means of the repeats; of lists, of their "
        "medians.",
        ("entries",),
        (
            ("first_packet_us", "first packet, microseconds", 1, False),
            ("rule_us", "first packet to rule, microseconds", 1, False),
            ("inserts_pps", "inserts a second, in thousands", 1e3, False),
            ("update_s", "update under load, seconds", 1, False),
        ),
        "{:,} entries",
        lambda: "new entries",
        ("offloads_pps", "update_loss_share"),
    ),
    "paths": _paths_chart,
}


def experiments_of(runs: Iterable[RecordedRun]) -> tuple[str, ...]:
    """Return the experiments of runs in the order of a report."""
    found = {recorded.run.experiment for recorded in runs}
    return (*(name for name in _CHARTS if name in found), *sorted(found - set(_CHARTS)))


# Comparison of runs: the change from the first to each further run.

_COMPARED = {
    "rate": ("throughput_pps", ("frame_bytes",), "throughput"),
    "latency": ("rtt_us", ("split", "base_load"), "median round trip"),
    "echo": ("mean_us", ("bytes", "offload", "target"), "mean round trip"),
    "designs": ("forwarding_pps", ("design", "clients"), "packets a second"),
    "next-hops": ("cpu_us", ("service", "way", "frame_bytes"), "CPU a packet"),
    "entries": ("forwarding_pps", ("kind", "entries"), "packets a second"),
    "insert": ("inserts_pps", ("entries",), "inserts a second"),
}


def compare(chart: Chart) -> Iterator[tuple[str, ChartTable]]:
    """Yield title and table for each further run of a chart: its change from the first."""
    if len(chart.runs) < 2 or chart.name not in _COMPARED:
        return
    key, keys, what = _COMPARED[chart.name]
    names = [subtitle.partition(":")[0] for subtitle in chart.subtitles]
    base = _RunSource(chart.runs[0], "", 0).groups(*keys)
    for run, name in zip(chart.runs[1:], names[1:], strict=True):
        rows = list[tuple[Cell, ...]]()
        for point, samples in _RunSource(run, "", 0).groups(*keys).items():
            one, other = repeat_values(base.get(point, ()), key), repeat_values(samples, key)
            if one and other and min(one) > 0:
                found = change(one, other)
                bounds = (found.low * 100, found.high * 100) if found.is_confidence else (None, None)
                rows.append((*map(str, point), found.estimate * 100, *bounds))
        if rows:
            yield (
                f"{name} against {names[0]}: {what}",
                ChartTable((*_spaced(keys), "change %", "low", "high"), tuple(rows)),
            )
