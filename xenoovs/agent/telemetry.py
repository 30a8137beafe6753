"""Metrics and the status page of an agent."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from aiohttp import web
from prometheus_client import CollectorRegistry, Histogram, disable_created_metrics
from prometheus_client.exposition import generate_latest

from xenoovs.agent.control.limits import run_beside
from xenoovs.agent.state import Probed
from xenoovs.agent.tasks import call_each
from xenoovs.agent.web.page import agent_json, page_routes
from xenoovs.regex import regex
from xenoovs.show.column import Metric, Table
from xenoovs.show.snapshot import BLOCKS, HISTOGRAMS, TABLES, LazySnapshot

if TYPE_CHECKING:
    from xenoovs.agent.daemon import Agent

_LEVEL = 1
"""Level of gzip. It makes a scrape of 16,000 backends 20 times smaller; higher levels cost more than they save."""


def metrics_routes(moment: Callable[[], Callable[[], bytes]]) -> list[web.RouteDef]:
    """Return `/metrics`. `moment`: called in the event loop; its result is called in a thread."""

    async def answer(request: web.Request) -> web.StreamResponse:
        is_packed = "gzip" in request.headers.get("Accept-Encoding", "")
        is_open = OPEN_METRICS_TYPE.partition(";")[0] in request.headers.get("Accept", "")
        headers = {"Content-Type": OPEN_METRICS_TYPE if is_open else CONTENT_TYPE}
        headers |= {"Cache-Control": "no-store", "Vary": "Accept, Accept-Encoding"}
        if is_packed:
            headers["Content-Encoding"] = "gzip"
        render = moment()

        def body() -> bytes:
            text = open_metrics(render()) if is_open else render()
            return gzip.compress(text, _LEVEL, mtime=0) if is_packed else text

        # With many backends this takes long, and the event loop must send health checks.
        return web.Response(body=await run_beside(request.app, body), headers=headers)

    return [web.get("/metrics", answer)]


def telemetry(agent: Agent, *, with_blocks: bool = False) -> list[web.RouteDef]:
    """Return the routes of metrics and page. Times rounds and probes from now on. `with_blocks`: also make metrics of
    blocks."""
    timings = Timings(HISTOGRAMS)

    def count_probe(probed: Probed) -> None:
        check, result = probed.check, probed.result
        kind = check.health.probe.value if check.min_change is None else "agent"
        timings.count("probe", result.latency_s, kind, "ok" if result.ok else "failed")

    def metrics(at: LazySnapshot) -> bytes:
        snapshot = at.snapshot()
        blocks = ((each.name, at.blocks(each.name)) for each in snapshot.services if with_blocks)
        return exposition(TABLES, snapshot) + (exposition([BLOCKS], blocks) if with_blocks else b"") + timings.text()

    agent.store.subscribe(Probed, count_probe)
    agent.engine.on_timed(lambda step, seconds: call_each((timings.count,), step, seconds))
    return [
        *metrics_routes(lambda: partial(metrics, agent.lazy_snapshot())),
        *page_routes("agent.js", lambda: partial(agent_json, agent.lazy_snapshot())),
    ]


# Tables as Prometheus reads them (text format 0.0.4, or OpenMetrics 1.0), and the histograms of an agent.


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_DESCRIBED = regex(rb"^# (HELP|TYPE) (\S+) (.*)$", re.MULTILINE)

# The text format has no type for the start of a series, so that each histogram would add a gauge.
disable_created_metrics()  # type: ignore[no-untyped-call]


class Timings:
    """Histograms of durations. Any thread may add to them."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self.registry = CollectorRegistry()
        self._found = {
            each.name: Histogram(each.name, each.help, each.labels, registry=self.registry, buckets=each.buckets)
            for each in metrics
        }

    def count(self, what: str, seconds: float, *labels: str) -> None:
        """Count the duration of a `plan`, an `apply`, or a `probe` with its labels."""
        found = self._found[f"xenoovs_{what}_duration_seconds"]
        (found.labels(*labels) if labels else found).observe(seconds)

    def text(self) -> bytes:
        return generate_latest(self.registry)


def exposition(tables: Iterable[Table], state: object) -> bytes:
    """Return the metrics of all columns, from any thread. For 16,000 backends prometheus_client takes 10 s (30 us for
    each metric sample), and this function a twentieth."""
    return "".join(line for table in tables for line in _lines(table, state)).encode()


def open_metrics(text: bytes) -> bytes:
    """Convert a text of format 0.0.4 to OpenMetrics 1.0: descriptions of counters have no `_total`, and `# EOF` is the
    end (OpenMetrics 1.0, sections "Text Format" and "Counter")."""

    def described(line: re.Match[bytes]) -> bytes:
        return b"# %b %b %b" % (line[1], line[2].removesuffix(b"_total"), line[3].replace(b'"', b'\\"'))

    return _DESCRIBED.sub(described, text) + b"# EOF\n"


def _lines(table: Table, state: object) -> Iterator[str]:
    metrics = table.metrics()
    # Labels are quoted once for all metrics of a row.
    rows = [(_labelled(table.labels, labels), value) for labels, value in table.rows(state)] if metrics else []
    for metric in metrics:
        yield f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.kind.value}\n"
        name, own, of = metric.name, metric.labels[len(table.labels) :], metric.of
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
