"""One service on the status page: its clients as strips, and a row for each backend."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from xenoovs.agent.web.html import Markup, element, join
from xenoovs.datapath.megaflow import Verdict
from xenoovs.display import decimal, percent, quantity
from xenoovs.openflow.text import render_bits
from xenoovs.show.agent import BackendState, BackendView, BlockView, ServiceView, traffic_share
from xenoovs.show.column import Row

COLUMNS = 512
"""The largest number of cells in a strip: a screen shows no more."""
_GAPS_UP_TO = 128
_COLOURS = 21
"""Seven colours, each plain, striped and dotted. Further backends use them again."""
_SIGNS = {
    BackendState.UP: "●",
    BackendState.DOWN: "▼",
    BackendState.UNCHECKED: "○",
    BackendState.DRAINED: "◇",
    BackendState.MAINTENANCE: "◆",
}
_HEADERS = ("backend", "state", "weight", "traffic / target", "packets/s", "bits/s", "in hardware", "blocks")
_MEANINGS = {
    Verdict.HW: "hardware forwards",
    Verdict.UNCONFIRMED: "hardware holds it, no counter proves it",
    Verdict.PARTIAL: "hardware matches, CPU forwards",
    Verdict.TC_SW: "kernel, traffic control",
    Verdict.IDLE_HW: "hardware holds it, CPU forwards",
    Verdict.SW: "software",
    Verdict.CONTRADICTED: "counted in hardware, but the CPU got it",
    Verdict.ABSENT: "no traffic",
}


def service_card(service: ServiceView, blocks: Sequence[BlockView], *, now_s: float) -> Markup:
    """Return the whole card."""
    order = {backend.name: number for number, backend in enumerate(service.backends)}
    facts, rows = [*service.facts], [Row(each, service, now_s) for each in service.backends]
    shares = (share for row in rows for share in (row.value.target_share, traffic_share(row)) if share)
    longest = max(shares, default=1.0)
    if service.clients_moved:
        # A sum over all changes, which may be far above 1.
        facts.append(f"clients moved {quantity(service.clients_moved)} times on average")
    return element(
        "section",
        element("h2", service.name, element("span", ", ".join(service.vips), class_="vips")),
        element("p", " · ".join(facts), class_="quiet"),
        _strips(service, blocks, order=order) if blocks else None,
        element(
            "table",
            element("thead", element("tr", *(element("th", header, scope="col") for header in _HEADERS))),
            element("tbody", *(_row(row, number, longest) for number, row in enumerate(rows))),
        ),
        class_="card",
    )


# The clients of a service as a strip: one cell for a block, or for a column where there are very many blocks.


@dataclass(frozen=True, slots=True)
class Cell:
    """Part of a strip. `start` and `size` are from 0 to 1; `tip` describes it."""

    start: float
    size: float
    backend: str
    verdict: Verdict | None
    tip: str


def cells(blocks: Sequence[BlockView]) -> tuple[Cell, ...]:
    """Return what is drawn, in this order: later cells cover earlier ones."""
    if len(blocks) <= COLUMNS:
        return tuple(Cell(b.start, b.size, b.backend, b.verdict, _tip(b)) for b in blocks)
    return tuple(_runs(blocks))


def _runs(blocks: Sequence[BlockView]) -> Iterator[Cell]:
    """Yield one cell for neighbouring columns that look the same."""
    columns: list[BlockView | None] = [None] * COLUMNS
    for block in blocks:
        first = int(block.start * COLUMNS)
        for column in range(first, max(first + 1, int((block.start + block.size) * COLUMNS))):
            columns[min(column, COLUMNS - 1)] = block
    start = 0
    for column in range(1, COLUMNS + 1):
        here = columns[start]
        if column < COLUMNS and _appearance(columns[column]) == _appearance(here):
            continue
        if here is not None:
            tip = f"{here.backend} · {_word(here.verdict)} · {len(blocks)} blocks in {COLUMNS} columns"
            yield Cell(start / COLUMNS, (column - start) / COLUMNS, here.backend, here.verdict, tip)
        start = column


def _appearance(block: BlockView | None) -> tuple[str, Verdict | None] | None:
    return None if block is None else (block.backend, block.verdict)


def _tip(block: BlockView) -> str:
    value, mask = (render_bits(block.field, bits) for bits in (block.value, block.mask))
    return f"{block.backend} · {_word(block.verdict)} · {block.field}={value}/{mask}"


def _word(verdict: Verdict | None) -> str:
    return "not sampled yet" if verdict is None else verdict.value


def _strips(service: ServiceView, blocks: Sequence[BlockView], *, order: Mapping[str, int]) -> Markup:
    drawn = cells(blocks)
    owners = _strip(drawn, (_colour(order.get(c.backend)) for c in drawn), label="clients by backend")
    verdicts = _strip(drawn, (_verdict_class(c.verdict) for c in drawn), label="clients by verdict")
    present = {cell.verdict for cell in drawn}
    legend = (
        element("li", _swatch(_verdict_class(verdict)), f"{verdict.value} ", element("small", _MEANINGS[verdict]))
        for verdict in Verdict
        if verdict in present
    )
    unsampled = element("li", _swatch(_verdict_class(None)), _word(None)) if None in present else None
    return element(
        "figure",
        element("span", "backend", class_="of"),
        owners,
        element("span", "verdict", class_="of"),
        verdicts,
        element(
            "figcaption",
            f"All clients of {service.name}, by the bits that choose their backend.",
            element("ul", *legend, unsampled),
        ),
        class_="map",
    )


def _strip(drawn: Iterable[Cell], classes: Iterable[str], *, label: str) -> Markup:
    rects = [
        element(
            "rect",
            element("title", cell.tip),
            class_=name,
            x=_length(cell.start),
            width=_length(cell.size),
            height="100%",
        )
        for cell, name in zip(drawn, classes, strict=True)
    ]
    gaps = "strip gaps" if len(rects) <= _GAPS_UP_TO else "strip"
    return element("svg", *rects, class_=gaps, role="img", tabindex="0", aria_label=label)


# The row of a backend.


def _row(row: Row[BackendView], number: int, longest: float) -> Markup:
    """Return the row of a backend. `longest`: the share, 0..1, that fills a bar."""
    backend = row.value
    swatch, name = _swatch(_colour(number)), element("span", backend.name, title=f"{backend.mac} by {backend.egress}")
    return element(
        "tr",
        element("th", swatch, name, scope="row"),
        _state(row),
        _cell("weight", BackendView.weight_cell.text(row)),
        element("td", _bar(row, longest), data_label="share"),
        _cell("packets/s", BackendView.pps_cell.text(row)),
        _cell("bits/s", BackendView.bps_cell.text(row)),
        _cell("in HW", BackendView.hw_cell.text(row)),
        element("td", _blocks(row), class_="n", data_label="blocks"),
    )


def _state(row: Row[BackendView]) -> Markup:
    backend = row.value
    since = "" if backend.since_s is None else f" {BackendView.since_cell.text(row)}"
    ramp = "" if backend.ramp is None else f" · {percent(backend.ramp)} done"
    return element(
        "td",
        element("b", _SIGNS[backend.state], class_="sign", aria_hidden="true"),
        element("span", f"{BackendView.state_cell.text(row)}{since}{ramp}"),
        element("small", BackendView.probe_cell.text(row)) if backend.reason else None,
        class_=f"state {backend.state.value}",
        data_label="state",
    )


def _bar(row: Row[BackendView], longest: float) -> Markup:
    """Return a bar that is filled to the share of the traffic and has a mark at the target."""
    target, traffic = row.value.target_share, traffic_share(row)
    width = _length(traffic, longest) if traffic else None
    fill = element("rect", class_="fill", x="0", y="25%", width=width, height="50%") if traffic else None
    mark = element("line", class_="mark", x1=_length(target, longest), x2=_length(target, longest), y1="0", y2="100%")
    ground = element("rect", class_="ground", x="0", y="25%", width="100%", height="50%")
    has = f"has {percent(row.value.share)} of the clients" if _is_moving(row.parent) else ""
    text = f"{percent(traffic)} of the traffic, target {percent(target)}{has and f', {has}'}"
    drawn = element("svg", element("title", text), ground, fill, mark, class_="bar", role="img", aria_label=text)
    beside = element("small", has, class_="holds") if has else None
    words = element("span", percent(traffic), element("small", f" / {percent(target)}"), beside, class_="n")
    return element("div", drawn, words, class_="share")


def _is_moving(service: ServiceView) -> bool:
    """Return whether backends have clients of others for now, so that shares differ from targets."""
    return bool(service.draining) or any(b.is_ejected or b.ramp is not None for b in service.backends)


def _blocks(row: Row[BackendView]) -> Markup:
    worst_first = sorted(row.value.blocks.items(), key=lambda item: -item[0].badness)
    bad = [f"{count} {verdict.value}" for verdict, count in worst_first if count and verdict.badness > 1]
    return join(str(row.value.flows), element("small", ", ".join(bad), class_="not-in-hw") if bad else None)


def _cell(label: str, text: str) -> Markup:
    return element("td", text, class_="n", data_label=label)


def _swatch(name: str) -> Markup:
    rect = element("rect", class_=name, width="100%", height="100%")
    return element("svg", rect, class_="swatch", aria_hidden="true")


def _length(share: float, whole: float = 1.0) -> str:
    """Return a length in SVG."""
    return f"{decimal(round(share / whole * 100, 3))}%"


def _colour(number: int | None) -> str:
    """Return the class of a colour. None: a backend that the config no longer has, but the paused bridge has."""
    return "gone" if number is None else f"c{number % _COLOURS}"


def _verdict_class(verdict: Verdict | None) -> str:
    return f"v-{'none' if verdict is None else verdict.value.lower()}"
