"""Tables as Prometheus reads them (text format 0.0.4, or OpenMetrics 1.0), and the histograms of an agent."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from prometheus_client import CollectorRegistry, Histogram, disable_created_metrics
from prometheus_client.exposition import generate_latest

from xenoovs.show.column import Metric, Table

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_DESCRIBED = re.compile(rb"^# (HELP|TYPE) (\S+) (.*)$", re.MULTILINE)

# The text format has no type for the moment a series began: each histogram would add a gauge.
disable_created_metrics()  # type: ignore[no-untyped-call]


class Timings:
    """The histograms. Any thread may add to them."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self.registry = CollectorRegistry()
        self._found = {
            each.name: Histogram(each.name, each.help, each.labels, registry=self.registry, buckets=each.buckets)
            for each in metrics
        }

    def count(self, what: str, seconds: float, *labels: str) -> None:
        """Count a `plan`, an `apply`, or a `probe` with its labels."""
        found = self._found[f"xenoovs_{what}_duration_seconds"]
        (found.labels(*labels) if labels else found).observe(seconds)

    def text(self) -> bytes:
        return generate_latest(self.registry)


def exposition(tables: Iterable[Table], state: object) -> bytes:
    """Return the metrics of all columns, from any thread.

    prometheus_client takes 30 us for a sample: 10 s for 16,000 backends. This takes a twentieth of that.
    """
    return "".join(line for table in tables for line in _lines(table, state)).encode()


def open_metrics(text: bytes) -> bytes:
    """Return a text of format 0.0.4 as OpenMetrics 1.0: counters are described without `_total`; the text has an end.

    Source: OpenMetrics 1.0, sections "Text Format" and "Counter".
    """

    def described(line: re.Match[bytes]) -> bytes:
        return b"# %b %b %b" % (line[1], line[2].removesuffix(b"_total"), line[3].replace(b'"', b'\\"'))

    return _DESCRIBED.sub(described, text) + b"# EOF\n"


def _lines(table: Table, state: object) -> Iterator[str]:
    metrics = table.metrics()
    # Labels are quoted once for all metrics of a row.
    rows = [(_labelled(table.labels, labels), value) for labels, value in table.rows(state)] if metrics else []
    for metric in metrics:
        yield f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.kind.value}\n"
        name, own, of = metric.name, metric.own_labels, metric.of
        for labels, value in rows:
            found: Any = of and of(value)
            if own:
                for key, number in found.items():
                    if number is not None:
                        more = _labelled(own, (key,) if isinstance(key, str) else key)
                        yield f"{name}{{{labels and f'{labels},'}{more}}} {float(number)!r}\n"
            elif found is not None:
                yield f"{name}{labels and f'{{{labels}}}'} {float(found)!r}\n"


def _labelled(names: Iterable[str], values: Iterable[str]) -> str:
    return ",".join(f"{name}={_quoted(value)}" for name, value in zip(names, values, strict=True))


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
