"""The generated page of metrics, from the one table that declares them."""

from __future__ import annotations

from xenoovs.agent.metrics.metric import Detail, Metric
from xenoovs.agent.metrics.table import METRICS

_WORDS = {"s": "seconds", "B": "bytes", "": ""}


def metrics_page(generated: str) -> str:
    """Every metric in the order of the table. `generated`: the remark that a page is not to be edited."""
    rows = [_row(metric) for metric in METRICS]
    return "\n".join(
        (
            generated,
            "# Metrics\n",
            "What `GET /metrics` of the agent answers ([how to](../how-to/metrics.md)), in the text format of "
            "Prometheus. Those of services and backends carry their names as labels; counters count from the start of "
            "the agent.\n",
            "| metric | type | labels | meaning | from |",
            "|---|---|---|---|---|",
            *rows,
            "",
        )
    )


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    unit = f" ({_WORDS[metric.unit]})" if metric.unit else ""
    only = "" if metric.detail is Detail.ALWAYS else f" Only {metric.detail.value}."
    return f"| `{metric.name}` | {metric.kind.value} | {labels} | {metric.help}{unit}{only} | {metric.origin} |"
