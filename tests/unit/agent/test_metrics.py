"""The exposition is what Prometheus reads and has every metric; alerts and dashboards query only what exists."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.core import Metric as Family
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from tests.agent_support import Scene
from tests.promql import family_of, grouped_by, is_balanced, metrics_of
from tests.snapshots import MOVED, lazy_snapshot, remote, snapshot
from tests.unix_http import ask
from xenoovs.agent.control.app import Mount
from xenoovs.agent.daemon import Agent
from xenoovs.agent.telemetry import Timings, exposition, mount_metrics, open_metrics
from xenoovs.fleet.snapshot import FLEET_TABLES
from xenoovs.show.column import Kind, Metric
from xenoovs.show.snapshot import HISTOGRAMS, TABLES, AnnouncementView, Insertion, Snapshot

METRICS = [*(metric for table in TABLES for metric in table.metrics()), *HISTOGRAMS]
BY_NAME = {metric.name: metric for metric in METRICS}


def in_trouble() -> Snapshot:
    """A snapshot in which rare metrics have a value too."""
    vips = (AnnouncementView("192.0.2.10", is_announced=True, peers=2),)
    return replace(
        snapshot(),
        confirm_by_s=1.0,
        last_error='it is\nnot "there"',
        config_problem="bad",
        insertion=Insertion(enqueued=3, inserted=8283, latency_s=0.014, pipe_resizes=25, upcall_drops=4),
        announcements=vips,
        remotes=(remote(),),
        moved_by_switch=(MOVED,),
    )


def fed() -> Timings:
    timings = Timings(HISTOGRAMS)
    timings.count("probe", 0.002, "http", "ok")
    timings.count("plan", 0.01)
    timings.count("apply", 0.2)
    return timings


def families(shown: Snapshot, *, with_blocks: bool = False) -> dict[str, Family]:
    tables = [table for table in TABLES if with_blocks or not table.is_optional]
    text = (exposition(tables, lazy_snapshot(shown)) + fed().text()).decode()
    return {
        family.name + ("_total" if family.type == "counter" else ""): family
        for family in text_string_to_metric_families(text)
    }


def values(name: str, shown: Snapshot) -> dict[tuple[str, ...], float]:
    labels = BY_NAME[name].labels
    return {tuple(sample.labels[label] for label in labels): sample.value for sample in families(shown)[name].samples}


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_declared_metric_is_there_with_its_type_help_and_labels(metric: Metric) -> None:
    family = families(in_trouble(), with_blocks=True)[metric.name]
    assert family.type == metric.kind.value
    assert family.documentation == metric.help
    assert family.samples
    allowed = {*metric.labels, "le"} if metric.kind is Kind.HISTOGRAM else {*metric.labels}
    assert all(set(sample.labels) <= allowed >= set(metric.labels) for sample in family.samples)


def test_openmetrics_has_the_same_families_and_samples_and_none_that_is_not_declared_once() -> None:
    text = exposition(TABLES, lazy_snapshot(in_trouble())) + fed().text()
    assert len(BY_NAME) == len(METRICS)
    found = {family.name: family for family in openmetrics_families(open_metrics(text).decode())}  # type: ignore[no-untyped-call]
    assert {f"{name}_total" if family.type == "counter" else name for name, family in found.items()} == set(BY_NAME)
    for family in text_string_to_metric_families(text.decode()):
        assert found[family.name].documentation == family.documentation
        assert found[family.name].samples == family.samples


FLEET_METRICS = [metric for table in FLEET_TABLES for metric in table.metrics()]


@pytest.mark.parametrize("metric", [*METRICS, *FLEET_METRICS], ids=lambda metric: metric.name)
def test_names_contain_the_kind_and_helps_are_sentences(metric: Metric) -> None:
    """Bug: helps had pronouns without a noun."""
    assert re.fullmatch(r"xenoovs_[a-z0-9_]+", metric.name)
    assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
    assert metric.help.endswith(".")
    assert not re.search(r"\b(it|them|they)\b", metric.help)
    assert (metric.of is None) == (metric.kind is Kind.HISTOGRAM) == bool(metric.buckets)


def test_what_is_not_known_is_not_shown() -> None:
    early = replace(snapshot(), services=snapshot().services[1:], sampled_s=None, last_round_s=None)
    for name in ("xenoovs_last_round_timestamp_seconds", "xenoovs_service_offload_ratio", "xenoovs_backend_blocks"):
        assert values(name, early) == {}


@given(st.text() | st.just('it is\nnot "there"'))
def test_any_text_comes_through_the_exposition(text: str) -> None:
    found = values("xenoovs_error_info", replace(snapshot(), last_error=text))
    assert found == ({(text,): 1} if text else {})


def test_a_scrape_is_compressed_if_the_client_accepts_it(scene: Scene) -> None:
    def mounts(agent: Agent) -> tuple[Mount, ...]:
        return (mount_metrics(lambda: lambda: exposition(TABLES, agent.lazy_snapshot())),)

    with scene.agent(mounts=mounts) as (_, client):
        plain = ask(client.path, "/metrics", headers={"Accept-Encoding": "identity"})
        assert (plain.status, plain.headers["Content-Encoding"], plain.body[:7]) == (200, None, b"# HELP ")
        packed = ask(client.path, "/metrics", headers={"Accept-Encoding": "gzip, deflate"})
        assert (packed.headers["Content-Encoding"], gzip.decompress(packed.body)[:7]) == ("gzip", b"# HELP ")
        assert len(packed.body) < len(plain.body) / 2
        prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1"
        assert ask(client.path, "/metrics", headers={"Accept": prometheus}).body.endswith(b"\n# EOF\n")
        assert not plain.body.endswith(b"# EOF\n")


TEMPLATES = Path(__file__).parents[3] / "templates"
ALERTS = yaml.safe_load((TEMPLATES / "prometheus-alerts.yaml").read_text())
DASHBOARD = json.loads((TEMPLATES / "grafana-dashboard.json").read_text())
RULES: list[dict[str, Any]] = [rule for group in ALERTS["groups"] for rule in group["rules"]]

ALWAYS = [metric for table in (*TABLES, *FLEET_TABLES) if not table.is_optional for metric in table.metrics()]
QUERIED = {metric.name: metric for metric in (*ALWAYS, *HISTOGRAMS)}
OF_PROMETHEUS = {"instance", "job", "le"}


def queries() -> Iterator[str]:
    yield from (rule["expr"] for rule in RULES)
    for panel in DASHBOARD["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]


@pytest.mark.parametrize("query", sorted(set(queries())))
def test_a_query_names_metrics_and_labels_that_exist_and_takes_rates_of_counters(query: str) -> None:
    found = list(metrics_of(query))
    assert found
    known = set[str]()
    for name, labels in found:
        metric = QUERIED[family_of(name)]
        assert (family_of(name) != name) == (metric.kind is Kind.HISTOGRAM)
        assert labels <= {*metric.labels, *OF_PROMETHEUS}
        known |= set(metric.labels)
    assert grouped_by(query) <= known | OF_PROMETHEUS
    assert is_balanced(query)
    for name in re.findall(r"(?:rate|increase)\(([a-z_]+)", query):
        assert QUERIED[family_of(name)].kind is not Kind.GAUGE


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_an_alert_has_the_keys_of_prometheus_and_a_text_with_labels_of_its_query(
    rule: dict[str, Any],
) -> None:
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"Xenoovs[A-Za-z]+", rule["alert"])
    assert re.fullmatch(r"[0-9]+[smhd]", rule.get("for", "0s"))
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert set(rule["annotations"]) == {"summary", "description"}
    labels = {label for name, _ in metrics_of(rule["expr"]) for label in QUERIED[family_of(name)].labels}
    used = set(re.findall(r"\$labels\.([a-z_]+)", " ".join(rule["annotations"].values())))
    assert used <= labels | OF_PROMETHEUS


def test_panels_do_not_overlap_and_their_legends_use_labels_that_the_query_leaves() -> None:
    cells = set[tuple[int, int]]()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        own = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not own & cells
        assert at["x"] + at["w"] <= 24
        cells |= own
        for target in panel["targets"]:
            used = set(re.findall(r"{{([a-z_]+)}}", target["legendFormat"]))
            labels = {label for name, _ in metrics_of(target["expr"]) for label in QUERIED[family_of(name)].labels}
            assert used <= (grouped_by(target["expr"]) or labels)
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


RULE_TESTS = (Path(__file__).parents[2] / "prometheus" / "alerts.yaml").read_text()


def test_every_alert_is_fired_in_the_tests_of_the_rules_by_series_that_an_agent_has() -> None:
    """promtool runs them: `promtool test rules tests/prometheus/alerts.yaml`."""
    assert set(re.findall(r'alertname="(\w+)"', RULE_TESTS)) == {rule["alert"] for rule in RULES}
    for test in yaml.safe_load(RULE_TESTS)["tests"]:
        for given_series in test["input_series"]:
            for name, labels in metrics_of(given_series["series"]):
                assert labels <= {*QUERIED[name].labels, "instance"}
                assert set(QUERIED[name].labels) <= labels or name == "xenoovs_build_info"
