"""Generate docs/reference/metrics.md from the table that declares the metrics."""

from __future__ import annotations

from xenoovs.agent.metrics.fleet import FLEET_METRICS
from xenoovs.agent.metrics.metric import Detail, Metric
from xenoovs.agent.metrics.table import METRICS

_WORDS = {"s": "seconds", "B": "bytes", "": ""}


def metrics_page(generated: str) -> str:
    """Return the page with every metric, in the order of the table; `generated` is its first line."""
    rows = [_row(metric) for metric in METRICS]
    return "\n".join(
        (
            generated,
            "# Metrics\n",
            "The agent answers `GET /metrics` with these, in the text format of Prometheus "
            "([how to](../how-to/metrics.md)). Metrics of services and backends have their names as labels. Counters "
            "start at 0 when the agent starts.\n",
            "| metric | type | labels | meaning | from |",
            "|---|---|---|---|---|",
            *rows,
            "",
            "## Of a fleet\n",
            "`xenoovs fleet serve --web` answers `GET /metrics` with these "
            "([how to](../how-to/fleet.md#status-page-and-alerts)).\n",
            "| metric | type | labels | meaning | from |",
            "|---|---|---|---|---|",
            *(_row(metric) for metric, _ in FLEET_METRICS),
            "",
        )
    )


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    unit = f" ({_WORDS[metric.unit]})" if metric.unit else ""
    only = "" if metric.detail is Detail.ALWAYS else f" Only {metric.detail.value}."
    return f"| `{metric.name}` | {metric.kind.value} | {labels} | {metric.help}{unit}{only} | {metric.origin} |"
