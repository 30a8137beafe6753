"""The text that Prometheus reads: gauges and counters off a snapshot, histograms that are fed as things happen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from xenoovs.agent.metrics.metric import Detail, Kind, Metric
from xenoovs.agent.metrics.table import METRICS
from xenoovs.agent.snapshot import Snapshot

CONTENT_TYPE = CONTENT_TYPE_LATEST


class Timings:
    """The histograms. May be fed from any thread."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._found = {
            metric.name: Histogram(
                metric.name, metric.help, metric.labels, registry=self.registry, buckets=metric.buckets
            )
            for metric in METRICS
            if metric.kind is Kind.HISTOGRAM
        }

    def probe(self, kind: str, *, ok: bool, seconds: float) -> None:
        """A probe that was answered, or was not."""
        self._found["xenoovs_probe_duration_seconds"].labels(kind, "ok" if ok else "failed").observe(seconds)

    def plan(self, seconds: float) -> None:
        """The bridge was read, and what differs was found."""
        self._found["xenoovs_plan_duration_seconds"].observe(seconds)

    def apply(self, seconds: float) -> None:
        """The bridge was changed and read back."""
        self._found["xenoovs_apply_duration_seconds"].observe(seconds)


def exposition(snapshot: Snapshot, timings: Timings, *, detail: Detail = Detail.ALWAYS) -> bytes:
    """All metrics. The snapshot is a value, so any thread may make this."""
    registry = CollectorRegistry()
    registry.register(_OfSnapshot(snapshot, detail))
    return generate_latest(registry) + generate_latest(timings.registry)


class _OfSnapshot(Collector):
    def __init__(self, snapshot: Snapshot, detail: Detail) -> None:
        self._snapshot, self._detail = snapshot, detail

    def collect(self) -> Iterator[Family]:
        for metric in shown(self._detail):
            if metric.read is not None:
                yield _family(metric, metric.read(self._snapshot))


def shown(detail: Detail) -> Iterator[Metric]:
    """The metrics of that detail and of less."""
    return (metric for metric in METRICS if metric.detail in (Detail.ALWAYS, detail))


def _family(metric: Metric, samples: Iterable[tuple[tuple[str, ...], float]]) -> Family:
    kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    family = kind(metric.name, metric.help, labels=metric.labels)
    for labels, value in samples:
        family.add_metric(labels, value)
    return family
