"""Generate docs/reference/metrics.md from the tables whose columns have metrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from xenoovs.fleet.snapshot import FLEET_TABLES
from xenoovs.show.column import Metric, Table
from xenoovs.show.snapshot import BLOCKS, HISTOGRAMS, TABLES

_HEAD = ("| metric | type | labels | meaning |", "|---|---|---|---|")


def metrics_page(generated: str) -> str:
    """Return the page with every metric, in the order of the tables; `generated` is its first line."""
    return "\n".join(
        (
            generated,
            "# Metrics\n",
            "The agent answers `GET /metrics` with these, in the text format of Prometheus "
            "([how to](../how-to/metrics.md)). Metrics of services and backends have their names as labels. Counters "
            "start at 0 when the agent starts.\n",
            *_HEAD,
            *_rows(TABLES),
            *_markdown(BLOCKS.metrics(), only="Only with `--metrics-blocks`."),
            *_markdown(HISTOGRAMS),
            "",
            "## Of a fleet\n",
            "`xenoovs fleet serve --web` answers `GET /metrics` with these "
            "([how to](../how-to/fleet-watch.md#status-page-and-alerts)).\n",
            *_HEAD,
            *_rows(FLEET_TABLES),
            "",
        )
    )


def _rows(tables: Iterable[Table]) -> list[str]:
    return [line for each in tables for line in _markdown(each.metrics())]


def _markdown(metrics: Iterable[Metric], *, only: str = "") -> Iterator[str]:
    """Yield the rows of metrics, below their header. `only`: when these metrics are shown, a sentence."""
    for each in metrics:
        labels = ", ".join(f"`{label}`" for label in each.labels)
        yield f"| `{each.name}` | {each.kind.value} | {labels} | {each.help}{only and f' {only}'} |"
