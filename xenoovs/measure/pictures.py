"""Draws charts as SVG and PNG. The only module that imports matplotlib, of the extra `xenoovs[measure]`."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Sequence
from itertools import cycle, pairwise
from typing import TYPE_CHECKING, Any

from xenoovs.dataclass import dataclass
from xenoovs.display import quantity
from xenoovs.measure.chart import Axis, Bars, Box, Chart, ChartLine, ChartMark, Panel
from xenoovs.regex import regex

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours of a picture. `series`: For runs, designs or clients; Okabe and Ito's palette for the colour-blind."""

    ground: str
    ink: str
    quiet: str
    grid: str
    warn: str
    series: tuple[str, ...]


LIGHT = Theme(
    "#ffffff", "#1b2530", "#5d6b7a", "#e3e7ec", "#b3430a",
    ("#0072b2", "#d98f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8a7a00"),
)  # fmt: skip
DARK = Theme(
    "#12171d", "#e6ebf0", "#93a1b0", "#2d3741", "#ff9a6b",
    ("#4aa8e0", "#e0a52e", "#1fc79a", "#df9bc3", "#a5d8f5", "#f08a4b", "#d9cc4b"),
)  # fmt: skip
# Colours that no theme uses: each is a placeholder for a variable of the page's style sheet.
_VARIABLES = ("ground", "ink", "quiet", "grid", "warn", *(f"series-{index}" for index in range(7)))
_STAND_INS = {f"#0102{index:02x}": name for index, name in enumerate(_VARIABLES, start=16)}
_GROUND, _INK, _QUIET, _GRID, _WARN, *_SERIES = _STAND_INS
STYLED = Theme(_GROUND, _INK, _QUIET, _GRID, _WARN, tuple(_SERIES))
"""For a picture in a page, which has light and dark colours."""

_NUMBERED_ID = regex(r' id="[A-Za-z0-9.]+_[0-9]+"')
"""Ids of groups. They have no references, and would not be unique in a page with several pictures."""
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_DASHES = ((0, (1, 1.5)), (0, (5, 2)), (0, (7, 2, 1, 2)), (0, (3, 1, 1, 1, 1, 1)))
_BOX_PARTS = ("box: middle half of the answers, its line: median", "whiskers: from 1 % to 99 % of the answers")
_REFERENCE_MARKERS = ("x", "+", "1", "*")
_WIDTH_IN, _TITLE_IN, _LINE_IN = 8.8, 0.36, 0.2
_DPI = 144
_LEAST_QUANTITY = 0.1


def style_variables(theme: Theme) -> str:
    """Return the style sheet declarations for pictures drawn as STYLED."""
    colors = (theme.ground, theme.ink, theme.quiet, theme.grid, theme.warn, *theme.series)
    return " ".join(f"--p-{name}: {color};" for name, color in zip(_VARIABLES, colors, strict=True))


def svg_of(chart: Chart, theme: Theme = LIGHT) -> str:
    """Return a picture as SVG; the same chart always gives the same text."""
    text = _saved(chart, theme, "svg").decode()
    if theme is STYLED:
        text = re.sub("#0102[0-9a-f]{2}", lambda found: f"var(--p-{_STAND_INS[found.group()]})", text)
        # In a page a picture has no XML declaration, and scales with the page's width.
        text = text[text.index("<svg") :]
        text = re.sub(r'(<svg [^>]*?) width="[^"]*"', r"\1", text, count=1)
        text = re.sub(r'(<svg [^>]*?) height="[^"]*"', r"\1", text, count=1)
        text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
        # These ids would not be unique in the page.
        text = _NUMBERED_ID.sub("", text)
    return text


def png_of(chart: Chart, theme: Theme = LIGHT) -> bytes:
    return _saved(chart, theme, "png")


def _saved(chart: Chart, theme: Theme, form: str) -> bytes:
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    settings: dict[Any, Any] = {
        "svg.hashsalt": chart.name,
        "svg.fonttype": "path",
        # A dollar in a name must not begin a formula.
        "text.parse_math": False,
        "font.family": ["DejaVu Sans"],
        "font.size": 9,
        "text.color": theme.ink,
        "axes.edgecolor": theme.quiet,
        "axes.labelcolor": theme.ink,
        "axes.facecolor": theme.ground,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "axes.grid": True,
        "grid.color": theme.grid,
        "grid.linewidth": 0.8,
        "xtick.color": theme.quiet,
        "ytick.color": theme.quiet,
        "xtick.labelcolor": theme.ink,
        "ytick.labelcolor": theme.ink,
        "xtick.minor.size": 0,
        "ytick.minor.size": 0,
        "figure.facecolor": theme.ground,
        "legend.frameon": False,
        "legend.fontsize": 8.5,
    }
    with mpl.rc_context(settings):
        figure = _drawn(chart, theme, Figure)
        FigureCanvasAgg(figure)
        _fix_layout(figure)
        stream = io.BytesIO()
        metadata = {"Date": None} if form == "svg" else {"Software": None}
        figure.savefig(stream, format=form, dpi=_DPI, metadata=metadata)
    return stream.getvalue()


def _fix_layout(figure: Figure) -> None:
    """Lay the picture out, and round the positions: the last digits of the solver's results vary."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for axes in figure.axes:
        axes.set_position([round(edge, 6) for edge in axes.get_position().bounds])  # type: ignore[arg-type]


def _drawn(chart: Chart, theme: Theme, make: type[Figure]) -> Figure:
    columns = min(chart.columns, len(chart.panels))
    rows = math.ceil(len(chart.panels) / columns)
    # In a page the title is a heading above the picture.
    title = 0.0 if theme is STYLED else _TITLE_IN
    header = title + _LINE_IN * len(chart.subtitles) + 0.12
    handles_in = 0.21 * math.ceil(len(_labels(chart)) / 2) + 0.1
    heights = [_row_height(chart, chart.panels[row * columns : (row + 1) * columns]) for row in range(rows)]
    height = header + sum(heights) + handles_in
    figure = make(figsize=(_WIDTH_IN, height))
    figure.set_layout_engine("constrained", rect=(0.005, 0.005, 0.99, 1 - header / height - 0.005), hspace=0.06)
    share = len(chart.panels) > 1 and len({(p.y.label, p.y.unit, p.y.is_log) for p in chart.panels}) == 1
    share = share and not chart.panels[0].bars
    grid = figure.subplots(rows, columns, squeeze=False, sharey="all" if share else False, height_ratios=heights)
    cells = [cell for row in grid for cell in row]
    for index, (panel, axes) in enumerate(zip(chart.panels, cells, strict=False)):
        is_first = index % columns == 0 or panel.categories != chart.panels[index - 1].categories
        _draw_panel(panel, axes, theme, is_first=is_first, is_shared=share)
    for axes in cells[len(chart.panels) :]:
        axes.set_visible(False)
    if title:
        figure.text(0.012, 1 - 0.27 / height, chart.title, fontsize=13, fontweight="bold")
    for number, subtitle in enumerate(chart.subtitles):
        y = 1 - (title + 0.1 + (number + 0.25) * _LINE_IN) / height
        shown = subtitle if len(subtitle) <= 130 else f"{subtitle[:129]}…"
        figure.text(0.012, y, shown, fontsize=8.5, color=theme.quiet)
    _draw_legend(figure, chart, cells, theme)
    return figure


def _row_height(chart: Chart, panels: Sequence[Panel]) -> float:
    """Return the height of panels side by side, in inches."""
    if chart.panels[0].bars:
        rows = max(len(panel.categories) for panel in panels)
        return 0.6 + rows * 0.145 * max(1.6, len(chart.panels[0].bars))
    return 3.6 if len(chart.panels) <= chart.columns else 2.7


def _labels(chart: Chart) -> list[str]:
    found = list[str]()
    for panel in chart.panels:
        found += [line.label for line in panel.lines]
        found += [bars.label for bars in panel.bars if bars.label]
        found += _BOX_PARTS if panel.boxes else ()
    return list(dict.fromkeys(found))


def _draw_legend(figure: Figure, chart: Chart, cells: Sequence[Axes], theme: Theme) -> None:
    # Measurements first, then references, each in the order of the chart.
    handles = dict[str, Any]()
    for axes in cells:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    known = {label: handles[label] for label in dict.fromkeys((*_labels(chart), *handles)) if label in handles}
    if any(panel.boxes for panel in chart.panels):
        known = _box_handles(chart, theme) | known
    if known:
        columns = 3 if max(map(len, known)) < 24 else 2
        figure.legend(list(known.values()), list(known), loc="outside lower left", ncols=columns, handlelength=2.6)


def _box_handles(chart: Chart, theme: Theme) -> dict[str, Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    names = [subtitle.partition(":")[0] for subtitle in chart.subtitles] if len(chart.runs) > 1 else []
    runs = {name: Patch(facecolor=theme.series[index % 7]) for index, name in enumerate(names)}
    color = "none" if names else theme.series[0]
    return {
        **runs,
        _BOX_PARTS[0]: Patch(facecolor=color, edgecolor=theme.ink, linewidth=0.9),
        _BOX_PARTS[1]: Line2D([], [], color=theme.ink, linewidth=0.9),
    }


def _draw_panel(panel: Panel, axes: Axes, theme: Theme, *, is_first: bool, is_shared: bool) -> None:
    if panel.title:
        axes.set_title(panel.title, loc="left", fontsize=9.5, fontweight="bold")
    if panel.bars:
        _draw_bars(panel, axes, theme, is_first=is_first)
        return
    references = cycle(zip(_DASHES, _REFERENCE_MARKERS, strict=True))
    for line in panel.lines:
        _draw_line(line, panel, axes, theme, next(references) if line.color is None else None)
    _draw_boxes(panel.boxes, panel, axes, theme)
    _set_axis(axes, "x", panel.x)
    _set_axis(axes, "y", panel.y)
    if not is_first and is_shared:
        axes.set_ylabel("")
    if not panel.y.is_log:
        axes.set_ylim(0, axes.get_ylim()[1] * 1.05)  # the highest mark is drawn whole


def _set_axis(axes: Axes, name: str, axis: Axis) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

    side = axes.xaxis if name == "x" else axes.yaxis
    (axes.set_xlabel if name == "x" else axes.set_ylabel)(axis.label)
    if axis.is_log:
        (axes.set_xscale if name == "x" else axes.set_yscale)("log")
        side.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=30))
        side.set_minor_locator(NullLocator())
        low, high = axes.get_xlim() if name == "x" else axes.get_ylim()
        if low > 0 and high / low > 300:
            side.set_major_locator(LogLocator(numticks=30))
        side.set_minor_formatter(NullFormatter())
        side.set_major_formatter(FuncFormatter(lambda value, _position: f"{value:,.10g}"))
    if axis.ticks:
        places = [place / axis.unit for place, _ in axis.ticks]
        side.set_ticks(places, [label for _, label in axis.ticks])
    if axis.ticks and len(axis.ticks) > 10:
        axes.tick_params(axis="x" if name == "x" else "y", labelsize=8)


def _scaled(values: Iterable[float], axis: Axis) -> list[float]:
    return [value / axis.unit for value in values]


def _draw_line(line: ChartLine, panel: Panel, axes: Axes, theme: Theme, reference: Any) -> None:
    marks = sorted(line.marks, key=lambda mark: mark.x)
    if panel.y.is_log:
        # A logarithmic axis has no zero.
        marks = [mark for mark in marks if mark.value.estimate > 0]
    x, y = _scaled((mark.x for mark in marks), panel.x), _scaled((mark.value.estimate for mark in marks), panel.y)
    if line.color is None:
        dash, shape = reference
        marker = shape if len(marks) < 10 and "published" in line.label else ""
        axes.plot(x, y, color=theme.quiet, linewidth=1, linestyle=dash, marker=marker, markersize=5, label=line.label)
        return
    color = theme.series[line.color % len(theme.series)]
    errors = [
        _scaled((mark.value.estimate - mark.value.low for mark in marks), panel.y),
        _scaled((mark.value.high - mark.value.estimate for mark in marks), panel.y),
    ]
    axes.errorbar(
        x,
        y,
        yerr=errors,
        color=color,
        marker=_MARKERS[line.color % len(_MARKERS)],
        markersize=5,
        markerfacecolor=theme.ground if line.is_dashed else color,
        linewidth=1.2 if line.is_dashed else 1.8,
        linestyle="--" if line.is_dashed else "-",
        capsize=3,
        elinewidth=1,
        label=line.label,
        zorder=3,
    )
    if suspects := [mark for mark in marks if mark.is_suspect]:
        x = _scaled((mark.x for mark in suspects), panel.x)
        y = _scaled((mark.value.estimate for mark in suspects), panel.y)
        axes.plot(x, y, linestyle="", marker="o", markersize=11, markerfacecolor="none", markeredgecolor=theme.warn,
                  markeredgewidth=1.5, label="suspect", zorder=4)  # fmt: skip


def _draw_boxes(boxes: Sequence[Box], panel: Panel, axes: Axes, theme: Theme) -> None:
    if not boxes:
        return
    runs = 1 + max(box.place for box in boxes)
    places = sorted({box.x for box in boxes})
    gap = min((b - a for a, b in pairwise(places)), default=0.1)
    width = gap * 0.7 / runs
    for box in boxes:
        value, color = box.value, theme.series[box.place % len(theme.series)]
        x = box.x + (box.place - (runs - 1) / 2) * width * 1.1
        axes.bxp(
            [{"med": value.median, "q1": value.p25, "q3": value.p75, "whislo": value.p1, "whishi": value.p99}],
            positions=[x],
            widths=width * 0.9,
            showfliers=False,
            patch_artist=True,
            manage_ticks=False,
            boxprops={"facecolor": color, "edgecolor": theme.warn if box.is_suspect else theme.ink, "linewidth": 0.9},
            medianprops={"color": theme.ground, "linewidth": 1.8},
            whiskerprops={"color": theme.ink, "linewidth": 0.9},
            capprops={"color": theme.ink, "linewidth": 0.9},
        )  # fmt: skip
        if box.is_suspect:
            axes.plot([x], [value.p99], linestyle="", marker="o", markersize=9, markerfacecolor="none",
                      markeredgecolor=theme.warn, label="suspect")  # fmt: skip
    axes.set_xlim(places[0] - gap * 0.7, places[-1] + gap * 0.7)


def _draw_bars(panel: Panel, axes: Axes, theme: Theme, *, is_first: bool) -> None:
    count, thick = len(panel.bars), 0.8 / len(panel.bars)
    positive = [mark.value.estimate for bars in panel.bars for mark in bars.marks.values() if mark.value.estimate > 0]
    # The power of ten below the shortest bar; less than one per second counts as none.
    floor = 10.0 ** (math.ceil(math.log10(max(1.0, min(positive, default=1.0)))) - 1) if panel.x.is_log else 0.0
    for number, bars in enumerate(panel.bars):
        for row, category in enumerate(panel.categories):
            place = row + (number - (count - 1) / 2) * thick
            _draw_bar(bars, bars.marks.get(category), place, thick, floor, panel, axes, theme)
    axes.set_ylim(len(panel.categories) - 0.5, -0.5)
    axes.set_yticks(range(len(panel.categories)), panel.categories if is_first else [""] * len(panel.categories))
    if is_first and "xenoovs" in panel.categories[0]:
        axes.get_yticklabels()[0].set_fontweight("bold")
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    if not positive:
        axes.set_xlim(0, 1)
        axes.set_xticks([0])
    else:
        most = max(*positive, 2 * floor) / panel.x.unit
        if panel.x.is_log:
            axes.set_xscale("log")
            axes.set_xlim(floor / panel.x.unit, most * (2 * most * panel.x.unit / floor) ** 0.25)
            _set_axis(axes, "x", panel.x)
            axes.xaxis.set_major_formatter(lambda value, _position: quantity(value))
        else:
            # Room for the number after the longest bar, or after its interval.
            most = max(mark.value.high for bars in panel.bars for mark in bars.marks.values()) / panel.x.unit
            axes.set_xlim(0, max([most * 1.28, *(place * 1.14 / panel.x.unit for place, _ in panel.x.ticks)]))
            if panel.x.ticks:
                _set_axis(axes, "x", panel.x)


def _draw_bar(
    bars: Bars, mark: ChartMark | None, place: float, thick: float, floor: float, panel: Panel, axes: Axes, theme: Theme
) -> None:
    unit = panel.x.unit
    if mark is None:
        axes.text(floor / unit, place, " not measured", va="center", fontsize=7, color=theme.quiet)
        return
    value = mark.value
    color = theme.series[bars.color % len(theme.series)]
    length = max(0.0, value.estimate - floor) / unit
    axes.barh(place, length, height=thick * 0.9, left=floor / unit, color=color, label=bars.label or None,
              edgecolor=theme.warn if mark.is_suspect else "none", hatch="//" if mark.is_suspect else None)  # fmt: skip
    end = max(value.estimate, floor) / unit
    if value.high > value.low > 0:
        axes.plot([max(value.low, floor) / unit, value.high / unit], [place, place], color=theme.ink, linewidth=1)
        end = max(end, value.high / unit)
    number = value.estimate / unit
    shown = quantity(number) if number >= _LEAST_QUANTITY else f"{number:.2g}"
    shown = f">{shown}, not done" if mark.is_unfinished else shown
    text = f"  {shown}{' suspect' if mark.is_suspect else ''}"
    axes.text(end, place, text, va="center", fontsize=7.5, color=theme.warn if mark.is_suspect else theme.ink)
