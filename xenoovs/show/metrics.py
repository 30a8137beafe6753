"""Tables as Prometheus reads them (text format, version 0.0.4), and the histograms of an agent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.exposition import generate_latest

from xenoovs.show.column import Metric, Table

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Timings:
    """The histograms. Any thread may add to them."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self.registry = CollectorRegistry()
        self._found = {
            each.name: Histogram(each.name, each.help, each.labels, registry=self.registry, buckets=each.buckets)
            for each in metrics
        }

    def probe(self, kind: str, *, ok: bool, seconds: float) -> None:
        """Count a probe."""
        self._found["xenoovs_probe_duration_seconds"].labels(kind, "ok" if ok else "failed").observe(seconds)

    def plan(self, seconds: float) -> None:
        """Count a computation of the difference."""
        self._found["xenoovs_plan_duration_seconds"].observe(seconds)

    def apply(self, seconds: float) -> None:
        """Count a change of the bridge."""
        self._found["xenoovs_apply_duration_seconds"].observe(seconds)

    def text(self) -> bytes:
        """Return all of them."""
        return generate_latest(self.registry)


def exposition(tables: Iterable[Table], state: object) -> bytes:
    """Return the metrics of all columns, from any thread.

    prometheus_client takes 30 us for a sample: 10 s for 16,000 backends. This takes a twentieth of that.
    """
    return "".join(line for table in tables for line in _lines(table, state)).encode()


def _lines(table: Table, state: object) -> Iterator[str]:
    metrics = table.metrics()
    rows = list(table.rows(state)) if metrics else []
    for metric in metrics:
        yield f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.kind.value}\n"
        places = ",".join(f"{label}=%s" for label in metric.labels)
        form = f"{metric.name}{{{places}}} " if places else f"{metric.name} "
        for labels, value in samples(metric, rows):
            yield f"{form % tuple(map(_quoted, labels))}{float(value)!r}\n"


def samples(metric: Metric, rows: Iterable[tuple[tuple[str, ...], Any]]) -> Iterator[tuple[tuple[str, ...], float]]:
    """Yield the values of the labels, and the number, of each sample."""
    if metric.of is None:
        raise ValueError(f"{metric.name} belongs to no table")
    for labels, row in rows:
        found = metric.of(row)
        for own, number in found.items() if isinstance(found, Mapping) else [((), found)]:
            if number is not None:
                yield (*labels, *((own,) if isinstance(own, str) else own)), number


@lru_cache(maxsize=1 << 16)
def _quoted(text: str) -> str:
    escaped = text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return f'"{escaped}"'


def markdown(metrics: Iterable[Metric], *, only: str = "") -> Iterator[str]:
    """Yield the rows of the reference page, below their header. `only`: when these metrics are shown, a sentence."""
    for each in metrics:
        labels = ", ".join(f"`{label}`" for label in each.labels)
        unit = f" ({each.unit})" if each.unit else ""
        text = f"{each.help}{unit}{only and f' {only}'}"
        yield f"| `{each.name}` | {each.kind.value} | {labels} | {text} | {each.origin} |"
