"""One service on the status page: its strips, and a row for each backend."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from xenoovs.agent.conditions import keeping
from xenoovs.agent.snapshot import BackendState, BackendView, BlockView, Rate, ServiceView, nic_share
from xenoovs.datapath.megaflow import Verdict
from xenoovs.display import decimal, duration, percent, quantity
from xenoovs.openflow.text import render_bits

# Elements of HTML and SVG as values: what is not markup is escaped, whoever named it.


Attribute = str | int | None


class Markup(str):
    """Text that is HTML already. Only `element` and `join` make it."""

    __slots__ = ()


def element(tag: str, *children: str | None, **attributes: Attribute) -> Markup:
    """One element. Children that are no Markup are text. `class_` is `class`, `_` elsewhere `-`; None: left out."""
    told = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{tag}{told}>{join(*children)}</{tag}>")


def join(*children: str | None) -> Markup:
    """Several things one after the other."""
    return Markup("".join(child if isinstance(child, Markup) else escape(child) for child in children if child))


# The clients of a service as a strip: one cell for a block, or for a column where there are very many.


COLUMNS = 512
"""Most cells that a strip is drawn with: a screen shows no more."""

_GAPS_UP_TO = 128


@dataclass(frozen=True, slots=True)
class Cell:
    """Part of the strip. start, size: 0..1. `tip`: what it is, in words."""

    start: float
    size: float
    backend: str
    verdict: Verdict | None
    tip: str


def cells(blocks: Sequence[BlockView]) -> tuple[Cell, ...]:
    """What is to be drawn, in this order: later ones cover earlier ones."""
    if len(blocks) <= COLUMNS:
        return tuple(Cell(b.start, b.size, b.backend, b.verdict, _tip(b)) for b in blocks)
    return tuple(_runs(blocks))


def draw(drawn: Iterable[Cell], classes: Iterable[str], *, label: str) -> Markup:
    """The strip as SVG, one class a cell."""
    pairs = list(zip(drawn, classes, strict=True))
    rects = (
        element(
            "rect",
            element("title", cell.tip),
            class_=name,
            x=_length(cell.start),
            width=_length(cell.size),
            height="100%",
        )
        for cell, name in pairs
    )
    gaps = "strip gaps" if len(pairs) <= _GAPS_UP_TO else "strip"
    return element("svg", *rects, class_=gaps, role="img", tabindex="0", aria_label=label)


def _runs(blocks: Sequence[BlockView]) -> Iterator[Cell]:
    """Columns that look alike as one cell."""
    columns: list[BlockView | None] = [None] * COLUMNS
    for block in blocks:
        first = int(block.start * COLUMNS)
        for column in range(first, max(first + 1, int((block.start + block.size) * COLUMNS))):
            columns[min(column, COLUMNS - 1)] = block
    start = 0
    for column in range(1, COLUMNS + 1):
        here = columns[start]
        if column < COLUMNS and _looks(columns[column]) == _looks(here):
            continue
        if here is not None:
            tip = f"{here.backend} · {_word(here.verdict)} · {len(blocks)} blocks in {COLUMNS} columns"
            yield Cell(start / COLUMNS, (column - start) / COLUMNS, here.backend, here.verdict, tip)
        start = column


def _looks(block: BlockView | None) -> tuple[str, Verdict | None] | None:
    return None if block is None else (block.backend, block.verdict)


def _tip(block: BlockView) -> str:
    value, mask = (render_bits(block.field, bits) for bits in (block.value, block.mask))
    return f"{block.backend} · {_word(block.verdict)} · {block.field}={value}/{mask}"


def _word(verdict: Verdict | None) -> str:
    return "not looked at yet" if verdict is None else verdict.value


def _length(share: float, whole: float = 1.0) -> str:
    """A length in SVG."""
    return f"{share / whole * 100:.5g}%"


COLOURS = 21
"""Seven colours, each plain, striped and dotted: beyond that they are used again."""

_STATES = {
    BackendState.UP: ("●", "up"),
    BackendState.DOWN: ("▼", "down"),
    BackendState.UNCHECKED: ("○", "not asked"),
    BackendState.DRAINED: ("◇", "drained"),
}
_HEADERS = ("backend", "state", "weight", "share of packets · wanted", "packets/s", "bits/s", "in the NIC", "blocks")
_MEANINGS = {
    Verdict.HW: "in the NIC",
    Verdict.PARTIAL: "NIC matches, CPU forwards",
    Verdict.TC_SW: "kernel, traffic control",
    Verdict.SW: "software",
    Verdict.ABSENT: "no traffic",
}


def offload_share(rates: Iterable[Rate]) -> float | None:
    """Of the packets of these rates, 0..1, those that the NIC forwarded; None without packets."""
    return nic_share(rates)


def service_card(service: ServiceView, blocks: Sequence[BlockView], *, now_s: float) -> Markup:
    """The whole card."""
    order = {backend.name: number for number, backend in enumerate(service.backends)}
    rows = (_row(backend, _Of(service, order[backend.name], now_s)) for backend in service.backends)
    return element(
        "section",
        element("h2", service.name, element("span", ", ".join(service.vips), class_="vips")),
        element("p", " · ".join(_sayings(service)), class_="quiet"),
        _strips(service, blocks, order=order) if blocks else None,
        element(
            "table",
            element("thead", element("tr", *(element("th", header, scope="col") for header in _HEADERS))),
            element("tbody", *rows),
        ),
        class_="card",
    )


def _sayings(service: ServiceView) -> Iterator[str]:
    share = offload_share(backend.rate for backend in service.backends if backend.rate is not None)
    if share is not None:
        yield f"{percent(share)} of packets in the NIC"
    if service.megaflows_seen is not None:
        yield f"{service.megaflows_seen} megaflows of {service.megaflows_predicted} predicted"
    elif service.megaflows_predicted is not None:
        yield f"{service.megaflows_predicted} megaflows predicted"
    if service.clients_moved:
        # A sum over all changes, which may be far above one.
        yield f"clients moved {quantity(service.clients_moved)} times each on average"
    if service.draining:
        yield keeping(service.draining)


def _strips(service: ServiceView, blocks: Sequence[BlockView], *, order: Mapping[str, int]) -> Markup:
    drawn = cells(blocks)
    owners = draw(drawn, (_colour(order.get(c.backend)) for c in drawn), label="clients by backend")
    verdicts = draw(drawn, (_verdict_class(c.verdict) for c in drawn), label="clients by verdict")
    seen = {cell.verdict for cell in drawn}
    legend = (
        element("li", _swatch(_verdict_class(verdict)), f"{verdict.value} ", element("small", _MEANINGS[verdict]))
        for verdict in Verdict
        if verdict in seen
    )
    unseen = element("li", _swatch(_verdict_class(None)), "not looked at yet") if None in seen else None
    return element(
        "figure",
        element("span", "backend", class_="of"),
        owners,
        element("span", "verdict", class_="of"),
        verdicts,
        element("figcaption", "All clients, by the bits that choose.", element("ul", *legend, unseen)),
        class_="map",
    )


class _Of:
    """Where a backend stands: its service, its number there, and what time it is."""

    __slots__ = ("now_s", "number", "service")

    def __init__(self, service: ServiceView, number: int, now_s: float) -> None:
        self.service, self.number, self.now_s = service, number, now_s

    @property
    def full(self) -> float:
        """The share, 0..1, that fills a bar: the largest of the service."""
        shares = [share for b in self.service.backends for share in (b.share_wanted, self.share_seen(b)) if share]
        return max(shares, default=1.0)

    @property
    def is_lending(self) -> bool:
        """Whether some backends have clients of others for now: then weights do not tell who has whom."""
        return bool(self.service.draining) or any(b.is_out or b.ramp is not None for b in self.service.backends)

    def share_seen(self, backend: BackendView) -> float | None:
        packets = sum(other.rate.pps for other in self.service.backends if other.rate is not None)
        return None if backend.rate is None or not packets else backend.rate.pps / packets


def _row(backend: BackendView, place: _Of) -> Markup:
    rate = backend.rate
    in_nic = offload_share(() if rate is None else (rate,))
    return element(
        "tr",
        element(
            "th",
            _swatch(_colour(place.number)),
            element("span", backend.name, title=f"{backend.mac} by {backend.egress}"),
            scope="row",
        ),
        _state_cell(backend, place.now_s),
        _cell("weight", _weight(backend), class_="n"),
        element("td", _bar(backend, place), data_label="share"),
        _cell("packets/s", quantity(None if rate is None else rate.pps), class_="n"),
        _cell("bits/s", quantity(None if rate is None else rate.bps), class_="n"),
        _cell("in the NIC", percent(in_nic), class_="n"),
        element("td", _blocks(backend), class_="n", data_label="blocks"),
    )


def _state_cell(backend: BackendView, now_s: float) -> Markup:
    sign, word = _STATES[backend.state]
    keeps = " · keeps its clients" if backend.state is BackendState.DOWN and not backend.is_out else ""
    since = "" if backend.since_s is None else f" {duration(now_s - backend.since_s)}"
    ramp = "" if backend.ramp is None else f" · slow start {percent(backend.ramp)}"
    return element(
        "td",
        element("b", sign, class_="sign", aria_hidden="true"),
        element("span", f"{word}{since}{ramp}{keeps}"),
        element("small", backend.reason) if backend.reason else None,
        class_=f"state {backend.state.value}",
        data_label="state",
    )


def _weight(backend: BackendView) -> str:
    configured, used = decimal(backend.weight), decimal(backend.weight_in_use)
    return configured if configured == used else f"{used} of {configured}"


def _bar(backend: BackendView, place: _Of) -> Markup:
    """Filled as far as seen, with a mark where it should end; while clients are lent, what it holds beside it."""
    wanted, seen = backend.share_wanted, place.share_seen(backend)
    width = _length(seen, place.full) if seen else None
    fill = element("rect", class_="fill", x="0", y="25%", width=width, height="50%") if seen else None
    at = _length(wanted, place.full)
    mark = element("line", class_="mark", x1=at, x2=at, y1="0", y2="100%")
    ground = element("rect", class_="ground", x="0", y="25%", width="100%", height="50%")
    holds = f"holds {percent(backend.share_installed)} now" if place.is_lending else ""
    told = f"{percent(seen)} of packets seen, {percent(wanted)} wanted by weight{holds and f', {holds}'}"
    drawn = element("svg", element("title", told), ground, fill, mark, class_="bar", role="img", aria_label=told)
    beside = element("small", holds, class_="holds") if holds else None
    words = element("span", percent(seen), element("small", f" / {percent(wanted)}"), beside, class_="n")
    return element("div", drawn, words, class_="share")


def _blocks(backend: BackendView) -> Markup:
    worst_first = sorted(backend.blocks.items(), key=lambda item: -item[0].badness)
    bad = [f"{count} {verdict.value}" for verdict, count in worst_first if count and verdict.badness > 1]
    return join(str(backend.flows), element("small", ", ".join(bad), class_="not-in-nic") if bad else None)


def _cell(label: str, text: str, *, class_: str) -> Markup:
    return element("td", text, class_=class_, data_label=label)


def _swatch(name: str) -> Markup:
    rect = element("rect", class_=name, width="100%", height="100%")
    return element("svg", rect, class_="swatch", aria_hidden="true")


def _colour(index: int | None) -> str:
    """None: a backend that the config no longer has, but a bridge that may not be changed now still has."""
    return "gone" if index is None else f"c{index % COLOURS}"


def _verdict_class(verdict: Verdict | None) -> str:
    return f"v-{'none' if verdict is None else verdict.value.lower()}"
